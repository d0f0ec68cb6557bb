#include "report/html_report.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "report/comparison.h"
#include "report/html_page.h"
#include "report/metric.h"
#include "report/plot.h"

namespace pelton::report {
namespace {

constexpr double kPartMin = 0.2;     // of a second: less says nothing of a rate
constexpr size_t kOverlaidMax = 12;  // curves in one plot that eyes can still follow

double number(const Json& json, std::string_view key) {
  return figure_of(json, key).value_or(std::nan(""));
}

const Json* own(const Json& json, std::string_view key) {
  const Json* pelton = json.find("pelton");
  return pelton == nullptr ? nullptr : pelton->find(key);
}

int colour(size_t i) {
  return static_cast<int>(i) % kPageColours;
}

// The curve of a distribution: from the quantiles that our files hold, or through the few
// percentiles of another's file.
std::vector<PlotPoint> cdf_points(const Json& json, std::string_view metric) {
  std::vector<PlotPoint> points;
  const Json* quantiles = own(json, "quantiles_ms");
  const Json* list = quantiles == nullptr ? nullptr : quantiles->find(metric);
  if (list != nullptr && list->is_array()) {
    const Json::Array& values = list->as_array();
    // From the first percent on: a single stray value would stretch the axis.
    for (size_t i = 1; i < values.size(); ++i) {
      const double percent =
          i < 99 ? static_cast<double>(i) : 99 + static_cast<double>(i - 99) / 10;
      if (values[i].is_number()) points.push_back({values[i].as_number(), percent, {}});
    }
    return points;
  }
  for (const auto& [percent, word] : std::vector<std::pair<double, std::string>>{
           {50, "median"}, {90, "p90"}, {95, "p95"}, {99, "p99"}, {99.9, "p99.9"}}) {
    const double value = number(json, fmt::format("{}_{}_ms", word, metric));
    if (std::isfinite(value)) points.push_back({value, percent, {}});
  }
  return points;
}

Plot cdf_plot(const std::vector<NamedResult>& results, Metric metric) {
  const MetricInfo& about = info(metric);
  Plot plot{.title = fmt::format("{}, distribution", about.header),
            .x_label = fmt::format("{}, ms (logarithmic)", about.label),
            .y_label = "% of them at most",
            .x_log = true,
            .series = {}};
  for (size_t i = 0; i < std::min(results.size(), kOverlaidMax); ++i) {
    plot.series.push_back({.name = results.size() > 1 ? results[i].name : "",
                           .points = cdf_points(results[i].json, about.key),
                           .colour = colour(i)});
  }
  return plot;
}

Plot token_timeline(const std::vector<NamedResult>& results) {
  Plot plot{.title = "Timeline: output tokens each second",
            .x_label = "seconds from the start",
            .y_label = "tokens/s",
            .series = {}};
  for (size_t i = 0; i < std::min(results.size(), kOverlaidMax); ++i) {
    PlotSeries series{.name = results.size() > 1 ? results[i].name : "",
                      .points = {},
                      .shape = PlotSeries::Shape::kSteps,
                      .colour = colour(i)};
    const Json* seconds = own(results[i].json, "tokens_by_second");
    if (seconds == nullptr || !seconds->is_array()) continue;
    const Json::Array& values = seconds->as_array();
    // The last second is not a whole one: its tokens count for the part of it that there was.
    const double part =
        results[i].json.number("duration").value_or(0) - static_cast<double>(values.size()) + 1;
    for (size_t s = 0; s < values.size(); ++s) {
      if (!values[s].is_number()) continue;
      const bool last = s + 1 == values.size() && part > 0 && part < 1;
      if (last && part < kPartMin && s > 0) break;
      const double tokens = values[s].as_number() / (last ? part : 1);
      series.points.push_back({static_cast<double>(s), tokens, {}});
      series.points.push_back({static_cast<double>(s) + (last ? part : 1), tokens, {}});
    }
    plot.series.push_back(std::move(series));
  }
  return plot;
}

Plot concurrency_timeline(const std::vector<NamedResult>& results) {
  Plot plot{.title = "Timeline: requests at once",
            .x_label = "seconds from the start",
            .y_label = "running",
            .series = {}};
  for (size_t i = 0; i < std::min(results.size(), kOverlaidMax); ++i) {
    PlotSeries series{.name = results.size() > 1 ? results[i].name : "",
                      .points = {},
                      .shape = PlotSeries::Shape::kSteps,
                      .colour = colour(i)};
    const Json* steps = own(results[i].json, "concurrency");
    if (steps == nullptr || !steps->is_array()) continue;
    for (const Json& step : steps->as_array()) {
      if (!step.is_array() || step.as_array().size() != 2) continue;
      const Json& at = step.as_array()[0];
      const Json& running = step.as_array()[1];
      if (at.is_number() && running.is_number()) {
        series.points.push_back({at.as_number(), running.as_number(), {}});
      }
    }
    plot.series.push_back(std::move(series));
  }
  return plot;
}

// How many ran at once: as limited, or else as seen.
double concurrency_of(const Json& json) {
  const std::optional<double> limit = json.number("max_concurrency");
  return limit ? *limit : number(json, "max_concurrent_requests");
}

std::vector<std::string> groups_of(const std::vector<NamedResult>& results) {
  std::vector<std::string> groups;
  for (const NamedResult& result : results) {
    if (std::find(groups.begin(), groups.end(), result.group) == groups.end()) {
      groups.push_back(result.group);
    }
  }
  return groups;
}

Plot throughput_plot(const std::vector<NamedResult>& results) {
  Plot plot{.title = "Throughput against concurrency",
            .x_label = "requests at once",
            .y_label = "output tokens/s",
            .series = {}};
  const std::vector<std::string> groups = groups_of(results);
  for (size_t g = 0; g < groups.size(); ++g) {
    PlotSeries series{.name = groups[g],
                      .points = {},
                      .shape = PlotSeries::Shape::kLineAndDots,
                      .colour = colour(g)};
    for (const NamedResult& result : results) {
      if (result.group != groups[g]) continue;
      series.points.push_back(
          {concurrency_of(result.json), number(result.json, "output_throughput"), result.name});
    }
    std::sort(series.points.begin(), series.points.end(),
              [](const PlotPoint& a, const PlotPoint& b) { return a.x < b.x; });
    plot.series.push_back(std::move(series));
  }
  return plot;
}

Plot pareto_plot(const std::vector<NamedResult>& results) {
  Plot plot{.title = "Pareto front: a user's speed against the replica's",
            .x_label = "tokens/s a user (1000 / median TPOT)",
            .y_label = "output tokens/s a replica",
            .series = {}};
  std::vector<std::pair<double, double>> points;
  const std::vector<std::string> groups = groups_of(results);
  for (size_t g = 0; g < groups.size(); ++g) {
    PlotSeries series{
        .name = groups[g], .points = {}, .shape = PlotSeries::Shape::kDots, .colour = colour(g)};
    for (const NamedResult& result : results) {
      if (result.group != groups[g]) continue;
      const double x = number(result.json, "tokens_per_s_per_user");
      const double y = number(result.json, "output_throughput");
      if (!std::isfinite(x) || !std::isfinite(y)) continue;
      series.points.push_back(
          {x, y,
           fmt::format("{}: {} a user, {} in all", result.name, short_number(x), short_number(y))});
      points.emplace_back(x, y);
    }
    plot.series.push_back(std::move(series));
  }
  PlotSeries front{.name = "front", .points = {}, .colour = kPageColours - 1};
  for (const size_t i : pareto_front(points)) {
    front.points.push_back({points[i].first, points[i].second, {}});
  }
  if (front.points.size() > 1) plot.series.push_back(std::move(front));
  return plot;
}

void add_card(std::string& out, const Json& json, std::string_view key, std::string_view unit) {
  const double value = number(json, key);
  if (!std::isfinite(value)) return;
  out += fmt::format("<div class=\"card\"><b>{}</b><span>{}</span></div>", short_number(value),
                     html_escape(unit));
}

void add_cards(std::string& out, const Json& json) {
  out += "<div class=\"cards\">";
  add_card(out, json, "completed", "requests answered");
  add_card(out, json, "failed", "failed");
  add_card(out, json, "request_throughput", "requests/s");
  add_card(out, json, "request_goodput", "requests/s within the objectives");
  add_card(out, json, "output_throughput", "output tokens/s");
  add_card(out, json, "total_token_throughput", "tokens/s in and out");
  add_card(out, json, "tokens_per_s_per_user", "tokens/s a user");
  add_card(out, json, "median_ttft_ms", "ms to the first token, median");
  add_card(out, json, "p99_ttft_ms", "ms to the first token, P99");
  add_card(out, json, "median_tpot_ms", "ms a token, median");
  add_card(out, json, "p99_itl_ms", "ms between tokens, P99");
  add_card(out, json, "max_concurrent_requests", "at once, at most");
  out += "</div>\n";
}

void add_warnings(std::string& out, const NamedResult& result) {
  const Json* generator = own(result.json, "generator");
  const std::string limit = generator == nullptr ? "" : generator->string("limit").value_or("");
  if (!limit.empty()) {
    out +=
        fmt::format("<p class=\"warn\">{}: {}</p>", html_escape(result.name), html_escape(limit));
  }
  const Json* reported = own(result.json, "tokens_told");
  if (reported != nullptr && reported->is_bool() && !reported->as_bool()) {
    out += fmt::format(
        "<p class=\"warn\">{}: times between tokens are times between pieces of text, because the "
        "server did not report how many tokens each brought.</p>",
        html_escape(result.name));
  }
  if (result.json.number("failed").value_or(0) > 0) {
    out += fmt::format("<p class=\"warn\">{}: {:.0f} requests failed.</p>",
                       html_escape(result.name), result.json.number("failed").value_or(0));
  }
}

std::string_view judged(const Figure& figure, double first, double value) {
  if (first == 0 || std::abs(value - first) < figure.tells_from) return "";
  const double share = (value - first) / std::abs(first);
  if (std::abs(share) < 0.05) return "";
  return (share > 0) == figure.less_is_better ? " class=\"worse\"" : " class=\"better\"";
}

void add_table(std::string& out, const std::vector<NamedResult>& results) {
  out += "<div class=\"scroll\"><table><thead><tr><th></th>";
  for (const NamedResult& result : results) out += "<th>" + html_escape(result.name) + "</th>";
  out += "</tr></thead><tbody>";
  std::vector<bool> same_load;
  for (const NamedResult& result : results) {
    same_load.push_back(load_differences(results.front().json, result.json).empty());
  }
  for (const Figure& figure : kFigures) {
    std::string row = fmt::format("<tr><td>{}</td>", figure.name);
    bool any = false;
    const double first = number(results.front().json, figure.key);
    for (size_t i = 0; i < results.size(); ++i) {
      const double value = number(results[i].json, figure.key);
      any = any || std::isfinite(value);
      const std::string_view verdict = same_load[i] ? judged(figure, first, value) : "";
      row += std::isfinite(value) ? fmt::format("<td{}>{:.2f}</td>", verdict, value) : "<td>-</td>";
    }
    if (any) out += row + "</tr>";
  }
  out += "</tbody></table></div>\n";
}

void add_definitions(std::string& out) {
  out += "<h2>What the words mean</h2><dl>";
  for (const MetricInfo& metric : all_metrics()) {
    out += fmt::format("<dt>{} ({})</dt><dd>{}</dd>", html_escape(metric.label),
                       html_escape(metric.header), html_escape(metric.definition));
  }
  out +=
      "<dt>tokens/s a user</dt><dd>1000 divided by the median TPOT in ms: how fast one answer "
      "comes.</dd><dt>Requests at once</dt><dd>A sweep over beginnings and ends; a request that "
      "begins when another ends does not overlap it.</dd><dt>Throughput</dt><dd>Of completed "
      "requests, over the whole run from the first moment to the last byte.</dd></dl>";
}

// "requests at once: 8; rate inf/s; random prompts": what the run was.
std::string described(const Json& json) {
  std::string out = json.string("model_id").value_or("");
  const auto add = [&](const std::string& text) { out += (out.empty() ? "" : "; ") + text; };
  if (const Json* url = own(json, "base_url"); url != nullptr && url->is_string()) {
    add(url->as_string() + own(json, "endpoint")->as_string());
  }
  if (const auto kind = json.string("dataset_name")) add(*kind + " prompts");
  if (const auto rate = json.number("request_rate")) add(fmt::format("{:g} requests/s", *rate));
  if (const auto most = json.number("max_concurrency"))
    add(fmt::format("at most {:g} at once", *most));
  if (const auto date = json.string("date")) add(*date);
  return out;
}

}  // namespace

std::vector<size_t> pareto_front(const std::vector<std::pair<double, double>>& points) {
  std::vector<size_t> order(points.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  // From the fastest for a user on: each that gives more in all than those before.
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return points[a].first != points[b].first ? points[a].first > points[b].first
                                              : points[a].second > points[b].second;
  });
  std::vector<size_t> front;
  for (const size_t i : order) {
    if (front.empty() || points[i].second > points[front.back()].second) front.push_back(i);
  }
  std::reverse(front.begin(), front.end());
  return front;
}

