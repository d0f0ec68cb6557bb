#include "planner/capacity_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "cost_model/draft_rows.h"

namespace pelton::planner {
namespace {

using cost_model::Layout;
using cost_model::StepLoad;
using cost_model::StepTimeModel;

constexpr int kSequencesMax = 4096;  // of serve's --max-num-seqs
constexpr int kStepTokens[] = {512, 1024, 2048, 4096, 8192, 16384};
constexpr double kWorthIt = 1.01;  // more than that decides between two ways to run

int64_t whole(double value) {
  return static_cast<int64_t>(std::llround(value));
}

// Of a prompt what is left to compute.
double computed_tokens(const Demand& demand) {
  return std::max(demand.input_tokens - demand.cached_tokens, 1.0);
}

}  // namespace

StepTimeModel::Options timing_options(const CapacityOptions& options) {
  return {.hardware = options.memory.hardware,
          .shape = options.memory.shape,
          .layout = options.memory.layout,
          .efficiency = options.efficiency,
          .arithmetic = options.arithmetic,
          .kv_element_bytes = options.memory.kv_element_bytes,
          .by_rows = options.by_rows,
          .by_tokens = options.by_tokens};
}

StepLoad mixed_step(const CapacityOptions& options, int rows, double prompt_tokens, int guesses) {
  const Demand& demand = options.demand;
  const cost_model::Windows windows = cost_model::windows_of(options.memory.shape);
  StepLoad load = StepLoad::drafts(rows, whole(demand.input_tokens + demand.output_tokens / 2),
                                   guesses, windows);
  if (prompt_tokens >= 1) {
    const double middle = demand.input_tokens - computed_tokens(demand) / 2;
    const double start = std::max(middle - prompt_tokens / 2, 0.0);
    load.add_row(whole(start), whole(prompt_tokens), 0, windows);
  }
  return load;
}

namespace {

struct Operation {
  double itl_s = 0;
  double ttft_s = 0;
  double requests_per_s = 0;
  double prompt_tokens = 0;
  int guesses = 0;
};

// A step of `rows` answers and no prompt.
double decode_seconds(const CapacityOptions& options, const StepTimeModel& times, int rows,
                      int guesses = 0) {
  const Speculation& speculation = options.speculation;
  return times.seconds(StepLoad::drafts(rows, whole(options.demand.input_tokens), guesses,
                                        cost_model::windows_of(options.memory.shape))) +
         guesses * speculation.draft_token_s;
}

// A lone stream's mean time between tokens, with as many guesses as pay.
double lone_itl_s(const CapacityOptions& options, const StepTimeModel& times) {
  double best = decode_seconds(options, times, 1);
  for (int guesses = 1; guesses <= options.speculation.tokens_max; ++guesses) {
    best = std::min(best, decode_seconds(options, times, 1, guesses) /
                              options.speculation.tokens_per_row(guesses));
  }
  return best;
}

Operation operate_with(const CapacityOptions& options, const StepTimeModel& times, int rows,
                       int guesses) {
  const Demand& demand = options.demand;
  Operation at{.guesses = guesses};
  const double prompt = computed_tokens(demand);
  const double tokens_per_row = options.speculation.tokens_per_row(guesses);
  at.prompt_tokens = prompt / demand.output_tokens * rows * tokens_per_row;
  const double room =
      std::max<double>(options.memory.batch_tokens_max - double{1.0} * rows * (1 + guesses), 1);
  // More prompt tokens than a step has room for: steps of prompts alone come between.
  const double with_prompts = std::min(at.prompt_tokens, room);
  const double step_s = times.seconds(mixed_step(options, rows, with_prompts, guesses)) +
                        guesses * options.speculation.draft_token_s;
  at.itl_s = step_s * std::max(at.prompt_tokens / room, 1.0) / tokens_per_row;
  at.requests_per_s = rows / (at.itl_s * demand.output_tokens);
  const double chunks = std::ceil(prompt / room);
  const double chunk = std::min(prompt, room);
  const double serve_s = chunks * times.seconds(mixed_step(options, rows, chunk));
  const double busy = std::min(at.requests_per_s * serve_s, 0.95);
  const double waits_s = busy / (2 * (1 - busy)) * serve_s;
  at.ttft_s = decode_seconds(options, times, rows, guesses) / 2 + waits_s + serve_s;
  return at;
}

// With as many guesses as bring most tokens.
Operation operate(const CapacityOptions& options, const StepTimeModel& times, int rows) {
  Operation best = operate_with(options, times, rows, 0);
  for (int guesses = 1; guesses <= options.speculation.tokens_max; ++guesses) {
    const int guesses_max = cost_model::draft_rows_max(rows, options.speculation.tokens_max,
                                                       options.memory.batch_tokens_max - rows);
    if (rows * guesses > guesses_max) break;
    const Operation at = operate_with(options, times, rows, guesses);
    if (at.itl_s < best.itl_s) best = at;
  }
  return best;
}

enum class Limit { kNone, kSequences, kStepTokens, kStepTime, kMemory, kTokenGap, kFirstToken };

// What stands against `rows` answers at once.
Limit limit_at(const CapacityOptions& options, const StepTimeModel& times, int rows) {
  MemoryOptions memory = options.memory;
  if (options.any_sequences) memory.sequences_max = rows;
  if (rows > std::min(memory.sequences_max, kSequencesMax)) return Limit::kSequences;
  if (rows >= memory.batch_tokens_max && rows > 1) return Limit::kStepTokens;
  const Result<MemoryPlan> plan = plan_memory(memory);
  const Demand& demand = options.demand;
  const auto length = static_cast<int64_t>(demand.input_tokens + demand.output_tokens);
  if (!plan.ok() || plan->sequences_at(length, memory) < rows) return Limit::kMemory;
  const Operation at = operate(options, times, rows);
  const Objectives& objectives = options.objectives;
  if (objectives.itl_s && at.itl_s > *objectives.itl_s) return Limit::kTokenGap;
  if (objectives.ttft_s && at.ttft_s > *objectives.ttft_s) return Limit::kFirstToken;
  return Limit::kNone;
}

std::string limit_words(const CapacityOptions& options, int step_tokens, Limit limit) {
  switch (limit) {
    case Limit::kNone:
      return "";
    case Limit::kSequences:
      return fmt::format("--max-num-seqs {}",
                         options.any_sequences ? kSequencesMax : options.memory.sequences_max);
    case Limit::kStepTokens:
      return fmt::format("--max-num-batched-tokens {}", step_tokens);
    case Limit::kStepTime:
      return "step time";
    case Limit::kMemory:
      return "memory";
    case Limit::kTokenGap:
      return "time between tokens";
    case Limit::kFirstToken:
      return "first token";
  }
  return "";
}

// Why not even one answer can be written.
std::string refusal(const CapacityOptions& options, const StepTimeModel& times, Limit limit) {
  const Operation at = operate(options, times, 1);
  switch (limit) {
    case Limit::kTokenGap: {
      const double lone_s = lone_itl_s(options, times);
      std::string words = fmt::format("a lone stream's tokens come every {:.2g} ms", lone_s * 1e3);
      if (lone_s > *options.objectives.itl_s) return words + " at best";
      return words + fmt::format(", but every {:.2g} ms beside the prompts of those that follow it",
                                 at.itl_s * 1e3);
    }
    case Limit::kFirstToken:
      return fmt::format("a lone prompt takes {:.2g} s", at.ttft_s);
    default: {
      const Result<MemoryPlan> memory = plan_memory(options.memory);
      const bool fits = memory.ok() && memory->fits();
      return fits ? "not one sequence of that length fits" : "the weights do not fit";
    }
  }
}

bool divides(int64_t whole_count, int part) {
  return part > 0 && whole_count % part == 0;
}

std::vector<Layout> layouts_for(const CapacityOptions& options) {
  if (!options.any_layout) return {options.memory.layout};
  const auto& shape = options.memory.shape;
  std::vector<Layout> layouts;
  for (int devices = 1; devices <= options.devices; devices *= 2) {
    if (devices > options.memory.hardware.link_domain && devices > 1) break;
    if (divides(shape.head_count, devices)) layouts.push_back({.tensor = devices});
    if (devices > 1 && shape.expert_count > 0 && divides(shape.expert_count, devices)) {
      layouts.push_back({.expert = devices});
    }
  }
  // A rack of 72 is no power of two.
  const int all = options.devices;
  if ((all & (all - 1)) != 0 && shape.expert_count > 0 && divides(shape.expert_count, all)) {
    layouts.push_back({.expert = all});
  }
  return layouts;
}

std::string refusal_of_all(const CapacityPlan& plan) {
  const LayoutChoice* const nearest = quickest_layout(plan);
  if (nearest == nullptr) return "no layout on this hardware holds the model";
  const std::string name = cost_model::layout_name(nearest->layout);
  if (plan.layouts.size() == 1) {
    return fmt::format("{} does not meet the objectives: {}", name, nearest->copy.why_not);
  }
  return fmt::format("no layout meets the objectives on this hardware; the quickest is {}: {}",
                     name, nearest->copy.why_not);
}

// Why the layout with the lowest latency or the highest throughput won.
std::string reason(const CapacityPlan& plan, const CapacityOptions& options) {
  if (plan.chosen < 0) return refusal_of_all(plan);
  const LayoutChoice& best = plan.layouts[static_cast<size_t>(plan.chosen)];
  const std::string name = cost_model::layout_name(best.layout);
  if (!options.any_layout) {
    return fmt::format("{} as asked for: {:.0f} output tokens/s per device within the objectives",
                       name, best.tokens_per_s_per_device);
  }
  std::string why = fmt::format(
      "{} gives the most output per device within the objectives ({:.0f} "
      "tokens/s)",
      name, best.tokens_per_s_per_device);
  if (best.layout.tensor > 1) {
    why +=
        "; cutting every matrix shortens the step, which the objectives ask for, at the price of "
        "two exchanges a layer";
  } else if (best.layout.expert > 1) {
    why +=
        "; dealing out the experts reads each of them once for the whole group, and attention, a "
        "sequence's on one device, needs no exchange";
  } else if (!options.objectives.itl_s) {
    why += "; a copy on each device exchanges nothing";
  }
  return why;
}

}  // namespace

Demand demand_of(const workload::OfferedLoad& load) {
  return {.input_tokens = load.prompt_tokens,
          .output_tokens = load.output_tokens,
          .requests_per_s = load.requests_per_s};
}

Result<Objectives> parse_objectives(const std::string& text) {
  const auto bad = [&](const std::string& what) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--slo '{}': {}; write ttft=500ms,itl=50ms", text, what), "slo"};
  };
  Objectives objectives;
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find(',', from), text.size());
    const std::string one = text.substr(from, end - from);
    from = end + 1;
    const size_t equals = one.find('=');
    if (equals == std::string::npos) return bad("an objective has a name and a bound");
    const std::string name = one.substr(0, equals);
    char* rest = nullptr;
    const std::string bound = one.substr(equals + 1);
    const double value = std::strtod(bound.c_str(), &rest);
    const std::string unit = rest;
    double scale = 1e-3;
    if (unit == "s") scale = 1;
    if (unit == "us") scale = 1e-6;
    if (!unit.empty() && unit != "s" && unit != "ms" && unit != "us") {
      return bad(fmt::format("'{}' is no unit of time", unit));
    }
    if (bound.empty() || !(value > 0 && value < 1e9)) return bad("a bound is a number above 0");
    if (name == "ttft") {
      objectives.ttft_s = value * scale;
    } else if (name == "itl" || name == "tpot") {
      objectives.itl_s = value * scale;
    } else {
      return bad(fmt::format("'{}' is not ttft or itl", name));
    }
  }
  return objectives;
}

