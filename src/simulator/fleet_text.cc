#include "simulator/fleet_text.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/json_writer.h"

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

// What is heard sooner here than in a fleet of processes.
std::string freshness_text(const SimulationOptions& options) {
  const bool knows_replicas = options.dispatch == Dispatcher::Policy::kCost &&
                              options.report_s == 0 && !options.has_network() &&
                              (options.autoscaling || options.replica_count > 1);
  std::string text;
  if (knows_replicas) {
    text += "the router sees replicas as they are: --report-interval 100 is what gateways hear\n";
  }
  if (options.autoscaling && options.autoscaling->facts_delay_s == 0) {
    text += "the autoscaler's facts are of the very moment: --facts-delay makes them older\n";
  }
  return text;
}

bool travels(const SimulationOptions& options) {
  for (const kv::GroupCapacity& group : options.replica.capacity.groups) {
    if (group.block_counts[kv::kHost] > 0) return true;
  }
  return false;
}

struct TravelFigures {
  int64_t asked = 0;  // tokens of prompts
  kv::PerTier<int64_t> found{};
  int64_t fetched = 0;
  int64_t computed = 0;
  double bytes_share = 0;  // of what moving all groups whole would have taken
  double recomputed_share = 0;
  double gap_s = 0;
  double prefill_busy = 0;
  double decode_busy = 0;
};

TravelFigures travel_figures(const SimulationOptions& options, const SimulationResult& result) {
  const engine::SchedulerCounters all = sum_of(result).scheduler;
  const TravelCounts& counts = result.travel;
  const auto share = [](int64_t part, int64_t of) {
    return static_cast<double>(part) / static_cast<double>(std::max<int64_t>(of, 1));
  };
  TravelFigures one{
      .asked = all.prompt_tokens,
      .found = all.prompt_tokens_cached_by_tier,
      .fetched = all.prompt_tokens_from_peers,
      .computed = all.prompt_tokens - all.prompt_tokens_cached,
      .bytes_share = share(counts.bytes, counts.bytes_whole),
      .recomputed_share =
          share(counts.recomputed_tokens, counts.recomputed_tokens + counts.found_tokens),
      .gap_s = counts.gap_s / static_cast<double>(std::max<int64_t>(counts.handed_over, 1))};
  for (size_t i = 0; i < result.replicas.size(); ++i) {
    const double busy =
        static_cast<double>(result.replicas[i].busy_ns) * 1e-9 / std::max(result.duration_s, 1e-9);
    const bool prefills = std::cmp_less(i, options.prefill_replicas);
    const int pool =
        prefills ? options.prefill_replicas : options.replica_count - options.prefill_replicas;
    (prefills ? one.prefill_busy : one.decode_busy) += busy / std::max(pool, 1);
  }
  return one;
}

// Of the time in which replicas were there; where nothing took time there is no such share.
std::string busy_text(const ReplicaCounts& all, double replicas, double duration_s) {
  if (duration_s <= 0) return "no step was running";
  return fmt::format("a step was running {:.1f} % of the time",
                     static_cast<double>(all.busy_ns) / (replicas * duration_s * 1e9) * 100);
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
  const engine::ExecutorCapacity& capacity = options.replica.capacity;
  const int slots = capacity.whole_prompts ? capacity.pooled_sequences_max : capacity.sequences_max;
  return fmt::format(
      "\n{} replica{}: load {}\n"
      "{}, with {:.1f} of {} sequences ({:.0f} %); {} steps "
      "({} failed)\n"
      "{}{}{}prompts found in the cache {:.1f} %; preemptions {}; redispatched {}; unfinished {}\n"
      "{}{}{}{}{}{}modelled, not measured; {:.0f} times faster than real\n",
      options.replica_count, options.replica_count == 1 ? "" : "s", load,
      busy_text(all, replicas, result.duration_s), rows, slots, rows / slots * 100, all.steps,
      all.steps_failed, scaling_text(result), spread_text(options, result), zones_text(result),
      cached_share(result) * 100,
      all.scheduler.preemptions_recompute + all.scheduler.preemptions_swap, result.redispatched,
      result.unfinished, drafts_text(all.scheduler), adapters_text(all.adapters),
      predictions_text(result), travel_text(options, result), network_text(result),
      freshness_text(options), result.duration_s / std::max(took_s, 1e-9));
}

std::string network_text(const SimulationResult& result) {
  std::string text;
  if (result.network) {
    const NetworkCounts& counts = *result.network;
    text = fmt::format(
        "network: {} messages, {} copies lost, {} met a cut, {} given up; replicas found down {}, "
        "connections that stood still {}; requests taken back {}, sent back {}, without a "
        "replica for a while {}; messages nobody waited for {}\n",
        counts.messages, counts.copies_lost, counts.cut_off, counts.given_up, counts.found_down,
        counts.stood_still, counts.taken_back, counts.sent_back, counts.waited, counts.ignored);
  }
  if (result.scaling && result.scaling->facts_unheard > 0) {
    text += fmt::format(
        "the autoscaler heard nothing new {} times, and {} times kept all replicas for that\n",
        result.scaling->facts_unheard, result.scaling->decisions_held);
  }
  return text;
}

