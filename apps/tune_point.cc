#include "apps/tune_point.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/json.h"
#include "base/json_writer.h"
#include "report/metric.h"

namespace pelton::apps {
namespace {

// A failed share is an objective that is missed.
constexpr double kNeverKept = 1e6;

double share_failed(const PlayedRun& run) {
  return static_cast<double>(run.failed) / static_cast<double>(std::max<int64_t>(run.requests, 1));
}

bool has_prices(const std::vector<Point>& points) {
  return std::ranges::any_of(points, [](const Point& one) { return one.per_million > 0; });
}

}  // namespace

std::string to_json(const PlayedRun& run) {
  std::string json;
  base::JsonWriter w(json);
  w.begin_object().key("why_not").string(run.why_not).key("requests").integer(run.requests);
  w.key("failed").integer(run.failed).key("failure").string(run.failure);
  w.key("duration_s").number(run.duration_s).key("output_throughput").number(run.tokens_per_s);
  w.key("replicas").number(run.replicas).key("devices").integer(run.devices);
  w.key("dollars_per_hour").number(run.dollars_per_hour).key("p90_ms").begin_object();
  for (const auto& [metric, ms] : run.p90_ms) w.key(metric).number(ms);
  w.end_object().end_object();
  return json;
}

Result<PlayedRun> parse_played_run(std::string_view text) {
  const auto bad = [](std::string_view what) {
    return Error{ErrorCode::kBadConfig, fmt::format("no result of the simulator: {}", what), ""};
  };
  const Result<Json> json = Json::parse(text);
  if (!json.ok() || !json->is_object()) return bad("it is no JSON object");
  PlayedRun run;
  const auto number = [&](std::string_view key, double& into) {
    const std::optional<double> value = json->number(key);
    if (value) into = *value;
    return value.has_value() && *value >= 0;
  };
  double requests = 0;
  double failed = 0;
  double devices = 0;
  const bool is_whole = number("requests", requests) && number("failed", failed) &&
                        number("duration_s", run.duration_s) &&
                        number("output_throughput", run.tokens_per_s) &&
                        number("replicas", run.replicas) && number("devices", devices) &&
                        number("dollars_per_hour", run.dollars_per_hour);
  const Json* const p90 = json->find("p90_ms");
  const std::optional<std::string> why_not = json->string("why_not");
  const std::optional<std::string> failure = json->string("failure");
  const bool is_large = requests > 1e15 || failed > 1e15 || devices > 1e9;
  if (!is_whole || is_large || p90 == nullptr || !p90->is_object() || !why_not || !failure) {
    return bad("a member is missing or no number of its kind");
  }
  run.requests = static_cast<int64_t>(requests);
  run.failed = static_cast<int64_t>(failed);
  run.devices = static_cast<int>(devices);
  run.why_not = *why_not;
  run.failure = *failure;
  for (const Json::Member& one : p90->as_object()) {
    if (!one.value.is_number()) return bad("a percentile is no number");
    run.p90_ms[one.key] = one.value.as_number();
  }
  return run;
}

Point judged(Settings settings, const PlayedRun& run,
             const std::vector<report::Objective>& objectives, BestBy best_by) {
  Point point{.settings = std::move(settings)};
  point.why_not = run.why_not;
  if (!point.why_not.empty()) return point;
  point.duration_s = run.duration_s;
  point.tokens_per_s = run.tokens_per_s;
  point.per_replica = run.tokens_per_s / std::max(run.replicas, 1e-9);
  point.devices = run.devices;
  if (run.dollars_per_hour > 0 && point.per_replica > 0) {
    point.per_million = run.dollars_per_hour / (point.per_replica * 3600) * 1e6;
  }
  const auto p90_of = [&](report::Metric metric) {
    const auto found = run.p90_ms.find(std::string(report::info(metric).key));
    return found == run.p90_ms.end() ? 0 : found->second;
  };
  point.ttft_p90_ms = p90_of(report::Metric::kTtft);
  switch (best_by) {
    case BestBy::kReplica:
      point.value = point.per_replica;
      break;
    case BestBy::kDevice:
      point.value = point.per_replica / std::max(run.devices, 1);
      break;
    case BestBy::kCost:
      point.value = point.per_million > 0 ? 1e6 / point.per_million : 0;
      break;
  }
  point.keeps = run.failed == 0 && run.requests > 0;
  if (run.failed > 0) {
    point.excess = kNeverKept * share_failed(run);
    point.why = fmt::format("{} of {} requests failed{}{}", run.failed, run.requests,
                            run.failure.empty() ? "" : ": ", run.failure);
  }
  for (const report::Objective& one : objectives) {
    const double p90_ms = p90_of(one.metric);
    point.p90_ms.push_back(p90_ms);
    point.keeps = point.keeps && p90_ms <= one.bound_ms;
    point.excess = std::max(point.excess, p90_ms / std::max(one.bound_ms, 1e-9) - 1);
  }
  return point;
}

std::string_view best_by_text(BestBy best_by) {
  switch (best_by) {
    case BestBy::kReplica:
      return "tokens/s of a replica";
    case BestBy::kDevice:
      return "tokens/s of a device";
    case BestBy::kCost:
      return "tokens for a dollar";
  }
  return "";
}

std::string points_table(const std::vector<Point>& points,
                         const std::vector<report::Objective>& objectives) {
  size_t width = 8;
  for (const Point& one : points) width = std::max(width, settings_text(one.settings).size());
  const bool seeded =
      std::ranges::any_of(points, [](const Point& one) { return one.value_seeds.has_bounds; });
  const bool priced = has_prices(points);
  const bool several =
      std::ranges::any_of(points, [](const Point& one) { return one.devices > 1; });
  std::string out =
      fmt::format("{:<{}} {:>10} {:>12}", "settings", width, "tokens/s", "per replica");
  if (several) out += fmt::format(" {:>7}", "devices");
  if (priced) out += fmt::format(" {:>11}", "$ a million");
  for (const report::Objective& one : objectives) {
    out += fmt::format(" {:>12}", fmt::format("{} p90 ms", report::info(one.metric).label));
  }
  if (seeded) out += fmt::format(" {:>28}", "95 % interval of what counts");
  out += "  within\n";
  for (const Point& one : points) {
    out += fmt::format("{:<{}}", settings_text(one.settings), width);
    if (!one.why_not.empty()) {
      out += " " + one.why_not + "\n";
      continue;
    }
    out += fmt::format(" {:>10.1f} {:>12.1f}", one.tokens_per_s, one.per_replica);
    if (several) out += fmt::format(" {:>7}", one.devices);
    if (priced) {
      out += one.per_million > 0 ? fmt::format(" {:>11.3f}", one.per_million)
                                 : fmt::format(" {:>11}", "no price");
    }
    for (const double ms : one.p90_ms) out += fmt::format(" {:>12.1f}", ms);
    if (seeded) {
      const report::Interval& interval = one.value_seeds;
      out += fmt::format(
          " {:>28}",
          interval.has_bounds ? fmt::format("{:.1f} to {:.1f}", interval.low, interval.high) : "-");
    }
    out += one.keeps ? "  yes" : "  no";
    if (one.is_front) out += "  front";
    if (!one.why.empty()) out += "  " + one.why;
    out += "\n";
  }
  return out;
}

std::string points_json(const std::vector<Point>& points,
                        const std::vector<report::Objective>& objectives) {
  std::string json;
  base::JsonWriter w(json);
  w.begin_array();
  for (const Point& one : points) {
    w.begin_object().key("settings").begin_object();
    for (const auto& [flag, value] : one.settings) w.key(flag).string(value);
    w.end_object();
    if (!one.why_not.empty()) {
      w.key("why_not").string(one.why_not).end_object();
      continue;
    }
    w.key("output_throughput").number(one.tokens_per_s);
    w.key("per_replica").number(one.per_replica).key("devices").integer(one.devices);
    if (one.per_million > 0) w.key("dollars_per_million_tokens").number(one.per_million);
    for (size_t i = 0; i < objectives.size(); ++i) {
      w.key(fmt::format("p90_{}_ms", report::info(objectives[i].metric).key)).number(one.p90_ms[i]);
    }
    w.key("value").number(one.value);
    if (one.value_seeds.has_bounds) {
      w.key("value_mean").number(one.value_seeds.mean).key("value_low").number(one.value_seeds.low);
      w.key("value_high").number(one.value_seeds.high);
    }
    if (!one.why.empty()) w.key("why").string(one.why);
    w.key("keeps").boolean(one.keeps).key("front").boolean(one.is_front);
    if (one.measured) {
      const Measured& measured = *one.measured;
      w.key("measured").begin_object().key("output_throughput").number(measured.tokens_per_s);
      w.key("p90_ttft_ms").number(measured.ttft_p90_ms).key("failed").integer(measured.failed);
      w.key("keeps").boolean(measured.keeps);
      w.key("forecast_p90_ttft_ms").number(one.ttft_p90_ms);
      if (measured.again_tokens_per_s > 0) {
        w.key("recalibrated").begin_object();
        w.key("output_throughput").number(measured.again_tokens_per_s);
        w.key("p90_ttft_ms").number(measured.again_ttft_p90_ms).end_object();
      }
      w.end_object();
    }
    w.end_object();
  }
  w.end_array();
  return json + "\n";
}

}  // namespace pelton::apps