namespace {

// A copy, and what keeps it from more, or where it is not possible, from one answer at all.
struct Candidate {
  CopyCapacity copy;
  Limit limit = Limit::kNone;
};

// With the tokens of a step as `options.memory` says.
Candidate capacity_at(const CapacityOptions& options, const StepTimeModel& times) {
  Candidate found;
  CopyCapacity& copy = found.copy;
  copy.step_tokens = options.memory.batch_tokens_max;
  found.limit = limit_at(options, times, 1);
  if (found.limit != Limit::kNone) {
    copy.why_not = refusal(options, times, found.limit);
    return found;
  }
  // Time between tokens rises with concurrency, and so do the prompts' waits: halve the interval.
  int good = 1;
  int bad = kSequencesMax + 1;
  while (bad - good > 1) {
    const int middle = good + (bad - good) / 2;
    (limit_at(options, times, middle) == Limit::kNone ? good : bad) = middle;
  }
  found.limit = limit_at(options, times, good + 1);
  Operation at = operate(options, times, good);
  copy.concurrency = good;
  // More at once is not always more in all: prompts wait for the step's tokens that answers take.
  for (int rows = good * 9 / 10; rows >= 1; rows = rows * 9 / 10) {
    const Operation fewer = operate(options, times, rows);
    if (fewer.requests_per_s <= at.requests_per_s * kWorthIt) continue;
    at = fewer;
    copy.concurrency = rows;
  }
  copy.possible = true;
  copy.requests_per_s = at.requests_per_s;
  copy.itl_s = at.itl_s;
  copy.ttft_s = at.ttft_s;
  copy.prefill_tokens_per_step = at.prompt_tokens;
  copy.guesses = at.guesses;
  const StepLoad load = mixed_step(options, copy.concurrency, at.prompt_tokens, at.guesses);
  copy.step_ideal_share = times.ideal_seconds(load) / times.seconds(load);
  return found;
}

bool is_more(const CopyCapacity& copy, const CopyCapacity& than) {
  return copy.possible && copy.requests_per_s > than.requests_per_s * kWorthIt;
}

Candidate best_candidate(const CapacityOptions& options, const StepTimeModel& times) {
  if (!options.any_step_tokens) return capacity_at(options, times);
  std::optional<Candidate> best;
  for (const int tokens : kStepTokens) {
    CapacityOptions with = options;
    with.memory.batch_tokens_max = tokens;
    Candidate candidate = capacity_at(with, times);
    if (!best || is_more(candidate.copy, best->copy)) best = std::move(candidate);
  }
  return *best;
}

// The same with more of what `limit` bounds.
CapacityOptions relaxed(const CapacityOptions& options, Limit limit, const CopyCapacity& copy) {
  CapacityOptions with = options;
  switch (limit) {
    case Limit::kTokenGap:
      with.objectives.itl_s.reset();
      break;
    case Limit::kFirstToken:
      with.objectives.ttft_s.reset();
      break;
    case Limit::kMemory:
      with.memory.hardware.memory_bytes *= 2;
      break;
    case Limit::kSequences:
      with.memory.sequences_max = kSequencesMax;
      break;
    case Limit::kStepTokens:
    case Limit::kStepTime:
    case Limit::kNone:
      with.any_step_tokens = false;
      with.memory.batch_tokens_max = std::max(copy.step_tokens * 2, *std::rbegin(kStepTokens));
      break;
  }
  return with;
}

// What stands against one answer more is the limit only where more of it serves more; so are a
// step's tokens. Where nothing serves more, it is the time of a step, which more answers make as
// much longer; where only all bounds together do, the first of them.
Limit limit_of(const CapacityOptions& options, const StepTimeModel& times, const Candidate& best) {
  if (best.copy.concurrency == kSequencesMax) return Limit::kSequences;
  const auto serves_more = [&](const CapacityOptions& with) {
    return is_more(best_candidate(with, times).copy, best.copy);
  };
  for (const Limit limit : {best.limit, Limit::kStepTokens}) {
    if (serves_more(relaxed(options, limit, best.copy))) return limit;
  }
  CapacityOptions free = options;
  for (const Limit limit : {Limit::kTokenGap, Limit::kFirstToken, Limit::kMemory, Limit::kSequences,
                            Limit::kStepTokens}) {
    free = relaxed(free, limit, best.copy);
  }
  return serves_more(free) ? best.limit : Limit::kStepTime;
}

}  // namespace

