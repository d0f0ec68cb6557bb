#include "simulator/recorded_hour.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "autoscaler/facts_log.h"
#include "cost_model/hardware.h"
#include "report/percentile.h"
#include "simulator/even_steps.h"

namespace pelton::simulator {
namespace {

using autoscaler::GatewayReport;
using autoscaler::PoolFacts;
using autoscaler::ReplicaFacts;
using autoscaler::ReplicaPhase;

constexpr double kWindow_s = 60;  // over which time in service is averaged
constexpr double kServiceMax_s = 3600;
constexpr double kDuration_s_max = 31 * 86'400.0;

Error bad(const std::string& where, const std::string& what) {
  return {ErrorCode::kInvalidArgument, where + ": " + what, "facts"};
}

double seconds(int64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

// Of counters; what is no number, or less than nothing, is nothing.
double positive(double value) {
  return std::isfinite(value) && value > 0 ? value : 0;
}

struct Moment {
  int64_t now_ns = 0;
  PoolFacts facts;
  int direction = 0;  // of what was decided: 1: up, -1: down
};

// What the lines say of one pool.
struct Lines {
  std::string pool;
  autoscaler::PoolPolicy policy;
  std::vector<Moment> moments;
};

// As PoolControl counts it of what is played.
int direction_of(const autoscaler::PoolDecision& decision) {
  const bool is_up =
      decision.start > decision.start_standby || !decision.recall.empty() || !decision.wake.empty();
  return is_up ? 1 : decision.drain.empty() ? 0 : -1;
}

Result<Lines> read_lines(std::string_view text, const std::string& file, const std::string& asked) {
  autoscaler::FactsReplay replay;
  Lines lines{.pool = asked, .policy = {}, .moments = {}};
  std::set<std::string> pools;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const bool is_cut = end == text.size();  // the recorder was killed at it
    const std::string where = fmt::format("{}:{}", file, number);
    const Result<autoscaler::FactsReplay::Outcome> outcome = replay.feed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!outcome.ok() && is_cut) break;
    if (!outcome.ok()) return bad(where, outcome.error().message);
    if (outcome->pool.empty()) continue;
    if (asked.empty() && outcome->facts.wanted) continue;  // they follow another pool's decision
    if (lines.pool.empty()) lines.pool = outcome->pool;
    if (outcome->is_decision) pools.insert(outcome->pool);
    if (outcome->pool != lines.pool) continue;
    if (outcome->policy) lines.policy = *outcome->policy;
    if (!outcome->is_decision) continue;
    if (!outcome->is_equal) return bad(where, "decided otherwise than it was recorded");
    if (!lines.moments.empty() && outcome->now_ns < lines.moments.back().now_ns) {
      return bad(where, "its time goes back");
    }
    lines.moments.push_back({.now_ns = outcome->now_ns,
                             .facts = outcome->facts,
                             .direction = direction_of(outcome->decision)});
  }
  if (asked.empty() && pools.size() > 1) {
    return bad(file, fmt::format("has the pools {}: which one?", fmt::join(pools, ", ")));
  }
  if (lines.moments.size() >= 2) return lines;
  const std::string known = pools.empty() ? "none" : fmt::format("{}", fmt::join(pools, ", "));
  return bad(file, asked.empty() || pools.contains(asked)
                       ? "has no two decisions, so nothing happens in it"
                       : fmt::format("has no pool '{}'; it has {}", asked, known));
}

// What came, and how long it took, from one moment to the next.
class Demand {
 public:
  explicit Demand(int64_t begin_ns) : begin_ns_(begin_ns) {}

