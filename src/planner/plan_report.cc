#include "planner/plan_report.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

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

std::string cell_text(const Cell& cell) {
  return cell.text.empty() ? format(cell.value, cell.unit) : cell.text;
}

std::string table_text(const Table& table) {
  std::vector<size_t> widths;
  for (const std::string& column : table.columns) widths.push_back(column.size());
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], cell_text(row[i]).size());
    }
  }
  std::string text;
  const auto add = [&](size_t i, const std::string& word) {
    // The first column names its row.
    text += i == 0 ? fmt::format("  {:<{}}", word, widths[i])
                   : fmt::format("  {:>{}}", word, widths[i]);
  };
  for (size_t i = 0; i < table.columns.size(); ++i) add(i, table.columns[i]);
  text += "\n";
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i) add(i, cell_text(row[i]));
    text += "\n";
  }
  return text;
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
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "color:#222;background:#fff}h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}"
    "table{border-collapse:collapse;width:100%;display:block;overflow-x:auto}td,th{padding:.25rem "
    ".6rem;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}td:first-child,"
    "th:first-child{text-align:left}td.f{color:#666;text-align:left;white-space:normal;"
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

std::string to_text(const PlanReport& report, Explain explain) {
  std::string text = report.title + "\n";
  for (const Section& section : report.sections) {
    text += "\n" + section.title + "\n";
    size_t width = 0;
    for (const Figure& figure : section.figures) width = std::max(width, figure.label.size());
    for (const Figure& figure : section.figures) {
      text += fmt::format("  {:<{}}  {}\n", figure.label, width, format(figure.value, figure.unit));
      if (explain == Explain::kYes && !figure.formula.empty()) {
        text += fmt::format("  {:<{}}    = {}\n", "", width, figure.formula);
      }
    }
    for (const Table& table : section.tables) text += table_text(table);
    for (const std::string& note : section.notes) text += "  " + note + "\n";
  }
  return text;
}

Json to_json(const PlanReport& report) {
  Json json;
  json.set("title", report.title);
  for (const Section& section : report.sections) {
    Json part;
    for (const Figure& figure : section.figures) {
      Json one;
      one.set("value", figure.value).set("unit", unit_name(figure.unit));
      one.set("label", figure.label).set("formula", figure.formula);
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
  for (const Section& section : report.sections) {
    html += fmt::format("<h2>{}</h2>\n", html_escape(section.title));
    if (!section.figures.empty()) html += "<table>";
    for (const Figure& figure : section.figures) {
      html += fmt::format("<tr><td>{}</td><td>{}</td><td class=\"f\">{}</td></tr>\n",
                          html_escape(figure.label), html_escape(format(figure.value, figure.unit)),
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
        for (const Cell& cell : row)
          html += fmt::format("<td>{}</td>", html_escape(cell_text(cell)));
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