std::string with_network(std::string json, const SimulationResult& result) {
  if (!result.network && !(result.scaling && result.scaling->facts_unheard > 0)) return json;
  json.resize(json.rfind('}'));
  json += ",\"network\":";
  base::JsonWriter w(json);
  w.begin_object();
  if (result.network) {
    const NetworkCounts& counts = *result.network;
    w.key("messages").integer(counts.messages).key("copies_lost").integer(counts.copies_lost);
    w.key("cut_off").integer(counts.cut_off).key("given_up").integer(counts.given_up);
    w.key("found_down").integer(counts.found_down).key("stood_still").integer(counts.stood_still);
    w.key("taken_back").integer(counts.taken_back).key("sent_back").integer(counts.sent_back);
    w.key("waited").integer(counts.waited).key("ignored").integer(counts.ignored);
  }
  if (result.scaling) {
    w.key("facts_unheard").integer(result.scaling->facts_unheard);
    w.key("decisions_held").integer(result.scaling->decisions_held);
  }
  w.end_object();
  return json + "}\n";
}

std::string travel_text(const SimulationOptions& options, const SimulationResult& result) {
  if (!travels(options)) return "";
  constexpr double kGiB = 1 << 30;
  const TravelFigures one = travel_figures(options, result);
  const auto percent = [&](int64_t tokens) {
    return 100 * static_cast<double>(tokens) / static_cast<double>(std::max<int64_t>(one.asked, 1));
  };
  std::string text = fmt::format(
      "prompts found: on the device {:.1f} %, host {:.1f} %, disk {:.1f} %, fetched {:.1f} %; "
      "computed {:.1f} %\n",
      percent(one.found[kv::kDevice]), percent(one.found[kv::kHost]), percent(one.found[kv::kDisk]),
      percent(one.fetched), percent(one.computed));
  const TravelCounts& counts = result.travel;
  if (options.replica.paths.links_peers()) {
    text += fmt::format(
        "moved between replicas {:.3f} GiB in {} transfers; groups whole {:.3f} "
        "GiB: {:.4f} of it\n",
        static_cast<double>(counts.bytes) / kGiB, counts.transfers,
        static_cast<double>(counts.bytes_whole) / kGiB, one.bytes_share);
  }
  if (options.split.mode == gateway::SplitConfig::Mode::kOff) return text;
  text += fmt::format(
      "split {} requests: handed over {}, ended before {}, no decoder {}, failed {}; gap {:.1f} ms "
      "on average; recomputed though it was there {:.2f} % ({} tokens)\n",
      counts.split, counts.handed_over, counts.ended, counts.no_decoder, counts.failed,
      one.gap_s * 1e3, 100 * one.recomputed_share, counts.recomputed_tokens);
  if (options.prefill_replicas > 0) {
    text += fmt::format("prefill pool of {}: busy {:.1f} %; decode pool of {}: busy {:.1f} %\n",
                        options.prefill_replicas, 100 * one.prefill_busy,
                        options.replica_count - options.prefill_replicas, 100 * one.decode_busy);
  }
  return text;
}

std::string with_travel(std::string json, const SimulationOptions& options,
                        const SimulationResult& result) {
  if (!travels(options)) return json;
  const TravelFigures one = travel_figures(options, result);
  const TravelCounts& counts = result.travel;
  json.resize(json.rfind('}'));
  json += ",\"travel\":";
  base::JsonWriter w(json);
  w.begin_object();
  w.key("prompt_tokens").integer(one.asked).key("found_on_device").integer(one.found[kv::kDevice]);
  w.key("found_on_host").integer(one.found[kv::kHost]);
  w.key("found_on_disk").integer(one.found[kv::kDisk]).key("fetched").integer(one.fetched);
  w.key("computed").integer(one.computed).key("transfers").integer(counts.transfers);
  w.key("bytes").integer(counts.bytes).key("bytes_of_whole_groups").integer(counts.bytes_whole);
  w.key("split").integer(counts.split).key("handed_over").integer(counts.handed_over);
  w.key("ended").integer(counts.ended).key("no_decoder").integer(counts.no_decoder);
  w.key("failed").integer(counts.failed).key("recomputed_tokens").integer(counts.recomputed_tokens);
  w.key("gap_s")
      .number(one.gap_s)
      .key("prefill_replicas")
      .integer(int64_t{options.prefill_replicas});
  w.key("prefill_busy").number(one.prefill_busy).key("decode_busy").number(one.decode_busy);
  w.end_object();
  return json + "}\n";
}

}  // namespace pelton::simulator
