#include "planner/plan_report.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/terminal_text.h"
#include "report/plot.h"

namespace pelton::planner {
namespace {

using report::html_escape;

std::string format_bytes(double bytes) {
  const double size = std::abs(bytes);
  if (size >= 1e9) {
    return fmt::format("{:.2f} GiB ({:.2f} GB)", bytes / (1 << 30), bytes / 1e9);
  }
  if (size >= 1e6) return fmt::format("{:.2f} MiB ({:.2f} MB)", bytes / (1 << 20), bytes / 1e6);
  if (size >= 1e3) return fmt::format("{:.1f} KiB", bytes / 1024);
  return fmt::format("{:.0f} B", bytes);
}

std::string format_seconds(double seconds) {
  if (seconds >= 100) return fmt::format("{:.0f} s", seconds);
  if (seconds >= 1) return fmt::format("{:.2f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.1f} us", seconds * 1e6);
}

std::string format_count(double count) {
  if (std::abs(count) >= 1e15) return fmt::format("{:.3g}", count);
  std::string digits = fmt::format("{:.0f}", count);
  const size_t first = count < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

// 1234 -> 1200, 0.0473 -> 0.047
double two_digits(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double scale = std::pow(10, std::floor(std::log10(std::abs(value))) - 1);
  return std::round(value / scale) * scale;
}

// One unit is enough in a table.
std::string cell_text(const Cell& cell) {
  if (!cell.text.empty()) return base::one_line(cell.text);
  if (cell.modelled) return format_modelled(cell.value, cell.unit);
  const std::string text = format(cell.value, cell.unit);
  return cell.unit == Unit::kBytes ? text.substr(0, text.find(" (")) : text;
}

std::string figure_text(const Figure& figure) {
  if (!figure.range) return format(figure.value, figure.unit);
  return fmt::format("{} ({} to {})", format_modelled(figure.value, figure.unit),
                     format_modelled(figure.range->low, figure.unit),
                     format_modelled(figure.range->high, figure.unit));
}

std::string table_text(const Table& table, int width) {
  base::TextTable text{.headers = table.columns, .rows = {}};
  for (const auto& row : table.rows) {
    std::vector<std::string>& cells = text.rows.emplace_back();
    for (const Cell& cell : row) cells.push_back(cell_text(cell));
  }
  return base::text_table(text, width, 2);
}

std::string_view unit_name(Unit unit) {
  switch (unit) {
    case Unit::kBytes:
      return "bytes";
    case Unit::kTokens:
      return "tokens";
    case Unit::kSeconds:
      return "seconds";
    case Unit::kPerSecond:
      return "1/s";
    case Unit::kShare:
      return "share";
    case Unit::kDollars:
      return "dollars";
    case Unit::kRatio:
      return "ratio";
    case Unit::kCount:
      break;
  }
  return "count";
}

constexpr std::string_view kStyle =
    "body{font:15px/1.5 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem;"
    "color:#222;background:#fff}h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}"
    "table{border-collapse:collapse;width:100%;display:block;overflow-x:auto}td,th{padding:.25rem "
    ".6rem;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}th{white-space:normal;"
    "vertical-align:bottom}td.t{white-space:normal}td:first-child,th:first-child{text-align:left}"
    "td.f{color:#666;text-align:left;white-space:normal;"
    "font-size:.85rem}p.n{color:#555}@media(prefers-color-scheme:dark){body{background:#161616;"
    "color:#ddd}td,th{border-color:#333}td.f,p.n{color:#999}}";

}  // namespace

std::string format(double value, Unit unit) {
  switch (unit) {
    case Unit::kBytes:
      return format_bytes(value);
    case Unit::kSeconds:
      return format_seconds(value);
    case Unit::kPerSecond:
      return value < 100 ? fmt::format("{:.3g}/s", value) : format_count(value) + "/s";
    case Unit::kShare:
      return fmt::format("{:.1f} %", value * 100);
    case Unit::kDollars:
      return fmt::format("${:.{}f}", value, value < 10 ? 3 : 2);
    case Unit::kRatio:
      return fmt::format("{:.2f}", value);
    case Unit::kTokens:
    case Unit::kCount:
      break;
  }
  return format_count(value);
}

std::string format_modelled(double value, Unit unit) {
  const double rounded = two_digits(value);
  switch (unit) {
    case Unit::kSeconds:
      if (rounded >= 1) return fmt::format("{:g} s", rounded);
      if (rounded >= 1e-3) return fmt::format("{:g} ms", two_digits(rounded * 1e3));
      return fmt::format("{:g} us", two_digits(rounded * 1e6));
    case Unit::kPerSecond:
      return (rounded < 100 ? fmt::format("{:g}", rounded) : format_count(rounded)) + "/s";
    case Unit::kShare:
      return fmt::format("{:g} %", two_digits(value * 100));
    case Unit::kDollars:
      return fmt::format("${:g}", rounded);
    case Unit::kRatio:
      return fmt::format("{:g}", rounded);
    default:
      return format(value, unit);
  }
}

std::string to_text(const PlanReport& report, Explain explain, int width) {
  std::string text;
  for (const std::string& line : report.headline) {
    text += base::wrapped_text(base::one_line(line), width, 0);
  }
  if (!report.headline.empty()) text += "\n";
  text += base::wrapped_text(base::one_line(report.title), width, 0);
  for (const Section& section : report.sections) {
    text += "\n" + base::wrapped_text(base::one_line(section.title), width, 0);
    size_t labels = 0;
    for (const Figure& figure : section.figures) labels = std::max(labels, figure.label.size());
    for (const Figure& figure : section.figures) {
      const std::string line =
          fmt::format("  {:<{}}  {}", figure.label, labels, figure_text(figure));
      text += width <= 0 || base::text_columns(line) <= width
                  ? line + "\n"
                  : base::wrapped_text(figure.label + ": " + figure_text(figure), width, 2);
      if (explain == Explain::kYes && !figure.formula.empty()) {
        text += base::wrapped_text("= " + base::one_line(figure.formula), width, 6);
      }
    }
    for (const Table& table : section.tables) text += table_text(table, width);
    for (const std::string& note : section.notes) {
      text += base::wrapped_text(base::one_line(note), width, 2);
    }
  }
  return text;
}

Json to_json(const PlanReport& report) {
  Json json;
  json.set("title", report.title);
  Json::Array headline;
  for (const std::string& line : report.headline) headline.emplace_back(line);
  json.set("headline", std::move(headline)).set("fits", report.fits);
  if (report.meets_objectives) json.set("meets_objectives", *report.meets_objectives);
  for (const Section& section : report.sections) {
    Json part;
    for (const Figure& figure : section.figures) {
      Json one;
      one.set("value", figure.value).set("unit", unit_name(figure.unit));
      one.set("label", figure.label).set("formula", figure.formula);
      if (figure.range) one.set("low", figure.range->low).set("high", figure.range->high);
      part.set(figure.key, std::move(one));
    }
    for (const Table& table : section.tables) {
      Json::Array rows;
      for (const auto& row : table.rows) {
        Json entry;
        for (size_t i = 0; i < row.size(); ++i) {
          entry.set(table.columns[i], row[i].text.empty() ? Json(row[i].value) : Json(row[i].text));
        }
        rows.push_back(std::move(entry));
      }
      part.set(table.key, std::move(rows));
    }
    Json::Array notes;
    for (const std::string& note : section.notes) notes.emplace_back(note);
    if (!notes.empty()) part.set("notes", std::move(notes));
    json.set(section.key, std::move(part));
  }
  return json;
}

std::string to_html(const PlanReport& report) {
  std::string html = fmt::format(
      "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><title>{0}</title><style>{1}</style></head>"
      "<body><h1>{0}</h1>\n",
      html_escape(report.title), kStyle);
  for (const std::string& line : report.headline) {
    html += fmt::format("<p>{}</p>\n", html_escape(line));
  }
  for (const Section& section : report.sections) {
    html += fmt::format("<h2>{}</h2>\n", html_escape(section.title));
    if (!section.figures.empty()) html += "<table>";
    for (const Figure& figure : section.figures) {
      html += fmt::format("<tr><td>{}</td><td>{}</td><td class=\"f\">{}</td></tr>\n",
                          html_escape(figure.label), html_escape(figure_text(figure)),
                          html_escape(figure.formula));
    }
    if (!section.figures.empty()) html += "</table>";
    for (const Table& table : section.tables) {
      html += "<table><tr>";
      for (const std::string& column : table.columns) {
        html += fmt::format("<th>{}</th>", html_escape(column));
      }
      html += "</tr>\n";
      for (const auto& row : table.rows) {
        html += "<tr>";
        for (const Cell& cell : row) {
          html += fmt::format("<td{}>{}</td>", cell.text.empty() ? "" : " class=\"t\"",
                              html_escape(cell_text(cell)));
        }
        html += "</tr>\n";
      }
      html += "</table>";
    }
    for (const std::string& note : section.notes) {
      html += fmt::format("<p class=\"n\">{}</p>\n", html_escape(note));
    }
  }
  return html + "</body></html>\n";
}

}  // namespace pelton::planner
