#include "simulator/fleet_page.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "report/html_page.h"

namespace pelton::simulator {
namespace {

using report::html_escape;
using report::Plot;
using report::PlotSeries;

constexpr size_t kFleetsInAPlot = 4;
constexpr size_t kStepsShown = 200;
constexpr size_t kPointsMax = 2000;  // of a curve

double end_of(const FleetTimeline& timeline) {
  return timeline.part_s * static_cast<double>(timeline.requests.size());
}

PlotSeries parts_series(const FleetTimeline& timeline, const std::vector<double>& counts,
                        double unit, std::string name, size_t colour) {
  PlotSeries series{.name = std::move(name),
                    .points = {},
                    .shape = PlotSeries::Shape::kSteps,
                    .colour = static_cast<int>(colour) % report::kPageColours};
  for (size_t i = 0; i < counts.size(); ++i) {
    const double from_s = static_cast<double>(i) * timeline.part_s;
    series.points.push_back({from_s, counts[i] / unit, {}});
    series.points.push_back({from_s + timeline.part_s, counts[i] / unit, {}});
  }
  return series;
}

// From the beginning to the end of the axis. Of neighbours with one value only the first counts; of
// very many only some are drawn.
PlotSeries samples_series(const FleetTimeline& timeline,
                          const std::function<double(const ScalingSample&)>& value,
                          std::string name, size_t colour) {
  PlotSeries series{.name = std::move(name),
                    .points = {},
                    .shape = PlotSeries::Shape::kSteps,
                    .colour = static_cast<int>(colour) % report::kPageColours};
  const double end_s = end_of(timeline);
  const size_t stride = timeline.samples.size() / kPointsMax + 1;
  for (size_t i = 0; i < timeline.samples.size(); i += stride) {
    const ScalingSample& sample = timeline.samples[i];
    if (sample.at_s > end_s) break;
    const double y = value(sample);
    if (!series.points.empty() && series.points.back().y == y) continue;
    series.points.push_back({sample.at_s, y, {}});
  }
  if (!series.points.empty()) series.points.push_back({end_s, series.points.back().y, {}});
  return series;
}

std::string named(const std::string& what, const PlayedFleet& fleet, size_t count) {
  return count > 1 ? fmt::format("{}: {}", fleet.name, what) : what;
}

// Long times in hours or days.
void set_unit(std::vector<Plot>& plots, std::span<const PlayedFleet> fleets) {
  constexpr double kHour_s = 3600;
  constexpr double kDay_s = 86'400;
  double end_s = 0;
  for (const PlayedFleet& one : fleets) end_s = std::max(end_s, end_of(one.timeline));
  if (end_s < 3 * kHour_s) return;
  const double unit_s = end_s < 3 * kDay_s ? kHour_s : kDay_s;
  for (Plot& plot : plots) {
    plot.x_label = unit_s == kDay_s ? "days from the start" : "hours from the start";
    for (PlotSeries& series : plot.series) {
      for (report::PlotPoint& point : series.points) point.x /= unit_s;
    }
  }
}

// Of a replica for an hour; 0: not known.
double price_of(const FleetFigures& figures) {
  return figures.cost && figures.replica_hours > 0 ? *figures.cost / figures.replica_hours : 0;
}

std::vector<Plot> time_plots(std::span<const PlayedFleet> fleets) {
  const std::string axis = "seconds from the start";
  Plot load{.title = "Load", .x_label = axis, .y_label = "requests/s", .series = {}};
  Plot replicas{.title = "Replicas: ready, and with those that start and drain",
                .x_label = axis,
                .y_label = "replicas",
                .series = {}};
  Plot held{.title = "Requests held in the gateway",
            .x_label = axis,
            .y_label = "requests",
            .series = {}};
  Plot late{.title = "Late, lost and left, by when they were due",
            .x_label = axis,
            .y_label = "requests/s",
            .series = {}};
  Plot hours{.title = "Replica-hours so far", .x_label = axis, .y_label = "hours", .series = {}};
  Plot money{.title = "Money so far", .x_label = axis, .y_label = "dollars", .series = {}};
  const size_t count = std::min(fleets.size(), kFleetsInAPlot);
  for (size_t i = 0; i < count; ++i) {
    const FleetTimeline& timeline = fleets[i].timeline;
    load.series.push_back(parts_series(timeline, timeline.requests, timeline.part_s,
                                       named("due", fleets[i], count), i));
    if (fleets[i].figures.knows_requests) {
      late.series.push_back(parts_series(timeline, timeline.late, timeline.part_s,
                                         named("late", fleets[i], count), i));
    }
    replicas.series.push_back(samples_series(
        timeline, [](const ScalingSample& one) { return one.ready; },
        named("ready", fleets[i], count), 2 * i));
    replicas.series.push_back(samples_series(
        timeline, [](const ScalingSample& one) { return one.present(); },
        named("ordered", fleets[i], count), 2 * i + 1));
    held.series.push_back(samples_series(
        timeline, [](const ScalingSample& one) { return one.held; },
        named("held", fleets[i], count), i));
    double sum_s = 0;
    double since_s = 0;
    int present = 0;
    PlotSeries spent = samples_series(
        timeline,
        [&](const ScalingSample& one) {
          sum_s += present * (one.at_s - since_s);
          since_s = one.at_s;
          present = one.present();
          return sum_s / 3600;
        },
        named("hours", fleets[i], count), i);
    spent.shape = PlotSeries::Shape::kLine;
    if (!spent.points.empty()) {
      spent.points.back().y = (sum_s + present * (end_of(timeline) - since_s)) / 3600;
    }
    if (const double price = price_of(fleets[i].figures); price > 0) {
      PlotSeries paid = spent;
      paid.name = named("paid", fleets[i], count);
      for (report::PlotPoint& point : paid.points) point.y *= price;
      money.series.push_back(std::move(paid));
    }
    hours.series.push_back(std::move(spent));
  }
  std::vector<Plot> plots = {load, replicas, late, held, hours};
  if (!money.series.empty()) plots.push_back(std::move(money));
  set_unit(plots, fleets);
  return plots;
}

std::string number_cell(const std::optional<double>& value) {
  return value ? report::short_number(*value) : "-";
}

std::string table(const std::string& first, std::span<const PlayedFleet> fleets) {
  std::string out = fmt::format(
      "<div class=\"scroll\"><table><thead><tr><th>{}</th><th>requests</th><th>late</th>"
      "<th>lost</th><th>left</th><th>TTFT p50, s</th><th>p90</th><th>p99</th>"
      "<th>output tokens/s</th><th>replica-hours</th><th>most</th><th>started</th>"
      "<th>starts failed</th><th>changes of direction</th><th>held, s (mean)</th><th>cost</th>"
      "<th>hours used</th><th>hours needed</th>"
      "</tr></thead><tbody>\n",
      html_escape(first));
  for (const PlayedFleet& fleet : fleets) {
    const FleetFigures& one = fleet.figures;
    const auto known = [&](auto value) {
      return one.knows_requests ? report::short_number(static_cast<double>(value)) : "-";
    };
    const auto count = [&](int64_t value) {
      return one.knows_requests ? std::to_string(value) : std::string("-");
    };
    out += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>"
        "<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>"
        "<td>{}</td><td>{}</td><td>{}</td></tr>\n",
        html_escape(fleet.name), one.requests, count(one.late), count(one.lost), count(one.left),
        number_cell(one.ttft_p50_s), number_cell(one.ttft_p90_s), number_cell(one.ttft_p99_s),
        known(one.output_tokens_per_s), report::short_number(one.replica_hours), one.most,
        one.started, count(one.failed_starts), one.direction_changes, number_cell(one.held_mean_s),
        number_cell(one.cost), known(one.used_hours), known(one.needed_hours));
  }
  return out + "</tbody></table></div>\n";
}

std::string steps(const PlayedFleet& fleet) {
  if (fleet.steps.empty()) return "";
  std::string out = fmt::format(
      "<h2>Scaling steps: {}</h2>\n<div class=\"scroll\"><table><thead><tr><th>second</th>"
      "<th>why</th></tr></thead><tbody>\n",
      html_escape(fleet.name));
  const size_t shown = std::min(fleet.steps.size(), kStepsShown);
  for (size_t i = 0; i < shown; ++i) {
    out += fmt::format("<tr><td>{:.1f}</td><td class=\"text\">{}{}</td></tr>\n",
                       fleet.steps[i].at_s, html_escape(fleet.steps[i].text),
                       fleet.steps[i].not_started > 0 ? "; nothing could be ordered" : "");
  }
  out += "</tbody></table></div>\n";
  const int64_t rest = fleet.steps_count - static_cast<int64_t>(shown);
  if (rest > 0) out += fmt::format("<p class=\"sub\">and {} more</p>\n", rest);
  return out;
}

// What kept those that waited longest.
std::string slow_table(const PlayedFleet& fleet) {
  if (fleet.slow.empty()) return "";
  std::string out = fmt::format(
      "<h2>The {} slowest first tokens</h2>\n<div class=\"scroll\"><table><thead><tr>"
      "<th>request</th><th>due, s</th><th>first token, s</th><th>until sent, s</th>"
      "<th>answer, s</th><th>prompt</th><th>cached</th><th>output</th><th>replica</th>"
      "<th>what for</th></tr></thead><tbody>\n",
      fleet.slow.size());
  for (const SlowRequest& one : fleet.slow) {
    out += fmt::format(
        "<tr><td>{}</td><td>{:.1f}</td><td>{:.3g}</td><td>{:.3g}</td><td>{:.3g}</td><td>{}</td>"
        "<td>{}</td><td>{}</td><td>{}</td><td class=\"text\">{}</td></tr>\n",
        one.number, one.due_s, one.first_s, one.sent_s, one.further_s, one.input, one.cached,
        one.output, one.replica < 0 ? "-" : std::to_string(one.replica), html_escape(one.why));
  }
  return out + "</tbody></table></div>\n";
}

// Of several lines: as they stand, since their columns are even.
std::string note_html(const std::string& note) {
  if (note.find('\n') == std::string::npos) {
    return fmt::format("<p class=\"sub\">{}</p>\n", html_escape(note));
  }
  std::string out = "<div class=\"scroll\"><pre>";
  for (size_t at = 0; at < note.size();) {
    const size_t end = std::min(note.find('\n', at), note.size());
    out += html_escape(std::string_view(note).substr(at, end - at)) + "\n";
    at = end + 1;
  }
  return out + "</pre></div>\n";
}

}  // namespace

