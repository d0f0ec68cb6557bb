#include "apps/simulated_play.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "apps/autoscale_flags.h"
#include "apps/engine_flags.h"
#include "apps/footprint_estimate.h"
#include "apps/input.h"
#include "apps/simulated_adapters.h"
#include "apps/simulated_network.h"
#include "apps/simulated_start.h"
#include "apps/simulated_travel.h"
#include "apps/speculation_flags.h"
#include "base/file.h"
#include "cost_model/draft_rows.h"
#include "simulator/fluid_fleet.h"
#include "simulator/recorded_hour.h"

namespace pelton::apps {
namespace {

using simulator::SimulationOptions;
using simulator::SimulationResult;

constexpr size_t kFactsBytesMax = size_t{256} << 20;
constexpr int kVocab = 50'000;  // of simulated tokens; only whether they are equal matters

// The engine of this machine, block for block what serve would allocate without adapters; or one on
// other hardware, with the blocks that the plan leaves room for.
Result<engine::ExecutorCapacity> capacity_of(const cli::Arguments& arguments,
                                             const std::string& model,
                                             const HardwareChoice& choice) {
  const planner::MemoryOptions& memory = choice.plan.capacity.memory;
  engine::ExecutorCapacity capacity{.block_tokens = memory.block_tokens,
                                    .sequences_max = memory.sequences_max,
                                    .batch_tokens_max = memory.batch_tokens_max,
                                    .vocab_size = kVocab};
  if (memory.shape.is_encoder()) {
    capacity.whole_prompts = true;
    capacity.pooled_sequences_max = cost_model::encoder_sequences_max(memory.batch_tokens_max);
    capacity.embedding_size = 1;  // what is in a vector is of no interest
  }
  if (!has_hardware(arguments)) {
    node::LoadedModel::Options options;
    TRY(read_memory_flags(arguments, options.executor));
    TRY(read_batch_flags(arguments, options));
    options.executor.batch_tokens_max = memory.batch_tokens_max;
    TRY_ASSIGN(const cost_model::MemoryRequest request,
               executor::LocalExecutor::memory_request(options.executor));
    TRY_ASSIGN(const cost_model::Footprint footprint, estimate_footprint(model, request));
    capacity.block_tokens = footprint.kv.block_tokens;
    capacity.groups = footprint.kv_capacity();
    capacity.context_tokens_max = footprint.context_tokens_max;
    return capacity;
  }
  TRY_ASSIGN(const planner::MemoryPlan plan, planner::plan_memory(memory));
  capacity.groups = planner::kv_capacity(memory, plan);
  if (!plan.fits() || capacity.kv_tokens() < 1) {
    return Error{ErrorCode::kDoesNotFit,
                 fmt::format("{} does not fit on {}", memory.shape.name,
                             cost_model::layout_name(memory.layout)),
                 "layout"};
  }
  const int64_t asked =
      arguments.has("--max-model-len") ? arguments.integer("--max-model-len") : INT32_MAX;
  capacity.context_tokens_max =
      static_cast<int>(std::min(asked, std::max<int64_t>(plan.longest_context(memory), 1)));
  // A text is computed whole, so the step is its bound.
  if (!capacity.whole_prompts) return capacity;
  capacity.context_tokens_max = std::min(capacity.context_tokens_max, capacity.batch_tokens_max);
  return capacity;
}

// An encoder's requests have no answers: each ends with its text's step.
Result<void> leave_out_answers(const cli::Arguments& arguments, Play& play) {
  const families::ModelConfig& shape = play.choice.plan.capacity.memory.shape;
  const bool is_made = play.spec.dataset == workload::WorkloadSpec::Dataset::kRandom;
  if (!shape.is_encoder() || !is_made) return {};
  if (!arguments.has("--output-len")) {
    set_output_tokens(play.spec, 0);
    return {};
  }
  if (arguments.integer("--output-len") <= 1) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} makes no text: its requests have --output-len 0", shape.name),
               "output-len"};
}

// --speculative-tokens and what goes with it.
Result<void> read_speculation(const cli::Arguments& arguments,
                              simulator::Replica::Options& replica) {
  TRY_ASSIGN(const planner::Speculation speculation, read_modelled_speculation(arguments));
  const int tokens = speculation.tokens_max;
  engine::ExecutorCapacity& capacity = replica.capacity;
  capacity.draft_tokens_max = tokens;
  capacity.draft_rows_max =
      cost_model::draft_rows_max(capacity.sequences_max, tokens, capacity.batch_tokens_max);
  replica.draft_acceptance = speculation.acceptance;
  replica.draft_token_s = speculation.draft_token_s;
  return {};
}