double Speculation::tokens_per_row(int guesses) const {
  double tokens = 1;
  for (int i = 1; i <= guesses; ++i) tokens += acceptance.survival(i);
  return tokens;
}

CopyCapacity copy_capacity(const CapacityOptions& options) {
  if (const Result<MemoryPlan> memory = plan_memory(options.memory); !memory.ok()) {
    return {.why_not = memory.error().message};
  }
  const Result<StepTimeModel> times = StepTimeModel::make(timing_options(options));
  if (!times.ok()) return {.why_not = times.error().message};
  Candidate best = best_candidate(options, *times);
  if (best.copy.possible) {
    best.copy.limited_by =
        limit_words(options, best.copy.step_tokens, limit_of(options, *times, best));
  }
  return best.copy;
}

namespace {

struct Fleet {
  double rate = 0;
  int64_t copies = 0;
  int64_t machines = 0;
  double cost_per_million = 0;
};

// As many copies as the demand takes; one where none is said.
Fleet fleet_of(const CapacityOptions& options, const Layout& layout, const CopyCapacity& copy) {
  const double usable = copy.requests_per_s * (1 - options.headroom);
  Fleet fleet{.rate = options.demand.requests_per_s > 0 ? options.demand.requests_per_s : usable};
  fleet.copies = static_cast<int64_t>(std::ceil(fleet.rate / usable - 1e-9));
  const int per_machine = std::max(options.devices / layout.devices(), 1);
  fleet.machines = (fleet.copies + per_machine - 1) / per_machine;
  const double tokens_per_hour = fleet.rate * options.demand.output_tokens * 3600;
  fleet.cost_per_million =
      static_cast<double>(fleet.machines) * options.price_per_hour / tokens_per_hour * 1e6;
  return fleet;
}

// The chosen layout again, with quicker and with slower steps.
void add_range(const CapacityOptions& options, CapacityPlan& plan) {
  CapacityOptions with = options;
  with.memory.layout = plan.layouts[static_cast<size_t>(plan.chosen)].layout;
  with.efficiency = options.efficiency.slower(1 / (1 + options.spread));
  if (const CopyCapacity quick = copy_capacity(with); quick.possible) {
    const Fleet fleet = fleet_of(with, with.memory.layout, quick);
    plan.quick_copies = fleet.copies;
    plan.quick_cost_per_million = fleet.cost_per_million;
  }
  with.efficiency = options.efficiency.slower(1 + options.spread);
  if (const CopyCapacity slow = copy_capacity(with); slow.possible) {
    const Fleet fleet = fleet_of(with, with.memory.layout, slow);
    plan.slow_copies = fleet.copies;
    plan.slow_cost_per_million = fleet.cost_per_million;
  }
}

}  // namespace