  // Those that were there already come at once.
  void begin(const PoolFacts& facts, int64_t now_ns) {
    for (const GatewayReport& one : facts.gateways) {
      note_requests(std::max(one.in_service, 0) + int64_t{std::max(one.held, 0)}, 0, 0);
      before_[one.gateway] = one;
    }
    last_ns_ = now_ns;
  }
  void note(const PoolFacts& facts, int64_t now_ns) {
    for (const GatewayReport& one : facts.gateways) {
      const auto [place, is_new] = before_.try_emplace(one.gateway, GatewayReport{});
      GatewayReport& before = place->second;
      // Another incarnation counts from nothing.
      if (is_new || before.incarnation != one.incarnation) before = {.at_ns = last_ns_};
      if (one.sequence <= before.sequence) continue;
      const double from_s = seconds(std::max(before.at_ns, begin_ns_) - begin_ns_);
      const double until_s = std::max(seconds(std::min(one.at_ns, now_ns) - begin_ns_), from_s);
      note_requests(one.requests - before.requests, from_s, until_s);
      Window& window = windows_[static_cast<int64_t>(until_s / kWindow_s)];
      window.finished += std::max<int64_t>(one.finished - before.finished, 0);
      window.in_service_s += positive(one.in_service_s - before.in_service_s);
      held_s_ += positive(one.held_s - before.held_s);
      before = one;
    }
    last_ns_ = now_ns;
  }

  std::vector<double>& at_s() { return at_s_; }
  bool is_too_much() const { return is_too_much_; }
  double held_s() const { return held_s_; }
  double mean_s(double otherwise_s) const {
    Window all;
    for (const auto& [index, one] : windows_) {
      all.finished += one.finished;
      all.in_service_s += one.in_service_s;
    }
    return all.finished > 0 ? bounded(all.in_service_s / static_cast<double>(all.finished))
                            : bounded(otherwise_s);
  }
  double service_s(double at_s, double mean_s) const {
    const auto found = windows_.find(static_cast<int64_t>(at_s / kWindow_s));
    if (found == windows_.end() || found->second.finished < kFinishedMin) return mean_s;
    return bounded(found->second.in_service_s / static_cast<double>(found->second.finished));
  }

 private:
  static constexpr int64_t kFinishedMin = 5;  // fewer say little
  struct Window {
    int64_t finished = 0;
    double in_service_s = 0;
  };
  static double bounded(double service_s) { return std::clamp(service_s, 1e-3, kServiceMax_s); }
  void note_requests(int64_t count, double from_s, double until_s) {
    if (count <= 0) return;
    if (count > RecordedHour::kRequestsMax - std::ssize(at_s_)) {
      is_too_much_ = true;
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      const double share = (static_cast<double>(i) + 0.5) / static_cast<double>(count);
      at_s_.push_back(from_s + (until_s - from_s) * share);
    }
  }