Result<void> read_faults(const cli::Arguments& arguments, const simulator::Scenario* scenario,
                         SimulationOptions& options) {
  const simulator::FaultPlaces places{
      .replicas = options.autoscaling ? options.autoscaling->replicas_max() : options.replica_count,
      .zones = options.zones};
  if (arguments.has("--faults")) {
    const std::string& file = arguments.text("--faults");
    TRY_ASSIGN(const std::string text, read_input(file));
    TRY_ASSIGN(const Json json, Json::parse(text));
    TRY_ASSIGN(options.faults, simulator::parse_faults(json, places, file));
  } else if (scenario != nullptr && scenario->faults) {
    TRY_ASSIGN(options.faults, simulator::parse_faults(*scenario->faults, places, scenario->name));
  }
  return {};
}

void read_clients(const cli::Arguments& arguments, simulator::Clients& clients) {
  if (arguments.has("--patience")) clients.patience_s = arguments.number("--patience");
  clients.retries_max = static_cast<int>(arguments.integer("--client-retries"));
  clients.back_off_s = arguments.number("--client-back-off");
}

// Of a fleet that is scaled --prefill-replicas are those at the beginning: as few as there may be,
// unless it says otherwise.
void read_roles(const cli::Arguments& arguments, SimulationOptions& options) {
  if (!options.autoscaling || !options.autoscaling->policy.prefill) return;
  simulator::Autoscaling& asked = *options.autoscaling;
  const bool is_said = arguments.source("--prefill-replicas") != cli::Arguments::Source::kDefault;
  const int least = asked.replicas > 0 ? asked.policy.prefill->replicas_min : 0;
  asked.prefill_replicas = is_said ? options.prefill_replicas : least;
  options.prefill_replicas = 0;
}

// `scenario`: null: none.
Result<SimulationOptions> read_options(const cli::Arguments& arguments, const std::string& model,
                                       const HardwareChoice& choice,
                                       const simulator::Scenario* scenario) {
  SimulationOptions options;
  options.answers_go_on = true;  // as behind a gateway, whatever hears of whom
  TRY_ASSIGN(options.replica.capacity, capacity_of(arguments, model, choice));
  TRY(read_simulated_travel(arguments, options));
  TRY(read_speculation(arguments, options.replica));
  TRY(read_simulated_adapters(arguments, options));
  node::LoadedModel::Options engine;
  TRY(read_batch_flags(arguments, engine));
  TRY(read_queue_flags(arguments, engine));
  options.replica.policy = engine.engine.policy;
  // An encoder keeps nothing that could be found again.
  options.replica.prefix_cache =
      engine.engine.prefix_cache && !options.replica.capacity.whole_prompts;
  options.replica.steps_in_flight_max = engine.engine.steps_in_flight_max;
  options.replica.overlapped_step_ns_max = engine.engine.overlapped_step_ns_max;
  options.replica.inbox_max = engine.engine.inbox_max;
  options.replica.queued_tokens_max = engine.engine.queued_tokens_max;
  options.replica.queue_wait_max_ns = engine.engine.queue_wait_max_ns;
  if (!arguments.has("--no-noise")) {
    options.replica.residuals = choice.calibration.residuals;
    options.replica.prompt_residuals = choice.calibration.prompt_residuals;
  }
  options.overhead = choice.calibration.overhead;
  options.replica_count = static_cast<int>(arguments.integer("--replicas"));
  TRY_ASSIGN(options.autoscaling,
             read_autoscaling(arguments, options.replica_count, options.replica.capacity,
                              scenario != nullptr ? scenario->scaling : std::nullopt));
  if (options.autoscaling) TRY(read_simulated_start(arguments, choice, *options.autoscaling));
  if (options.replica_count == 0 && !options.autoscaling) {
    return Error{ErrorCode::kInvalidArgument,
                 "--replicas 0: nobody starts one; give --autoscale or --scale-config",
                 "--replicas"};
  }
  options.replica_count = std::max(options.replica_count, 1);  // the autoscaling has its own
  read_roles(arguments, options);
  TRY_ASSIGN(options.dispatch, simulator::parse_router(arguments.text("--router")));
  options.gateways = static_cast<int>(arguments.integer("--gateways"));
  options.report_s = arguments.number("--report-interval") / 1000;
  options.zones = static_cast<int>(arguments.integer("--zones"));
  options.zone_distance_s = arguments.number("--zone-distance") / 1000;
  options.seed = static_cast<uint64_t>(arguments.integer("--seed"));
  if (arguments.has("--duration")) options.duration_s = arguments.number("--duration");
  read_clients(arguments, options.clients);
  TRY(read_faults(arguments, scenario, options));
  read_simulated_network(arguments, options);
  return options;
}

