#include "apps/published_table.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "apps/input.h"
#include "base/file.h"
#include "base/json_writer.h"
#include "report/html_page.h"
#include "report/percentile.h"
#include "report/plot.h"
#include "simulator/published_tables.h"

namespace pelton::apps {
namespace {

using simulator::PublishedCell;

double off(const PublishedCell& cell) {
  return cell.modelled / cell.measured - 1;
}

struct Errors {
  double median = 0;
  double most = 0;
};

Errors errors_of(const std::vector<PublishedCell>& cells) {
  std::vector<double> errors;
  for (const PublishedCell& cell : cells) errors.push_back(std::abs(off(cell)));
  std::ranges::sort(errors);
  return {.median = report::percentile(errors, 50), .most = errors.back()};
}

std::string errors_text(const std::vector<PublishedCell>& cells) {
  const Errors errors = errors_of(cells);
  return fmt::format("off by {:.0f} % in the median, {:.0f} % at most; modelled, not measured",
                     100 * errors.median, 100 * errors.most);
}

std::string table_text(const std::vector<PublishedCell>& cells) {
  std::string out = fmt::format("{:<14} {:<7} {:>5} {:<9} {:>10} {:>10} {:>8}\n", "workload",
                                "engine", "users", "figure", "published", "played", "off");
  for (const PublishedCell& cell : cells) {
    out += fmt::format("{:<14} {:<7} {:>5} {:<9} {:>10.4g} {:>10.4g} {:>+7.0f} %\n", cell.workload,
                       cell.engine, cell.users, cell.metric, cell.measured, cell.modelled,
                       100 * off(cell));
  }
  return out + errors_text(cells) + "\n";
}

std::string table_json(const simulator::Scenario& scenario,
                       const std::vector<PublishedCell>& cells) {
  std::string json;
  base::JsonWriter w(json);
  w.begin_object().key("scenario").string(scenario.name).key("table").string(scenario.table);
  const Errors errors = errors_of(cells);
  w.key("median_error").number(errors.median).key("largest_error").number(errors.most);
  w.key("cells").begin_array();
  for (const PublishedCell& cell : cells) {
    w.begin_object().key("workload").string(cell.workload).key("engine").string(cell.engine);
    w.key("users").integer(cell.users).key("figure").string(cell.metric);
    w.key("published").number(cell.measured).key("played").number(cell.modelled);
    w.key("off").number(off(cell)).end_object();
  }
  w.end_array().end_object();
  return json + "\n";
}

// Each figure's cells as played over published: on the diagonal where the model is right.
report::Plot figure_plot(const std::vector<PublishedCell>& cells, const std::string& figure) {
  report::Plot plot{.title = figure + ": played over published, a dot a cell",
                    .x_label = "published",
                    .y_label = "played",
                    .series = {}};
  report::PlotSeries dots{.name = "cells", .points = {}, .shape = report::PlotSeries::Shape::kDots};
  report::PlotSeries same{.name = "equal", .points = {}, .colour = 1};
  for (const PublishedCell& cell : cells) {
    if (cell.metric != figure) continue;
    dots.points.push_back({cell.measured, cell.modelled,
                           fmt::format("{}, {}, {} users: {:+.0f} %", cell.workload, cell.engine,
                                       cell.users, 100 * off(cell))});
    same.points.push_back({cell.measured, cell.measured, {}});
  }
  std::ranges::sort(same.points, {}, &report::PlotPoint::x);
  plot.series = {std::move(dots), std::move(same)};
  return plot;
}

std::string table_page(const simulator::Scenario& scenario,
                       const std::vector<PublishedCell>& cells) {
  std::string out = report::page_begin(scenario.title);
  for (const std::string& note : {"Source: " + scenario.source, "Published: " + scenario.published,
                                  "Assumed: " + scenario.assumed, errors_text(cells)}) {
    out += fmt::format("<p class=\"sub\">{}</p>\n", report::html_escape(note));
  }
  std::vector<std::string> figures;
  for (const PublishedCell& cell : cells) {
    if (std::ranges::find(figures, cell.metric) == figures.end()) figures.emplace_back(cell.metric);
  }
  out += "<div class=\"plots\">\n";
  for (const std::string& figure : figures) out += report::plot_figure(figure_plot(cells, figure));
  out +=
      "</div>\n<div class=\"scroll\"><table><thead><tr><th>workload</th><th>engine</th>"
      "<th>users</th><th>figure</th><th>published</th><th>played</th><th>off, %</th></tr></thead>"
      "<tbody>\n";
  for (const PublishedCell& cell : cells) {
    out += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.4g}</td><td>{:.4g}</td>"
        "<td>{:+.0f}</td></tr>\n",
        report::html_escape(cell.workload), report::html_escape(cell.engine), cell.users,
        report::html_escape(cell.metric), cell.measured, cell.modelled, 100 * off(cell));
  }
  return out + "</tbody></table></div>\n</main></body></html>\n";
}

}  // namespace

Result<void> run_table(const cli::Arguments& arguments, const simulator::Scenario& scenario) {
  for (const simulator::TableFactors& factors : simulator::table_factors()) {
    if (factors.instance != scenario.table) continue;
    const std::vector<PublishedCell> cells = simulator::compare_published_table(factors);
    if (arguments.has("--html")) {
      TRY(base::write_file(arguments.text("--html"), table_page(scenario, cells)));
    }
    if (arguments.has("--json")) {
      const std::string json = table_json(scenario, cells);
      if (arguments.text("--json") == "-") return write_output(json);
      TRY(base::write_file(arguments.text("--json"), json));
    }
    return write_text(table_text(cells));
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("no table of '{}' was published", scenario.table), "scenario"};
}

}  // namespace pelton::apps
