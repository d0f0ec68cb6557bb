#include "simulator/fleet_text.h"

#include <algorithm>

#include <fmt/format.h>

namespace pelton::simulator {
namespace {

ReplicaCounts sum_of(const SimulationResult& result) {
  ReplicaCounts all;
  for (const ReplicaCounts& counts : result.replicas) all += counts;
  return all;
}

// Where guesses were computed.
std::string drafts_text(const engine::SchedulerCounters& counted) {
  if (counted.drafts == 0) return "";
  const auto drafts = static_cast<double>(counted.drafts);
  return fmt::format("guesses {}, of which {} were right: {:.2f} tokens a row with guesses\n",
                     counted.draft_tokens, counted.accepted_tokens,
                     1 + static_cast<double>(counted.accepted_tokens) / drafts);
}

// How evenly the work is spread: of those that took part from the beginning on.
std::string spread_text(const SimulationOptions& options, const SimulationResult& result) {
  if (result.replicas.size() < 2 || options.autoscaling) return "";
  double most = 0;
  double sum = 0;
  for (const ReplicaCounts& counts : result.replicas) {
    most = std::max(most, static_cast<double>(counts.busy_ns));
    sum += static_cast<double>(counts.busy_ns);
  }
  const double mean = sum / static_cast<double>(result.replicas.size());
  return fmt::format("the busiest replica had {:.3f} times the mean's work\n",
                     most / std::max(mean, 1.0));
}

std::string zones_text(const SimulationResult& result) {
  const ZoneCounts& counts = result.zones;
  if (counts.sent == 0) return "";
  const auto share = [&](int64_t count) {
    return static_cast<double>(count) / static_cast<double>(counts.sent) * 100;
  };
  return fmt::format("sent to another zone {:.2f} %; while the near one had room {:.2f} %\n",
                     share(counts.across), share(counts.across_with_room));
}

// Where a router by cost has predicted first tokens.
std::string predictions_text(const SimulationResult& result) {
  if (result.predictions.empty()) return "";
  return fmt::format("first tokens within a quarter of what the router predicted: {:.1f} %\n",
                     predicted_share(result) * 100);
}

// Where conversations asked for adapters.
std::string adapters_text(const AdapterCounts& counts) {
  if (counts.hits + counts.misses + counts.refused == 0) return "";
  const auto milliseconds = [](int64_t ns) { return static_cast<double>(ns) * 1e-6; };
  const auto answered = static_cast<double>(std::max<int64_t>(counts.answered, 1));
  return fmt::format(
      "adapters found in memory {:.1f} %; loads {}, evictions {}; others waited {:.1f} ms for "
      "theirs on average and {:.1f} ms at most; refused {}\n",
      counts.hits_share() * 100, counts.loads, counts.evictions,
      milliseconds(counts.waited_ns) / answered, milliseconds(counts.waited_max_ns),
      counts.refused);
}

// Where replicas started and stopped.
std::string scaling_text(const SimulationResult& result) {
  if (!result.scaling) return "";
  const ScalingCounts& counts = *result.scaling;
  constexpr double kHour = 3600;
  return fmt::format(
      "{:.2f} replica-hours, {:.1f} replicas on average and {} at most; {} started, {} changes of "
      "direction\n",
      counts.replica_s / kHour, counts.replica_s / std::max(result.duration_s, 1e-9),
      counts.replicas_most, counts.started, counts.direction_changes);
}

// On average, of those that were there.
double replicas_of(const SimulationOptions& options, const SimulationResult& result) {
  if (!result.scaling) return options.replica_count;
  return std::max(result.scaling->replica_s / std::max(result.duration_s, 1e-9), 1e-9);
}

}  // namespace

double cached_share(const SimulationResult& result) {
  const ReplicaCounts all = sum_of(result);
  const auto asked = static_cast<double>(std::max<int64_t>(all.scheduler.prompt_tokens, 1));
  return static_cast<double>(all.scheduler.prompt_tokens_cached) / asked;
}

std::string fleet_text(const SimulationOptions& options, const SimulationResult& result,
                       const std::string& load, double took_s) {
  const ReplicaCounts all = sum_of(result);
  const double replicas = replicas_of(options, result);
  const auto steps = static_cast<double>(std::max<int64_t>(all.steps, 1));
  const double rows = static_cast<double>(all.rows) / steps;
  const int slots = options.replica.capacity.sequences_max;
  return fmt::format(
      "\n{} replica{}: load {}\n"
      "a step was running {:.1f} % of the time, with {:.1f} of {} sequences ({:.0f} %); {} steps "
      "({} failed)\n"
      "{}{}{}prompts found in the cache {:.1f} %; preemptions {}; redispatched {}; unfinished {}\n"
      "{}{}{}modelled, not measured; {:.0f} times faster than real\n",
      options.replica_count, options.replica_count == 1 ? "" : "s", load,
      static_cast<double>(all.busy_ns) / (replicas * result.duration_s * 1e9) * 100, rows, slots,
      rows / slots * 100, all.steps, all.steps_failed, scaling_text(result),
      spread_text(options, result), zones_text(result), cached_share(result) * 100,
      all.scheduler.preemptions_recompute + all.scheduler.preemptions_swap, result.redispatched,
      result.unfinished, drafts_text(all.scheduler), adapters_text(all.adapters),
      predictions_text(result), result.duration_s / std::max(took_s, 1e-9));
}

}  // namespace pelton::simulator