NamedResult named_result(Json json, const std::string& fallback) {
  NamedResult result;
  const std::string model = json.string("model_id").value_or(fallback);
  const std::string label = json.string("label").value_or("");
  result.group = label.empty() ? model : label;
  result.name = result.group;
  if (const auto most = json.number("max_concurrency")) result.name += fmt::format(" x{:g}", *most);
  if (const auto rate = json.number("request_rate")) result.name += fmt::format(" {:g}/s", *rate);
  result.json = std::move(json);
  return result;
}

std::string html_report(const std::string& title, const std::vector<NamedResult>& results) {
  std::string out = page_begin(title);
  if (results.size() == 1) {
    out += fmt::format("<p class=\"sub\">{}</p>", html_escape(described(results.front().json)));
    add_cards(out, results.front().json);
  }
  for (const NamedResult& result : results) add_warnings(out, result);
  out += "<h2>Plots</h2><div class=\"plots\">\n";
  if (results.size() > 1) {
    out += plot_figure(throughput_plot(results));
    out += plot_figure(pareto_plot(results));
  }
  for (const Metric metric : {Metric::kTtft, Metric::kItl, Metric::kTpot, Metric::kE2el}) {
    out += plot_figure(cdf_plot(results, metric));
  }
  out += plot_figure(token_timeline(results));
  out += plot_figure(concurrency_timeline(results));
  out += "</div>\n<h2>Figures</h2>\n";
  if (!results.empty()) add_table(out, results);
  if (results.size() > 1) {
    out +=
        "<p class=\"sub\">Coloured: at least 5 % worse or better than the first, under the same "
        "load; under another one, figures only differ.</p>";
    for (const NamedResult& result : results) {
      out += fmt::format("<p class=\"sub\"><b>{}</b>: {}</p>", html_escape(result.name),
                         html_escape(described(result.json)));
    }
  }
  add_definitions(out);
  return out + "\n</main></body></html>\n";
}

}  // namespace pelton::report
