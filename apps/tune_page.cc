#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "apps/tune_point.h"
#include "report/html_page.h"
#include "report/metric.h"
#include "report/plot.h"

namespace pelton::apps {
namespace {

using report::html_escape;
using report::PlotSeries;

bool is_better_in_all(const Point& one, const Point& other) {
  bool is_better = one.value > other.value;
  if (one.value < other.value) return false;
  for (size_t i = 0; i < one.p90_ms.size(); ++i) {
    if (one.p90_ms[i] > other.p90_ms[i]) return false;
    is_better = is_better || one.p90_ms[i] < other.p90_ms[i];
  }
  return is_better;
}

std::string metric_name(const report::Objective& objective) {
  return fmt::format("{} p90, ms", report::info(objective.metric).label);
}

report::Plot front_plot(const std::vector<Point>& points, const report::Objective& objective,
                        size_t place, BestBy best_by) {
  std::string title(best_by_text(best_by));
  title.front() = 'T';
  report::Plot plot{.title = fmt::format("{} over {}", title, metric_name(objective)),
                    .x_label = metric_name(objective),
                    .y_label = std::string(best_by_text(best_by)),
                    .x_log = true,
                    .series = {}};
  PlotSeries front{.name = "front", .points = {}, .shape = PlotSeries::Shape::kLineAndDots};
  PlotSeries within{.name = "within the objectives",
                    .points = {},
                    .shape = PlotSeries::Shape::kDots,
                    .colour = 2};
  PlotSeries beyond{
      .name = "beyond them", .points = {}, .shape = PlotSeries::Shape::kDots, .colour = 1};
  for (const Point& one : points) {
    if (!one.why_not.empty()) continue;
    PlotSeries& series = one.is_front ? front : one.keeps ? within : beyond;
    series.points.push_back({one.p90_ms[place], one.value, settings_text(one.settings)});
  }
  std::ranges::stable_sort(front.points, {}, &report::PlotPoint::x);
  for (PlotSeries* const series : {&front, &within, &beyond}) {
    if (!series->points.empty()) plot.series.push_back(std::move(*series));
  }
  return plot;
}

std::string row(const Point& one) {
  if (!one.why_not.empty()) {
    return fmt::format("<tr><td>{}</td><td colspan=\"6\">{}</td></tr>\n",
                       html_escape(settings_text(one.settings)), html_escape(one.why_not));
  }
  std::string interval = "-";
  const std::string price = one.per_million > 0 ? fmt::format("{:.3f}", one.per_million) : "-";
  if (one.value_seeds.has_bounds) {
    interval = fmt::format("{:.1f} to {:.1f}", one.value_seeds.low, one.value_seeds.high);
  }
  std::string out = fmt::format(
      "<tr><td>{}</td><td>{:.1f}</td><td>{:.1f}</td><td>{}</td><td>{}</td>",
      html_escape(settings_text(one.settings)), one.tokens_per_s, one.value, interval, price);
  for (const double ms : one.p90_ms) out += fmt::format("<td>{:.1f}</td>", ms);
  return out + fmt::format("<td>{}{}</td></tr>\n", one.keeps ? "yes" : "no",
                           one.is_front ? ", front" : "");
}

}  // namespace

void mark_front(std::vector<Point>& points) {
  for (Point& one : points) {
    one.is_front = one.why_not.empty() && std::ranges::none_of(points, [&](const Point& other) {
                     return other.why_not.empty() && is_better_in_all(other, one);
                   });
  }
}

std::string tune_page(const std::string& title, const std::vector<std::string>& notes,
                      const std::vector<Point>& points,
                      const std::vector<report::Objective>& objectives, BestBy best_by) {
  std::string out = report::page_begin(title);
  for (const std::string& note : notes) {
    out += fmt::format("<p class=\"sub\">{}</p>\n", html_escape(note));
  }
  out += objectives.size() == 1 ? "<div class=\"plots\" style=\"max-width:40rem\">\n"
                                : "<div class=\"plots\">\n";
  for (size_t i = 0; i < objectives.size(); ++i) {
    out += report::plot_figure(front_plot(points, objectives[i], i, best_by));
  }
  out += fmt::format(
      "</div>\n<div class=\"scroll\"><table><thead><tr><th>settings</th><th>tokens/s</th>"
      "<th>{}</th><th>95 % interval of it</th><th>dollars a million tokens</th>",
      best_by_text(best_by));
  for (const report::Objective& one : objectives) {
    out += fmt::format("<th>{}</th>", html_escape(metric_name(one)));
  }
  out += "<th>within</th></tr></thead><tbody>\n";
  for (const Point& one : points) out += row(one);
  return out + "</tbody></table></div>\n</main></body></html>\n";
}

}  // namespace pelton::apps