Result<workload::WorkloadSpec> workload_of(const cli::Arguments& arguments, uint64_t seed,
                                           const simulator::Scenario* scenario) {
  std::optional<workload::WorkloadSpec> otherwise;
  if (scenario != nullptr && scenario->workload) {
    TRY_ASSIGN(otherwise, workload::parse_spec(*scenario->workload, scenario->name));
  }
  if (arguments.knows("--requests") && arguments.has("--requests")) {
    const std::string& file = arguments.text("--requests");
    otherwise = workload::WorkloadSpec{
        .name = file, .dataset = workload::WorkloadSpec::Dataset::kTrace, .count = 0};
    otherwise->file = file;
  }
  TRY_ASSIGN(workload::WorkloadSpec spec, read_workload(arguments, otherwise));
  if (arguments.has("--max-concurrency")) {
    spec.concurrency_max = static_cast<int>(arguments.integer("--max-concurrency"));
  }
  if (!arguments.has("--workload") && !otherwise) spec.seed = seed;
  if (otherwise && arguments.source("--seed") == cli::Arguments::Source::kWord) spec.seed = seed;
  spec.arrivals.seed = spec.seed;
  return spec;
}

// Requests come when they came, as an autoscaler counted them.
Result<void> use_facts(const cli::Arguments& arguments, Play& play) {
  const std::string& file = arguments.text("--facts");
  TRY_ASSIGN(const std::string text, read_input(file, kFactsBytesMax));
  TRY_ASSIGN(simulator::RecordedHour hour,
             simulator::read_recorded_hour(text, file, arguments.text("--pool"), 0));
  fmt::print(stderr, "{} decisions, each as it was recorded; {} requests in {:.1f} s\n",
             hour.decisions, hour.at_s.size(), hour.duration_s);
  if (hour.at_s.empty()) {
    return Error{ErrorCode::kInvalidArgument, file + ": nobody asked anything in it", "facts"};
  }
  if (play.spec.dataset == workload::WorkloadSpec::Dataset::kTrace) {
    return Error{ErrorCode::kInvalidArgument, "--facts has no effect: a trace says itself when",
                 "facts"};
  }
  play.spec.name = "recorded facts";
  play.spec.count = std::ssize(hour.at_s);
  play.workload.at_s = std::move(hour.at_s);
  return {};
}

}  // namespace

Result<Play> read_play(const cli::Arguments& arguments, const std::string& model,
                       const simulator::Scenario* scenario) {
  Play play;
  play.is_fluid = arguments.knows("--fidelity") && arguments.text("--fidelity") == "fluid";
  TRY_ASSIGN(play.choice, read_hardware(arguments, model));
  cost_model::Efficiency& efficiency = play.choice.plan.capacity.efficiency;
  if (scenario != nullptr && !play.choice.calibrated &&
      (scenario->bandwidth || scenario->compute)) {
    efficiency.bandwidth = scenario->bandwidth.value_or(efficiency.bandwidth);
    efficiency.compute = scenario->compute.value_or(efficiency.compute);
    efficiency.attention = scenario->compute.value_or(efficiency.attention);
    play.choice.plan.efficiency_source = "the scenario says so";
  }
  TRY_ASSIGN(play.options, read_options(arguments, model, play.choice, scenario));
  TRY_ASSIGN(play.spec, workload_of(arguments, play.options.seed, scenario));
  TRY(leave_out_answers(arguments, play));
  play.options.concurrency_max = play.spec.concurrency_max;
  if (arguments.has("--facts")) {
    TRY(use_facts(arguments, play));
    std::vector<double> at_s = std::move(play.workload.at_s);
    TRY_ASSIGN(play.workload, workload::make_workload(play.spec, workload::ids_vocabulary(kVocab)));
    play.workload.at_s = std::move(at_s);
    play.workload.conversations.resize(play.workload.at_s.size());
    return play;
  }
  TRY_ASSIGN(play.workload, workload::make_workload(play.spec, workload::ids_vocabulary(kVocab)));
  if (play.spec.count == 0) play.spec.count = std::ssize(play.workload.conversations);
  return play;
}

Result<cost_model::StepTimeModel> times_of(const Play& play) {
  const planner::CapacityOptions& capacity = play.choice.plan.capacity;
  return cost_model::StepTimeModel::make({.hardware = capacity.memory.hardware,
                                          .shape = capacity.memory.shape,
                                          .layout = capacity.memory.layout,
                                          .efficiency = capacity.efficiency,
                                          .arithmetic = capacity.arithmetic,
                                          .kv_element_bytes = capacity.memory.kv_element_bytes,
                                          .by_rows = capacity.by_rows,
                                          .by_tokens = capacity.by_tokens});
}

Result<SimulationResult> simulate_play(const Play& play) {
  TRY_ASSIGN(const cost_model::StepTimeModel times, times_of(play));
  return play.is_fluid ? simulator::simulate_fluid(play.options, play.workload, times)
                       : simulator::simulate(play.options, play.workload, times);
}

}  // namespace pelton::apps
