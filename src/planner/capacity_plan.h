// How many copies of a model a load needs, on which layout, at what price: an estimate of the
// steady state, by which layouts are compared; `pelton simulate` then plays the load against the
// chosen one. Pure.
//
// With B answers being written, each step brings B tokens, and to keep B answers going it must also
// compute input / output prompt tokens for each of them. So one copy sustains B / (t * output)
// requests a second, where t is that mixed step's time; t is also the mean time between tokens. A
// prompt waits half a step, then for the prompts before it (M/D/1), and is computed in chunks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cost_model/draft_acceptance.h"
#include "planner/memory_plan.h"
#include "workload/offered_load.h"

namespace pelton::planner {

struct Objectives {
  std::optional<double> ttft_s;
  std::optional<double> itl_s;  // mean time between tokens
};
// "ttft=500ms,itl=50ms"; s, ms and us, ms where there is no unit. kInvalidArgument.
Result<Objectives> parse_objectives(const std::string& text);

struct Demand {
  double input_tokens = 1024;  // of a prompt as it is sent
  double cached_tokens = 0;    // of those, found in a prefix cache: held, not computed
  double output_tokens = 256;
  double requests_per_s = 0;  // 0: not said; then one copy is planned
};

// With nothing of it in a prefix cache.
Demand demand_of(const workload::OfferedLoad& load);

// Speculation: guesses behind each answer's row, as many as bring most.
struct Speculation {
  int tokens_max = 0;
  cost_model::DraftAcceptance acceptance{0.7};
  double draft_token_s = 0;  // what guessing takes of a step, for each guess of a row

  // Of a row with so many guesses, in the mean: the sum over j of the probability that j are right
  // one after the other; of one share a, of a^j.
  double tokens_per_row(int guesses) const;
};

struct CapacityOptions {
  MemoryOptions memory;
  Speculation speculation;
  cost_model::Efficiency efficiency;
  cost_model::Correction by_rows;  // of a calibration
  cost_model::Correction by_tokens;
  cost_model::Arithmetic arithmetic = cost_model::Arithmetic::kBf16;
  Objectives objectives;
  Demand demand;
  // As many sequences at once, and tokens in a step, as serve the load best; otherwise what
  // `memory` says.
  bool any_sequences = false;
  bool any_step_tokens = false;
  bool any_layout = true;     // the best there is; otherwise `memory.layout` alone
  double spread = 0.3;        // steps may take this share longer, or be that much quicker
  double headroom = 0.2;      // of the capacity left unused on purpose
  int devices = 1;            // of the machine that is bought or rented as one
  double price_per_hour = 0;  // of that machine
};

// How steps of a copy are timed.
cost_model::StepTimeModel::Options timing_options(const CapacityOptions& options);
// `rows` answers at their mean length, each with `guesses`, beside a piece of a prompt in the
// middle of what is computed of it.
cost_model::StepLoad mixed_step(const CapacityOptions& options, int rows, double prompt_tokens,
                                int guesses = 0);

// One copy at its best within the objectives.
struct CopyCapacity {
  bool possible = false;
  std::string why_not;
  int concurrency = 0;
  int step_tokens = 0;          // --max-num-batched-tokens
  int guesses = 0;              // behind each answer's row
  std::string limited_by = {};  // what keeps it from more: "memory", "time between tokens",
                                // "step time": more at once bring no more
  double requests_per_s = 0;
  double itl_s = 0;
  double ttft_s = 0;
  double prefill_tokens_per_step = 0;
  double step_ideal_share = 0;  // of the roofline
};
CopyCapacity copy_capacity(const CapacityOptions& options);

struct LayoutChoice {
  cost_model::Layout layout;
  MemoryPlan memory;
  CopyCapacity copy;
  double tokens_per_s_per_device = 0;  // output
  double latency_itl_s = 0;            // of a lone stream
};

struct CapacityPlan {
  std::vector<LayoutChoice> layouts;  // that were looked at, in order of their devices
  int chosen = -1;                    // index; -1: none meets the objectives
  std::string why;
  int64_t copies = 0;
  int64_t machines = 0;
  // The same if steps are quicker, or take longer, by `spread`; slow_copies 0: then the objectives
  // are not met.
  int64_t quick_copies = 0;
  int64_t slow_copies = 0;
  double utilization = 0;       // of the copies' capacity
  double cost_per_million = 0;  // output tokens, dollars; 0: no price
  double quick_cost_per_million = 0;
  double slow_cost_per_million = 0;
  double prefill_per_decode = 0;  // devices for prompts to each device for answers, if split
};
// The one on which a lone stream's tokens come fastest; null: the model fits on none.
const LayoutChoice* quickest_layout(const CapacityPlan& plan);
Result<CapacityPlan> plan_capacity(const CapacityOptions& options);

// Prompts and answers on devices of their own against both together, on equal numbers of devices:
// how much faster each user's tokens come. A step that reads weights for answers and computes a
// prompt's piece meanwhile uses a device better, so apart some output may be lost.
struct SplitAsked {
  int concurrency = 1;           // answers on each copy while prompts are there too
  int chunk_tokens = 8192;       // of a prompt in a step
  double output_kept_least = 1;  // share
};
struct SplitGain {
  double together_itl_s = 0;  // a step that also computes a piece of a prompt
  double split_itl_s = 0;
  double gain() const { return split_itl_s > 0 ? together_itl_s / split_itl_s : 0; }
  double output_tokens_per_s = 0;  // of a device, together
  double output_kept = 0;          // of it, apart
  double prefill_devices_share = 0;
};
// That computing a prompt's token takes a copy which does nothing else, in pieces of so many.
Result<double> prompt_token_seconds(const CapacityOptions& options, int chunk_tokens);
// kDoesNotFit: apart they do not keep that share.
Result<SplitGain> split_gain(const CapacityOptions& options, const SplitAsked& asked);

// The same of whole copies: of so many, which computes prompts and which answers, where they bring
// as much output as together and each answer's tokens come sooner.
struct SplitCopies {
  int64_t prompts = 0;
  int64_t answers = 0;
  int rows = 0;            // answers on each copy for them
  double gain = 0;         // how much faster their tokens come
  double output_kept = 0;  // at least 1
};
struct SplitCopiesAsked {
  int64_t copies = 2;
  int concurrency = 1;      // answers on each copy while prompts are there too
  int chunk_tokens = 8192;  // of a prompt in a step
  int64_t rows_max = 1;     // answers that a copy has memory for
};
// Answers of the demand's length that a copy of this layout has memory for.
int64_t rows_max(const CapacityOptions& options, const LayoutChoice& layout);
// kDoesNotFit: however they are dealt, apart they lose.
Result<SplitCopies> split_copies(const CapacityOptions& options, const SplitCopiesAsked& asked);

}  // namespace pelton::planner