const LayoutChoice* quickest_layout(const CapacityPlan& plan) {
  const LayoutChoice* best = nullptr;
  for (const LayoutChoice& choice : plan.layouts) {
    if (!choice.memory.fits() || choice.latency_itl_s <= 0) continue;
    if (best == nullptr || choice.latency_itl_s < best->latency_itl_s) best = &choice;
  }
  return best;
}

Result<CapacityPlan> plan_capacity(const CapacityOptions& options) {
  if (!(options.headroom >= 0 && options.headroom < 1)) {
    return Error{ErrorCode::kInvalidArgument, "--headroom must be from 0 to below 1", "headroom"};
  }
  if (!(options.demand.input_tokens >= 1 && options.demand.output_tokens >= 1)) {
    return Error{ErrorCode::kInvalidArgument, "a request has at least one token in and out",
                 "workload"};
  }
  CapacityPlan plan;
  for (const Layout& layout : layouts_for(options)) {
    CapacityOptions with = options;
    with.memory.layout = layout;
    const Result<MemoryPlan> memory = plan_memory(with.memory);
    if (!memory.ok()) continue;
    LayoutChoice choice{.layout = layout, .memory = *memory, .copy = copy_capacity(with)};
    choice.tokens_per_s_per_device =
        choice.copy.requests_per_s * options.demand.output_tokens / layout.devices();
    if (const auto times = StepTimeModel::make(timing_options(with)); times.ok()) {
      choice.latency_itl_s = lone_itl_s(with, *times);
    }
    plan.layouts.push_back(std::move(choice));
  }
  for (size_t i = 0; i < plan.layouts.size(); ++i) {
    const bool is_best = plan.chosen < 0 ||
                         plan.layouts[i].tokens_per_s_per_device >
                             plan.layouts[static_cast<size_t>(plan.chosen)].tokens_per_s_per_device;
    if (plan.layouts[i].copy.possible && is_best) plan.chosen = static_cast<int>(i);
  }
  plan.why = reason(plan, options);
  if (plan.chosen < 0) return plan;
  const LayoutChoice& best = plan.layouts[static_cast<size_t>(plan.chosen)];
  const Fleet fleet = fleet_of(options, best.layout, best.copy);
  plan.copies = fleet.copies;
  plan.machines = fleet.machines;
  plan.utilization = fleet.rate / (static_cast<double>(plan.copies) * best.copy.requests_per_s);
  plan.cost_per_million = fleet.cost_per_million;
  add_range(options, plan);
  CapacityOptions with = options;
  with.memory.layout = best.layout;
  const Result<SplitCopies> split = split_copies(with, {.copies = std::max<int64_t>(plan.copies, 2),
                                                        .concurrency = best.copy.concurrency,
                                                        .chunk_tokens = best.copy.step_tokens,
                                                        .rows_max = rows_max(options, best)});
  if (split.ok()) {
    plan.prefill_per_decode =
        static_cast<double>(split->prompts) / static_cast<double>(split->answers);
  }
  return plan;
}