std::string fleet_page(const FleetPage& page, std::span<const PlayedFleet> fleets) {
  std::string out = report::page_begin(page.title);
  for (const std::string& note : page.notes) {
    out += note_html(note);
  }
  if (!fleets.empty()) out += table(page.first, fleets);
  if (!page.plots.empty()) {
    // One alone would be as wide as the page.
    out += page.plots.size() == 1 ? "<div class=\"plots\" style=\"max-width:40rem\">\n"
                                  : "<div class=\"plots\">\n";
    for (const Plot& plot : page.plots) out += report::plot_figure(plot);
    out += "</div>\n";
  }
  if (fleets.empty()) return out + "</main></body></html>\n";
  out += "<h2>Over time</h2>\n<div class=\"plots\">\n";
  for (const Plot& plot : time_plots(fleets)) out += report::plot_figure(plot);
  out += "</div>\n";
  if (fleets.size() > kFleetsInAPlot) {
    out += fmt::format("<p class=\"sub\">Over time: the first {} of {}.</p>\n", kFleetsInAPlot,
                       fleets.size());
  }
  for (const PlayedFleet& fleet : fleets.subspan(0, std::min(fleets.size(), kFleetsInAPlot))) {
    out += steps(fleet);
  }
  if (fleets.size() == 1) out += slow_table(fleets.front());
  return out + "</main></body></html>\n";
}