  const int64_t begin_ns_;
  int64_t last_ns_ = 0;
  std::map<std::string, GatewayReport> before_;
  std::map<int64_t, Window> windows_;
  std::vector<double> at_s_;
  double held_s_ = 0;
  bool is_too_much_ = false;
};

// What replicas did, as the facts show them.
void note_replicas(const std::vector<Moment>& moments, RecordedHour& hour) {
  std::set<std::string> known;
  std::map<std::string, double> starts_s;
  std::map<std::string, int64_t> ordered_ns;
  double replica_s = 0;
  int slots = 0;
  FleetFigures& figures = hour.seen.figures;
  for (size_t i = 0; i < moments.size(); ++i) {
    const PoolFacts& facts = moments[i].facts;
    ScalingSample sample{.at_s = seconds(moments[i].now_ns - moments[0].now_ns)};
    for (const ReplicaFacts& one : facts.replicas) {
      const bool is_new = known.insert(one.id).second;
      if (is_new && i > 0) ++figures.started;
      const bool is_ready = one.phase == ReplicaPhase::kReady;
      sample.ready += is_ready ? 1 : 0;
      sample.draining += one.phase == ReplicaPhase::kDraining ? 1 : 0;
      const bool starts =
          one.phase == ReplicaPhase::kOrdered || one.phase == ReplicaPhase::kStarting;
      sample.starting += starts ? 1 : 0;
      if (is_ready) slots = std::max(slots, one.slots);
      // The decision before it was first seen has ordered it; a launcher may count from later on.
      if (is_new && i > 0) ordered_ns[one.id] = moments[i - 1].now_ns;
      int64_t order_ns = one.ordered_ns;
      const auto seen = ordered_ns.find(one.id);
      if (seen != ordered_ns.end() && order_ns > 0) order_ns = std::min(order_ns, seen->second);
      const bool was_seen = is_ready && order_ns > 0 && one.ready_ns > order_ns;
      if (was_seen) starts_s[one.id] = seconds(one.ready_ns - order_ns);
    }
    for (const GatewayReport& one : facts.gateways) {
      sample.held += std::max(one.held, 0);
      sample.in_service += std::max(one.in_service, 0);
    }
    figures.most = std::max(figures.most, sample.present());
    if (i > 0) {
      const ScalingSample& before = hour.seen.timeline.samples.back();
      replica_s += before.present() * (sample.at_s - before.at_s);
    }
    hour.seen.timeline.samples.push_back(sample);
  }
  int direction = 0;
  for (const Moment& moment : moments) {
    if (moment.direction == 0 || moment.direction == direction) continue;
    if (direction != 0) ++figures.direction_changes;
    direction = moment.direction;
  }
  figures.replica_hours = replica_s / 3600;
  hour.replicas = hour.seen.timeline.samples.front().ready;
  hour.service_s_assumed = moments[0].facts.service_s_assumed;
  hour.slots = std::max(slots > 0 ? slots : moments[0].facts.slots_assumed, 1);
  std::vector<double> sorted;
  for (const auto& [id, start_s] : starts_s) sorted.push_back(start_s);
  std::sort(sorted.begin(), sorted.end());
  hour.start_s = sorted.empty() ? moments[0].facts.start_s_assumed : report::percentile(sorted, 50);
  hour.start_s = std::clamp(hour.start_s, 1e-3, 86'400.0);
  if (sorted.size() > 2) hour.start_p90_s = std::min(report::percentile(sorted, 90), 86'400.0);
}

void note_timeline(RecordedHour& hour) {
  constexpr size_t kParts = 120;
  FleetTimeline& timeline = hour.seen.timeline;
  timeline.part_s = std::max(hour.duration_s, 1e-3) / kParts;
  timeline.requests.resize(kParts);
  timeline.late.resize(kParts);
  for (const double at_s : hour.at_s) {
    timeline.requests[std::min(static_cast<size_t>(at_s / timeline.part_s), kParts - 1)] += 1;
  }
}

}  // namespace

Result<RecordedHour> read_recorded_hour(std::string_view text, const std::string& file,
                                        const std::string& pool, double last_s) {
  TRY_ASSIGN(Lines lines, read_lines(text, file, pool));
  RecordedHour hour{
      .pool = lines.pool, .policy = lines.policy, .decisions = std::ssize(lines.moments)};
  if (last_s > 0) {
    const int64_t from_ns = lines.moments.back().now_ns - static_cast<int64_t>(last_s * 1e9);
    const auto first = std::ranges::find_if(
        lines.moments, [&](const Moment& one) { return one.now_ns >= from_ns; });
    lines.moments.erase(lines.moments.begin(), first);
    if (lines.moments.size() < 2) return bad(file, "its last seconds have no two decisions");
  }
  const std::vector<Moment>& moments = lines.moments;
  const int64_t begin_ns = moments.front().now_ns;
  hour.duration_s = seconds(moments.back().now_ns - begin_ns);
  if (hour.duration_s > kDuration_s_max) {
    return bad(file, "is longer than 31 days; --last takes the last seconds of it");
  }
  hour.begin_unix_s = moments.front().facts.unix_s;
  Demand demand(begin_ns);
  demand.begin(moments.front().facts, begin_ns);
  for (size_t i = 1; i < moments.size(); ++i) demand.note(moments[i].facts, moments[i].now_ns);
  if (demand.is_too_much()) {
    return bad(file, fmt::format("has more than {} requests", RecordedHour::kRequestsMax));
  }
  hour.at_s = std::move(demand.at_s());
  std::sort(hour.at_s.begin(), hour.at_s.end());
  hour.service_mean_s = demand.mean_s(moments.back().facts.service_s_assumed);
  for (const double at_s : hour.at_s) {
    hour.service_s.push_back(demand.service_s(at_s, hour.service_mean_s));
  }
  hour.seen.name = "recorded";
  hour.seen.figures.requests = std::ssize(hour.at_s);
  hour.seen.figures.knows_requests = false;
  hour.seen.figures.held_mean_s =
      demand.held_s() / static_cast<double>(std::max<size_t>(hour.at_s.size(), 1));
  note_replicas(moments, hour);
  note_timeline(hour);
  if (hour.policy.price_each > 0) {
    hour.seen.figures.cost = hour.policy.price_each * hour.seen.figures.replica_hours;
  }
  return hour;
}

double step_seconds(const RecordedHour& hour) {
  constexpr double kTokens = 32;  // of a mean answer
  return std::clamp(hour.service_mean_s / kTokens, 1e-4, 60.0);
}

Autoscaling autoscaling_of(const RecordedHour& hour) {
  Autoscaling scaling{.policy = hour.policy,
                      .start_s = hour.start_s,
                      .replicas = std::min(hour.replicas, hour.policy.replicas_max),
                      .service_s_assumed = hour.service_s_assumed,
                      .begin_unix_s = hour.begin_unix_s,
                      .record = {},
                      .pool = hour.pool};
  if (hour.start_p90_s > hour.start_s) {
    scaling.phases = {{.name = "start", .seconds = hour.start_s, .p90_s = hour.start_p90_s}};
  }
  return scaling;
}

Result<SimulationResult> play_hour(const RecordedHour& hour, const Autoscaling& scaling,
                                   uint64_t seed, SimulationOptions* used) {
  if (scaling.policy.prefill) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("pool '{}' has replicas of two roles, which are not played from facts: "
                    "`pelton simulate --split --scale-config` plays a workload",
                    hour.pool),
        "facts"};
  }
  const double step_s = step_seconds(hour);
  constexpr int kTokensMax = 2048;
  workload::Workload load;
  int longest = 1;
  for (size_t i = 0; i < hour.at_s.size(); ++i) {
    const auto tokens =
        static_cast<int>(std::clamp<double>(std::round(hour.service_s[i] / step_s), 1, kTokensMax));
    longest = std::max(longest, tokens);
    load.at_s.push_back(hour.at_s[i]);
    load.conversations.emplace_back().turns.push_back(
        {.prompt = std::to_string(i), .prompt_tokens = 1, .output_tokens = tokens});
  }
  constexpr int kBlockTokens = 16;
  const int blocks = hour.slots * std::max(longest / kBlockTokens + 2, 12);
  constexpr int64_t kBlocksMax = 50'000'000;
  if (int64_t{blocks} * scaling.policy.replicas_max > kBlocksMax) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} replicas of {} slots are more than can be played",
                             scaling.policy.replicas_max, hour.slots),
                 "facts"};
  }
  SimulationOptions& options = *used;
  options = {};
  options.replica.capacity = {
      .block_tokens = kBlockTokens,
      .groups = {{{.name = "full"}, {blocks}},
                 {{.name = "window", .sliding_window = 128}, {hour.slots * 12}}},
      .sequences_max = hour.slots,
      .batch_tokens_max = std::max(2 * hour.slots, 32),
      .context_tokens_max = longest + kBlockTokens,
      .vocab_size = 50'000};
  options.replica.prefix_cache = false;
  options.keeps_pieces = false;
  options.autoscaling = scaling;
  options.seed = seed;
  options.duration_s = std::max(hour.duration_s, 1e-3);
  TRY_ASSIGN(const cost_model::StepTimeModel times, even_steps(step_s));
  return simulate(options, load, times);
}

}  // namespace pelton::simulator