int64_t rows_max(const CapacityOptions& options, const LayoutChoice& layout) {
  constexpr int64_t kRowsMax = 4096;
  const double tokens = options.demand.input_tokens + options.demand.output_tokens;
  return std::clamp<int64_t>(
      layout.memory.sequences_at(static_cast<int64_t>(tokens), options.memory), 1, kRowsMax);
}

Result<double> prompt_token_seconds(const CapacityOptions& options, int chunk_tokens) {
  TRY_ASSIGN(const StepTimeModel times, StepTimeModel::make(timing_options(options)));
  const double room = std::max<double>(chunk_tokens, 1);
  const double chunk = std::min(computed_tokens(options.demand), room);
  return times.seconds(mixed_step(options, 0, chunk)) / chunk;
}

Result<SplitGain> split_gain(const CapacityOptions& options, const SplitAsked& asked) {
  const int concurrency = asked.concurrency;
  const int chunk_tokens = asked.chunk_tokens;
  TRY_ASSIGN(const StepTimeModel times, StepTimeModel::make(timing_options(options)));
  const Demand& demand = options.demand;
  SplitGain gain;
  // Together: every step carries the prompts' share of it.
  const double prompt = computed_tokens(demand);
  const double share = prompt / demand.output_tokens;
  const double room = std::max<double>(chunk_tokens, 1);
  const double prompt_tokens = share * concurrency;
  gain.together_itl_s =
      times.seconds(mixed_step(options, concurrency, std::min(prompt_tokens, room))) *
      std::max(prompt_tokens / room, 1.0);
  gain.output_tokens_per_s = concurrency / gain.together_itl_s / options.memory.layout.devices();
  // Apart: a device for prompts computes nothing but chunks.
  const double chunk = std::min(prompt, room);
  const double chunk_s = times.seconds(mixed_step(options, 0, chunk));
  const double prefill_s = prompt / chunk * chunk_s;  // of one prompt
  // Per output token of the group: so much time of prefill devices, so much of decode devices. As
  // much output from the same devices: decode devices run as few rows as that allows.
  const double together_s = 1 / gain.output_tokens_per_s / options.memory.layout.devices();
  const double wanted_s = together_s / asked.output_kept_least;
  const double prefill_token_s = prefill_s / demand.output_tokens;
  double best = 0;
  for (int rows = 1; rows <= concurrency * 4; ++rows) {
    const double itl_s = times.seconds(mixed_step(options, rows, 0));
    if (prefill_token_s + itl_s / rows <= wanted_s) {
      best = itl_s;
      gain.prefill_devices_share = prefill_token_s / (prefill_token_s + itl_s / rows);
      gain.output_kept = together_s / (prefill_token_s + itl_s / rows);
      break;
    }
  }
  if (best == 0) {
    return Error{ErrorCode::kDoesNotFit, "split devices do not reach the same output", "workload"};
  }
  gain.split_itl_s = best;
  return gain;
}