std::vector<Plot> sweep_plots(const std::string& what, std::span<const double> values,
                              std::span<const PlayedFleet> fleets) {
  const auto curve = [&](std::string title, std::string unit,
                         const std::function<std::optional<double>(const FleetFigures&)>& value) {
    Plot plot{.title = std::move(title), .x_label = what, .y_label = std::move(unit), .series = {}};
    PlotSeries& series = plot.series.emplace_back();
    series.shape = PlotSeries::Shape::kLineAndDots;
    for (size_t i = 0; i < std::min(values.size(), fleets.size()); ++i) {
      const std::optional<double> y = value(fleets[i].figures);
      if (y) series.points.push_back({values[i], *y, {}});
    }
    return plot;
  };
  std::vector<Plot> plots = {
      curve("99th percentile of the time to the first token", "seconds",
            [](const FleetFigures& one) { return one.ttft_p99_s; }),
      curve("Late, lost and left", "% of the requests",
            [](const FleetFigures& one) {
              return std::optional(100 * static_cast<double>(one.late + one.lost + one.left) /
                                   static_cast<double>(std::max<int64_t>(one.requests, 1)));
            }),
      curve("Replica-hours", "hours",
            [](const FleetFigures& one) { return std::optional(one.replica_hours); })};
  if (std::ranges::any_of(fleets, [](const auto& one) { return one.figures.cost.has_value(); })) {
    plots.push_back(curve("Money", "dollars", [](const FleetFigures& one) { return one.cost; }));
  }
  return plots;
}

}  // namespace pelton::simulator
