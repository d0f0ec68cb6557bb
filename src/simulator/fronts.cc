#include "simulator/fronts.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "report/percentile.h"

namespace pelton::simulator {
namespace {

// Without those that another one beats in both, by rising throughput.
std::vector<FrontPoint> pareto(std::vector<FrontPoint> points) {
  std::ranges::sort(points, std::ranges::greater{}, &FrontPoint::throughput);
  std::vector<FrontPoint> kept;
  for (const FrontPoint& one : points) {
    if (kept.empty() || one.tokens_per_s > kept.back().tokens_per_s) kept.push_back(one);
  }
  std::ranges::reverse(kept);
  return kept;
}

const std::vector<double>* values_of(const report::Summary& summary, report::Metric metric) {
  const auto found = summary.values_ms.find(metric);
  return found == summary.values_ms.end() || found->second.empty() ? nullptr : &found->second;
}

double percentile_s(const report::Summary& summary, report::Metric metric, double percent) {
  const std::vector<double>* const values = values_of(summary, metric);
  return values == nullptr ? 0 : report::percentile(*values, percent) * 1e-3;
}

}  // namespace

FrontPoint front_point(const report::Summary& summary, double value, int gpus) {
  const std::vector<double>* const each = values_of(summary, report::Metric::kTpot);
  double sum_ms = 0;
  for (const double one : each == nullptr ? std::vector<double>{} : *each) sum_ms += one;
  const double mean_s = each == nullptr ? 0 : sum_ms * 1e-3 / static_cast<double>(each->size());
  return {.value = value,
          .tokens_per_s = mean_s > 0 ? 1 / mean_s : 0,
          .throughput = summary.output_tokens_per_s / gpus,
          .ttft_p50_s = percentile_s(summary, report::Metric::kTtft, 50),
          .itl_p99_s = percentile_s(summary, report::Metric::kItl, 99)};
}

std::optional<double> interactivity_at(std::vector<FrontPoint> points, double throughput) {
  const std::vector<FrontPoint> front = pareto(std::move(points));
  for (size_t i = 0; i < front.size(); ++i) {
    if (front[i].throughput < throughput) continue;
    if (i == 0)
      return front[i].throughput == throughput ? std::optional(front[i].tokens_per_s)
                                               : std::nullopt;
    const FrontPoint& before = front[i - 1];
    const double share =
        (throughput - before.throughput) / (front[i].throughput - before.throughput);
    return before.tokens_per_s + share * (front[i].tokens_per_s - before.tokens_per_s);
  }
  return std::nullopt;
}

std::string fronts_text(const std::string& flag, const std::array<PlayedFront, 2>& fronts,
                        double wanted_ratio) {
  std::string text = fmt::format("{:<8} {:>18} {:>14} {:>16} {:>10} {:>10}\n", "", flag,
                                 "tokens/s/user", "tokens/s/GPU", "TTFT p50", "ITL p99");
  for (const PlayedFront& front : fronts) {
    for (const FrontPoint& one : front.points) {
      text += fmt::format("{:<8} {:>18g} {:>14.1f} {:>16.1f} {:>8.2f} s {:>7.1f} ms\n", front.name,
                          one.value, one.tokens_per_s, one.throughput, one.ttft_p50_s,
                          one.itl_p99_s * 1e3);
    }
  }
  double best = 0;
  double best_at = 0;
  std::optional<double> wanted_at;
  std::optional<double> stops_at;
  text += fmt::format("at equal throughput, {} over {}:\n", fronts[1].name, fronts[0].name);
  for (const FrontPoint& one : pareto(fronts[0].points)) {
    const std::optional<double> other = interactivity_at(fronts[1].points, one.throughput);
    if (!other) {
      text +=
          fmt::format("  {} {:g}, {:.1f} tokens/s/GPU: {} was not played there, or brings less\n",
                      flag, one.value, one.throughput, fronts[1].name);
      continue;
    }
    const double ratio = *other / one.tokens_per_s;
    text += fmt::format("  {} {:g}, {:.1f} tokens/s/GPU: {:.2f} x\n", flag, one.value,
                        one.throughput, ratio);
    if (ratio > best) best = ratio, best_at = one.value;
    if (ratio >= wanted_ratio && !wanted_at) wanted_at = one.value;
    if (ratio < 1 && !stops_at) stops_at = one.value;
  }
  text += wanted_at ? fmt::format("{:g} x from {} {:g} on", wanted_ratio, flag, *wanted_at)
                    : fmt::format("nowhere {:g} x", wanted_ratio);
  text += best > 0 ? fmt::format("; most {:.2f} x at {} {:g}", best, flag, best_at) : std::string();
  text += stops_at ? fmt::format("; it stops paying at {} {:g}\n", flag, *stops_at)
                   : std::string("; it pays wherever both were played\n");
  return text;
}

std::string fronts_json(const std::string& scenario, const std::string& flag,
                        const std::array<PlayedFront, 2>& fronts) {
  std::string json;
  base::JsonWriter w(json);
  w.begin_object().key("scenario").string(scenario).key("flag").string(flag);
  w.key("fronts").begin_array();
  for (const PlayedFront& front : fronts) {
    w.begin_object().key("name").string(front.name).key("points").begin_array();
    for (const FrontPoint& one : front.points) {
      w.begin_object().key("value").number(one.value);
      w.key("tokens_per_s_per_user").number(one.tokens_per_s);
      w.key("output_tokens_per_s_per_gpu").number(one.throughput);
      w.key("ttft_p50_s").number(one.ttft_p50_s).key("itl_p99_s").number(one.itl_p99_s);
      w.end_object();
    }
    w.end_array().end_object();
  }
  w.end_array().end_object();
  return json;
}

report::Plot fronts_plot(const std::array<PlayedFront, 2>& fronts) {
  report::Plot plot{.title = "What each user sees against what a GPU brings",
                    .x_label = "output tokens/s of a GPU",
                    .y_label = "tokens/s of a user",
                    .series = {}};
  for (size_t i = 0; i < fronts.size(); ++i) {
    report::PlotSeries series{.name = fronts[i].name, .points = {}, .colour = static_cast<int>(i)};
    for (const FrontPoint& one : pareto(fronts[i].points)) {
      series.points.push_back({one.throughput, one.tokens_per_s, {}});
    }
    plot.series.push_back(std::move(series));
  }
  return plot;
}

}  // namespace pelton::simulator