Result<SplitCopies> split_copies(const CapacityOptions& options, const SplitCopiesAsked& asked) {
  const auto d = [](auto value) { return static_cast<double>(value); };
  TRY_ASSIGN(const StepTimeModel times, StepTimeModel::make(timing_options(options)));
  const double room = std::max<double>(asked.chunk_tokens, 1);
  const double prompt = computed_tokens(options.demand);
  const double prompt_tokens = prompt / options.demand.output_tokens * asked.concurrency;
  const double together_s =
      times.seconds(mixed_step(options, asked.concurrency, std::min(prompt_tokens, room))) *
      std::max(prompt_tokens / room, 1.0);
  const double wanted = d(asked.copies) * asked.concurrency / together_s;  // output tokens a second
  const double chunk = std::min(prompt, room);
  const double prompt_s = prompt / chunk * times.seconds(mixed_step(options, 0, chunk)) /
                          options.demand.output_tokens;  // for each token of output
  std::vector<double> itl_s;                             // of so many rows and one
  for (int64_t rows = 1; rows <= asked.rows_max; ++rows) {
    itl_s.push_back(times.seconds(mixed_step(options, static_cast<int>(rows), 0)));
  }
  SplitCopies best;
  for (int64_t prompts = 1; prompts < asked.copies; ++prompts) {
    if (d(prompts) / prompt_s < wanted) continue;
    const int64_t answers = asked.copies - prompts;
    // As few rows as bring that: the fewer, the sooner their tokens come.
    for (int64_t rows = 1; rows <= asked.rows_max; ++rows) {
      const double step_s = itl_s[static_cast<size_t>(rows) - 1];
      const double output = d(answers) * d(rows) / step_s;
      if (output < wanted) continue;
      const double gain = together_s / step_s;
      if (gain > std::max(best.gain, 1.0)) {
        best = {.prompts = prompts,
                .answers = answers,
                .rows = static_cast<int>(rows),
                .gain = gain,
                .output_kept = std::min(output, d(prompts) / prompt_s) / wanted};
      }
      break;
    }
  }
  if (best.prompts > 0) return best;
  return Error{ErrorCode::kDoesNotFit, "apart they bring less than together", "workload"};
}

}  // namespace pelton::planner
