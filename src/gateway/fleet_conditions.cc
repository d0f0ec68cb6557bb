#include "gateway/fleet_conditions.h"

#include <algorithm>

namespace pelton::gateway {
namespace {

struct Rule {
  std::string_view name;
  std::string_view expr;
  std::string_view severity;
  double for_s = 0;
};

// As deploy/metrics.toml has them, of what a gateway knows of itself.
constexpr std::array kRules = {
    Rule{"PeltonErrorBudgetFast",
         "pelton:bad_share:rate1h > 14.4 * 0.001 and pelton:bad_share:rate5m > 14.4 * 0.001",
         "page", 120},
    Rule{"PeltonErrorBudgetSlow",
         "pelton:bad_share:rate6h > 6 * 0.001 and pelton:bad_share:rate30m > 6 * 0.001", "ticket",
         900},
    Rule{"PeltonNoWorker",
         R"(sum by (instance) (pelton_gateway_workers{state=~"ready|suspect|unverified"}) == 0)"
         " and on (instance) increase(pelton_gateway_unserved_total[2m]) > 0",
         "page", 60},
    Rule{"PeltonWorkersDown", R"(pelton_gateway_workers{state="down"} > 0)", "ticket", 300},
    Rule{"PeltonStreamsInterrupted", "increase(pelton_gateway_streams_interrupted_total[10m]) > 0",
         "ticket", 0},
    // Five minutes of five: together ten.
    Rule{"PeltonHeldLong",
         "pelton_gateway_held_requests > 0 and on (instance, pool) "
         "min_over_time(pelton_gateway_held_requests[5m]) > 0",
         "page", 300},
    Rule{"PeltonStartsFail", "increase(pelton_autoscaler_failed_starts_total[10m]) >= 3", "page",
         0},
    Rule{"PeltonReplicasMissing",
         "pelton_autoscaler_desired_replicas > pelton_autoscaler_ready_replicas", "ticket", 900},
    Rule{"PeltonReplicasLost", "increase(pelton_autoscaler_lost_replicas_total[15m]) >= 2",
         "ticket", 0},
    Rule{"PeltonAutoscalerBlind", "pelton_autoscaler_alarm == 1", "ticket", 120},
};

// Those that need what is not in a sample: a server's own figures, of splits, or weeks of them.
struct Elsewhere {
  std::string_view name;
  std::string_view expr;
  std::string_view severity;
  double for_s = 0;
  std::string_view where;  // "server": its metrics; "prometheus"
};
constexpr std::array kElsewhere = {
    Elsewhere{"PeltonNotReady", "pelton_ready == 0", "page", 600, "server"},
    Elsewhere{"PeltonQueueLong", "pelton_queue_wait_seconds > 30", "ticket", 300, "server"},
    Elsewhere{"PeltonKvCacheFull",
              R"(vllm:kv_cache_usage_perc{pool=""} > 0.95 and on (instance, model_name) )"
              R"(increase(vllm:num_preemptions_total{pool=""}[10m]) > 0)",
              "ticket", 600, "server"},
    Elsewhere{"PeltonSplitRecomputed",
              "sum by (instance) (rate(pelton_gateway_split_recomputed_tokens_total[15m])) / "
              "(sum by (instance) (rate(pelton_gateway_split_recomputed_tokens_total[15m])) + "
              "sum by (instance) (rate(pelton_gateway_split_found_tokens_total[15m])) > 0) > 0.05",
              "ticket", 900, "prometheus"},
    Elsewhere{"PeltonKvDiskOff", "increase(pelton_kv_disk_off_total[15m]) > 0", "ticket", 0,
              "server"},
    Elsewhere{"PeltonStepsFail", "increase(pelton_engine_steps_failed_total[5m]) > 0", "page", 0,
              "server"},
    Elsewhere{"PeltonNumericalErrors", "increase(pelton_numerical_errors_total[10m]) > 0", "page",
              0, "server"},
    Elsewhere{"PeltonFilesNearLimit", "process_open_fds / process_max_fds > 0.9", "ticket", 300,
              "server"},
    Elsewhere{"PeltonCertificateEnds",
              "pelton_tls_certificate_expiry_timestamp_seconds - time() < 14 * 86400", "ticket",
              3600, "server"},
    Elsewhere{"PeltonTokenLatencyDrift",
              "pelton:pool_request_seconds:rate1h / (pelton:pool_tokens:rate1h > 1) / "
              "(avg_over_time(pelton:pool_request_seconds:rate1h[1w:1h] offset 1h) / "
              "avg_over_time(pelton:pool_tokens:rate1h[1w:1h] offset 1h)) > 1.5 and on (pool) "
              "pelton:pool_tokens:rate1h offset 1d > 0",
              "ticket", 1800, "prometheus"},
    Elsewhere{"PeltonTokenCostDrift",
              "avg_over_time(pelton:replicas_paid:mean1h[1d:1h]) / "
              "(avg_over_time(pelton:pool_tokens:rate1h[1d:1h]) > 1) / "
              "(avg_over_time(pelton:replicas_paid:mean1h[6d:1h] offset 1d) / "
              "avg_over_time(pelton:pool_tokens:rate1h[6d:1h] offset 1d)) > 1.5",
              "ticket", 3600, "prometheus"},
};

constexpr double kFastBurn = 14.4;
constexpr double kSlowBurn = 6;
constexpr double kHour_s = 3600;
constexpr std::array kBudgets_s = {900.0, kHour_s, 6 * kHour_s, 72 * kHour_s};
constexpr int64_t kSecond_ns = 1'000'000'000;
constexpr double kHeld_s = 300;  // that min_over_time() looks at, before the rule's own time
constexpr double kFailedStarts = 3;
constexpr double kLost = 2;

const Rule& rule_of(std::string_view name) {
  return *std::ranges::find(kRules, name, &Rule::name);
}

double seconds(int64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

double time_until_firing(const Rule& rule) {
  return rule.name == "PeltonHeldLong" ? rule.for_s + kHeld_s : rule.for_s;
}

}  // namespace

// Of each as many as its reach has steps, and some more for steps that come late.
FleetConditions::FleetConditions(int64_t now_ns)
    : rings_{Ring(910, 0), Ring(370, 60 * kSecond_ns), Ring(300, 900 * kSecond_ns)} {
  newest_.now_ns = now_ns;
  for (Ring& ring : rings_) ring.add(newest_);
}

void FleetConditions::Ring::add(const Sample& sample) {
  if (noted_ > 0 && sample.now_ns - at(noted_ - 1).now_ns < step_ns_) return;
  samples_[noted_++ % samples_.size()] = sample;
}

void FleetConditions::note(const Counts& counts, int64_t now_ns) {
  std::lock_guard lock(mutex_);
  Sample sample{.now_ns = now_ns,
                .requests = counts.requests,
                .interrupted = counts.interrupted,
                .unserved = counts.unserved};
  for (const Pool& pool : counts.pools) {
    const size_t place = place_of(pool.name);
    if (place >= kPoolsMax) continue;
    sample.failed_starts[place] = pool.failed_starts;
    sample.lost[place] = pool.lost;
  }
  newest_ = sample;
  for (Ring& ring : rings_) ring.add(sample);
  now_ = counts;
  std::map<std::pair<std::string, std::string>, int64_t> since;
  for (const Found& one : look()) {
    if (!one.is_true) continue;
    const std::pair key(std::string(one.name), one.pool);
    const auto known = since_ns_.find(key);
    since[key] = known == since_ns_.end() ? now_ns : known->second;
  }
  since_ns_ = std::move(since);
}

// A pool that comes later has risen by all that it counts then: nothing was before.
size_t FleetConditions::place_of(const std::string& pool) {
  const auto known = std::ranges::find(places_, pool);
  if (known != places_.end()) return static_cast<size_t>(known - places_.begin());
  if (places_.size() >= kPoolsMax) return kPoolsMax;
  places_.push_back(pool);
  return places_.size() - 1;
}

double FleetConditions::history_s() const {
  return seconds(newest_.now_ns - rings_.back().oldest().now_ns);
}

const FleetConditions::Sample& FleetConditions::Ring::first_since(int64_t from_ns) const {
  // They rise with their numbers.
  size_t low = noted_ - std::min(noted_, samples_.size());
  size_t high = noted_ - 1;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (at(middle).now_ns >= from_ns) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return at(low);
}

// By the finest samples that go back so far.
const FleetConditions::Sample& FleetConditions::before(double window_s) const {
  const int64_t from_ns = newest_.now_ns - static_cast<int64_t>(window_s * 1e9);
  for (const Ring& ring : rings_) {
    if (ring.oldest().now_ns <= from_ns) return ring.first_since(from_ns);
  }
  return rings_.back().first_since(from_ns);
}

// 0 where no request has ended.
double FleetConditions::bad_share(double window_s) const {
  const Sample& then = before(window_s);
  const Sample& now = newest_;
  const int64_t requests = now.requests - then.requests;
  if (requests <= 0) return 0;
  const int64_t bad = now.unserved - then.unserved + now.interrupted - then.interrupted;
  return static_cast<double>(bad) / static_cast<double>(requests);
}

std::vector<FleetConditions::Found> FleetConditions::look() const {
  const Sample& now = newest_;
  const auto burns = [&](std::string_view name, double burn, double long_s, double short_s) {
    // The long window says how bad it is, the short one that it still goes on.
    const double share = bad_share(long_s);
    return Found{.name = name,
                 .pool = {},
                 .is_true = std::min(share, bad_share(short_s)) > burn * kObjective,
                 .value = share,
                 .limit = burn * kObjective,
                 .window_s = long_s};
  };
  const auto refused = static_cast<double>(now.unserved - before(120).unserved);
  const auto interrupted = static_cast<double>(now.interrupted - before(600).interrupted);
  std::vector<Found> found = {burns("PeltonErrorBudgetFast", kFastBurn, kHour_s, 300),
                              burns("PeltonErrorBudgetSlow", kSlowBurn, 6 * kHour_s, 1800),
                              {.name = "PeltonNoWorker",
                               .pool = {},
                               .is_true = now_.able == 0 && refused > 0,
                               .value = now_.able == 0 ? refused : 0,
                               .window_s = 120},
                              {.name = "PeltonWorkersDown",
                               .pool = {},
                               .is_true = now_.down > 0,
                               .value = static_cast<double>(now_.down)},
                              {.name = "PeltonStreamsInterrupted",
                               .pool = {},
                               .is_true = interrupted > 0,
                               .value = interrupted,
                               .window_s = 600}};
  for (const Pool& pool : now_.pools) look_at_pool(pool, found);
  return found;
}

void FleetConditions::look_at_pool(const Pool& pool, std::vector<Found>& found) const {
  if (!pool.is_scaled) return;
  const auto place = static_cast<size_t>(std::ranges::find(places_, pool.name) - places_.begin());
  if (place >= places_.size()) return;
  const Sample& now = newest_;
  const auto rise = [&](const std::array<int64_t, kPoolsMax> Sample::*counts, double window_s) {
    return static_cast<double>((now.*counts)[place] - (before(window_s).*counts)[place]);
  };
  const double failed = rise(&Sample::failed_starts, 600);
  const double lost = rise(&Sample::lost, 900);
  const auto missing = static_cast<double>(std::max(pool.desired - pool.ready, 0));
  found.push_back({.name = "PeltonHeldLong",
                   .pool = pool.name,
                   .is_true = pool.held > 0,
                   .value = static_cast<double>(pool.held)});
  found.push_back({.name = "PeltonStartsFail",
                   .pool = pool.name,
                   .is_true = failed >= kFailedStarts,
                   .value = failed,
                   .limit = kFailedStarts,
                   .window_s = 600});
  found.push_back({.name = "PeltonReplicasMissing",
                   .pool = pool.name,
                   .is_true = missing > 0,
                   .value = missing});
  found.push_back({.name = "PeltonReplicasLost",
                   .pool = pool.name,
                   .is_true = lost >= kLost,
                   .value = lost,
                   .limit = kLost,
                   .window_s = 900});
  found.push_back({.name = "PeltonAutoscalerBlind",
                   .pool = pool.name,
                   .is_true = pool.alarm,
                   .value = pool.alarm ? 1.0 : 0.0,
                   .limit = 1});
}

void FleetConditions::write(base::JsonWriter& w, const Found& found) const {
  const Rule& rule = rule_of(found.name);
  const auto since = since_ns_.find({std::string(found.name), found.pool});
  const bool is_true = since != since_ns_.end();
  const double since_s = is_true ? seconds(newest_.now_ns - since->second) : 0;
  const bool fires = is_true && since_s >= time_until_firing(rule);
  w.begin_object().key("name").string(found.name).key("pool").string(found.pool);
  w.key("severity").string(rule.severity);
  w.key("state").string(fires ? "firing" : is_true ? "pending" : "quiet");
  w.key("value").number(found.value).key("limit").number(found.limit);
  w.key("for_s").number(time_until_firing(rule)).key("since_s").number(since_s);
  w.key("window_s").number(found.window_s);
  w.key("kept_s").number(std::min(found.window_s, history_s()));
  w.key("expr").string(rule.expr).end_object();
}

std::string FleetConditions::body() const {
  std::lock_guard lock(mutex_);
  std::string text;
  base::JsonWriter w(text);
  w.begin_object().key("history_s").number(history_s()).key("budget");
  write_budget(w, kBudget_s);
  w.key("budgets").begin_array();
  for (const double window_s : kBudgets_s) write_budget(w, window_s);
  w.end_array();
  w.key("conditions").begin_array();
  for (const Found& one : look()) write(w, one);
  w.end_array().key("elsewhere").begin_array();
  for (const Elsewhere& one : kElsewhere) {
    w.begin_object().key("name").string(one.name).key("severity").string(one.severity);
    w.key("for_s").number(one.for_s).key("expr").string(one.expr);
    w.key("where").string(one.where).end_object();
  }
  w.end_array().end_object();
  return text;
}

void FleetConditions::write_budget(base::JsonWriter& w, double window_s) const {
  const Sample& then = before(window_s);
  const int64_t requests = newest_.requests - then.requests;
  const int64_t bad = newest_.unserved - then.unserved + newest_.interrupted - then.interrupted;
  const double share = requests > 0 ? static_cast<double>(bad) / static_cast<double>(requests) : 0;
  w.begin_object().key("window_s").number(window_s);
  w.key("kept_s").number(seconds(newest_.now_ns - then.now_ns));
  w.key("objective").number(kObjective).key("requests").integer(requests);
  w.key("bad").integer(bad).key("bad_share").number(share);
  w.key("burn").number(share / kObjective).end_object();
}

}  // namespace pelton::gateway
