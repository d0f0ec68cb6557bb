#include "planner/travel_plan.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace pelton::planner {
namespace {

constexpr double kWorthwhile = 0.8;  // as the engine has it: both are estimates
constexpr double kMinuteS = 60;
constexpr double kHourS = 3600;

double computed_tokens(const Demand& demand) {
  return std::max(demand.input_tokens - demand.cached_tokens, 1.0);
}

// Of one copy, whatever it lies on.
Result<MemoryPlan> whole_memory(MemoryOptions options) {
  options.layout = {};
  return plan_memory(options);
}

}  // namespace

Result<TravelPlan> plan_travel(const FleetPlanOptions& options, const CapacityPlan& plan) {
  if (plan.chosen < 0) return Error{ErrorCode::kDoesNotFit, "no layout meets the load", {}};
  const LayoutChoice& best = plan.layouts[static_cast<size_t>(plan.chosen)];
  CapacityOptions capacity = options.capacity;
  capacity.memory.layout = best.layout;
  const Demand& demand = capacity.demand;
  TRY_ASSIGN(const MemoryPlan memory, whole_memory(capacity.memory));
  TravelPlan travel{.token_bytes = memory.kv_token_bytes,
                    .sequence_bytes = memory.kv_sequence_bytes};
  TRY_ASSIGN(travel.prompt_token_s, prompt_token_seconds(capacity, best.copy.step_tokens));
  const double computed = computed_tokens(demand);
  travel.split_bytes = travel.token_bytes * computed + travel.sequence_bytes;
  travel.split_rate = travel.split_bytes / (computed * travel.prompt_token_s);
  const Result<SplitCopies> split =
      split_copies(capacity, {.copies = std::max<int64_t>(plan.copies, 2),
                              .concurrency = best.copy.concurrency,
                              .chunk_tokens = best.copy.step_tokens,
                              .rows_max = rows_max(capacity, best)});
  if (split.ok()) {
    travel.prompt_copies = split->prompts;
    travel.answer_copies = split->answers;
    travel.split_gain = split->gain;
    travel.output_kept = split->output_kept;
  }
  travel.least_rate = travel.token_bytes / (kWorthwhile * travel.prompt_token_s);
  travel.kept_rate =
      best.copy.requests_per_s * (computed + demand.output_tokens) * travel.token_bytes;
  travel.minute_bytes = kMinuteS * travel.kept_rate;
  travel.hour_bytes = kHourS * travel.kept_rate;
  travel.saved_s = options.repeated_tokens * travel.prompt_token_s;
  return travel;
}

Section travel_section(const FleetPlanOptions& options, const TravelPlan& travel) {
  Section section{.key = "travel", .title = "Keys and values that travel"};
  auto& figures = section.figures;
  const double spread = options.capacity.spread;
  const auto modelled = [&](double value) {
    return Figure::Range{value / (1 + spread), value * (1 + spread)};
  };
  if (travel.prompt_copies > 0) {
    figures.push_back({"split_prompt_copies", "if split: copies for prompts",
                       static_cast<double>(travel.prompt_copies), Unit::kCount,
                       "of the copies, so that as much is answered as together"});
    figures.push_back({"split_answer_copies", "and for answers",
                       static_cast<double>(travel.answer_copies), Unit::kCount, "the others"});
    figures.push_back({"split_gain", "an answer's tokens come faster by", travel.split_gain,
                       Unit::kRatio, "step with a prompt's piece / step without",
                       modelled(travel.split_gain)});
    figures.push_back({"split_output_kept", "output of the same devices", travel.output_kept,
                       Unit::kShare, "apart / together"});
  } else {
    section.notes.emplace_back(
        "Prompts and answers apart, however the copies are dealt, bring less output than together, "
        "or their tokens no sooner: not worth splitting.");
  }
  figures.push_back({"split_bytes", "a split moves for a request", travel.split_bytes, Unit::kBytes,
                     fmt::format("{:.0f} B x the prompt's tokens + {:.0f} B of windows",
                                 travel.token_bytes, travel.sequence_bytes)});
  figures.push_back({"split_rate", "a link that keeps up with a copy for prompts, bytes",
                     travel.split_rate, Unit::kPerSecond, "bytes of a prompt / its seconds",
                     modelled(travel.split_rate)});
  figures.push_back({"tier_rate", "a tier pays from so many bytes on", travel.least_rate,
                     Unit::kPerSecond,
                     fmt::format("{:.0f} B / ({:.1f} x {:.3g} s)", travel.token_bytes, kWorthwhile,
                                 travel.prompt_token_s),
                     modelled(travel.least_rate)});
  figures.push_back({"host_bytes", "host memory that keeps a minute (--swap-space)",
                     travel.minute_bytes, Unit::kBytes,
                     fmt::format("60 s x {:.3g} B/s that a copy computes", travel.kept_rate),
                     modelled(travel.minute_bytes)});
  figures.push_back({"disk_bytes", "a disk that keeps an hour (--kv-disk-size)", travel.hour_bytes,
                     Unit::kBytes, "3600 s x the same", modelled(travel.hour_bytes)});
  if (travel.saved_s > 0) {
    figures.push_back(
        {"hit_saves", "a first token comes sooner where earlier turns are found", travel.saved_s,
         Unit::kSeconds,
         fmt::format("{:.0f} tokens x {:.3g} s", options.repeated_tokens, travel.prompt_token_s),
         modelled(travel.saved_s)});
  }
  return section;
}

}  // namespace pelton::planner
