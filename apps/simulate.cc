// pelton simulate: a load played against simulated replicas, faster than real time.
#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "apps/autoscale_flags.h"
#include "apps/engine_flags.h"
#include "apps/fleet_flags.h"
#include "apps/footprint_estimate.h"
#include "apps/input.h"
#include "apps/simulated_adapters.h"
#include "apps/speculation_flags.h"
#include "apps/verbs.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/terminal_text.h"
#include "cost_model/draft_rows.h"
#include "planner/load_share.h"
#include "report/goodput.h"
#include "report/percentile.h"
#include "report/serve_result.h"
#include "report/summary.h"
#include "simulator/fleet_text.h"
#include "simulator/simulation.h"
#include "workload/offered_load.h"

namespace pelton::apps {
namespace {

using simulator::SimulationOptions;
using simulator::SimulationResult;

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
  if (!has_hardware(arguments)) {
    node::LoadedModel::Options options;
    TRY(read_memory_flags(arguments, options.executor));
    TRY(read_batch_flags(arguments, options));
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
  return capacity;
}

// --speculative-tokens and what goes with it.
void read_speculation(const cli::Arguments& arguments, simulator::Replica::Options& replica) {
  const planner::Speculation speculation = read_modelled_speculation(arguments);
  const int tokens = speculation.tokens_max;
  engine::ExecutorCapacity& capacity = replica.capacity;
  capacity.draft_tokens_max = tokens;
  capacity.draft_rows_max =
      cost_model::draft_rows_max(capacity.sequences_max, tokens, capacity.batch_tokens_max);
  replica.draft_acceptance = speculation.acceptance;
  replica.draft_token_s = speculation.draft_token_s;
}

Result<SimulationOptions> read_options(const cli::Arguments& arguments, const std::string& model,
                                       const HardwareChoice& choice) {
  SimulationOptions options;
  TRY_ASSIGN(options.replica.capacity, capacity_of(arguments, model, choice));
  read_speculation(arguments, options.replica);
  TRY(read_simulated_adapters(arguments, options));
  node::LoadedModel::Options engine;
  TRY(read_batch_flags(arguments, engine));
  TRY(read_queue_flags(arguments, engine));
  options.replica.policy = engine.engine.policy;
  options.replica.prefix_cache = engine.engine.prefix_cache;
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
             read_autoscaling(arguments, options.replica_count, options.replica.capacity));
  TRY_ASSIGN(options.dispatch, simulator::parse_router(arguments.text("--router")));
  options.gateways = static_cast<int>(arguments.integer("--gateways"));
  options.report_s = arguments.number("--report-interval") / 1000;
  options.zones = static_cast<int>(arguments.integer("--zones"));
  options.zone_distance_s = arguments.number("--zone-distance") / 1000;
  options.seed = static_cast<uint64_t>(arguments.integer("--seed"));
  if (arguments.has("--duration")) options.duration_s = arguments.number("--duration");
  if (arguments.has("--faults")) {
    const std::string& file = arguments.text("--faults");
    TRY_ASSIGN(const std::string text, read_input(file));
    TRY_ASSIGN(const Json json, Json::parse(text));
    const int places =
        options.autoscaling ? options.autoscaling->policy.replicas_max : options.replica_count;
    TRY_ASSIGN(options.faults, simulator::parse_faults(json, places, file));
  }
  return options;
}

std::string load_text_of(const HardwareChoice& choice, const SimulationOptions& options,
                         const workload::OfferedLoad& load, double cached_share) {
  return planner::load_words(
      planner::load_share(
          choice.plan.capacity,
          {.load = load, .replicas = options.replica_count, .cached_share = cached_share}),
      options.replica_count);
}

// To be read first.
std::string preamble(const cli::Arguments& arguments, const HardwareChoice& choice) {
  const planner::CapacityOptions& capacity = choice.plan.capacity;
  std::string text = planner::worth_sentence(capacity.memory.hardware, capacity.memory.layout);
  if (choice.calibrated) return text;
  if (!has_hardware(arguments)) {
    text += fmt::format(
        " Of this machine no figures are known: those of {} stand in; give "
        "--calibration.",
        capacity.memory.hardware.title);
  }
  const auto share = [](double value) {
    return planner::format_modelled(value, planner::Unit::kShare);
  };
  return text + fmt::format(" {} of the bandwidth and {} of the {} rate are taken: {}.",
                            share(capacity.efficiency.bandwidth),
                            share(capacity.efficiency.compute),
                            cost_model::arithmetic_name(capacity.arithmetic),
                            choice.plan.efficiency_source);
}

Result<void> report_result(const cli::Arguments& arguments, const HardwareChoice& choice,
                           const workload::WorkloadSpec& spec, const workload::OfferedLoad& load,
                           const SimulationOptions& options, const SimulationResult& result,
                           double took_s) {
  TRY_ASSIGN(const std::vector<report::Objective> objectives,
             report::parse_objectives(arguments.text("--goodput")));
  const report::Summary summary = report::summarize(result.records, result.duration_s, objectives);
  const planner::MemoryOptions& memory = choice.plan.capacity.memory;
  const report::RunInfo info{
      .date = "00000000-000000",  // so that one seed gives one file
      .backend = "simulated",
      .endpoint = "none",
      .base_url = "none",
      .label = fmt::format("{} {}", memory.hardware.name, cost_model::layout_name(memory.layout)),
      .model = memory.shape.name,
      .tokenizer = "none",
      .dataset = spec.name,
      .num_prompts = spec.count,
      .request_rate = spec.arrivals.rate,
      .burstiness = spec.arrivals.burstiness,
      .max_concurrency = spec.concurrency_max,
      .input_len = spec.lengths.input_tokens,
      .output_len = spec.lengths.output_tokens,
      .hardware = fmt::format("simulated {} x {}, {}", options.replica_count, memory.hardware.title,
                              cost_model::layout_name(memory.layout)),
      .metadata = {{"simulated", "true"},
                   {"simulated_from", preamble(arguments, choice)},
                   {"seed", std::to_string(options.seed)}},
      .generator = {}};
  TRY_ASSIGN(const std::vector<double> percents,
             report::parse_percents(arguments.text("--metric-percentiles"), "metric-percentiles"));
  const report::Shown shown{.metrics = {report::Metric::kTtft, report::Metric::kTpot,
                                        report::Metric::kItl, report::Metric::kE2el},
                            .percents = percents};
  if (arguments.has("--json")) {
    const std::string json = report::result_json(info, summary, shown, result.records, false);
    if (arguments.text("--json") == "-") return write_output(json + "\n");
    TRY(base::write_file(arguments.text("--json"), json + "\n"));
  }
  return write_text(
      base::wrapped_text(preamble(arguments, choice), output_columns(), 0) + "\n" +
      report::result_text(info, summary, shown) +
      simulator::fleet_text(options, result,
                            load_text_of(choice, options, load, simulator::cached_share(result)),
                            took_s));
}

Result<void> run(const cli::Arguments& arguments) {
  const std::string& model = arguments.text("MODEL");
  TRY_ASSIGN(const HardwareChoice choice, read_hardware(arguments, model));
  const planner::CapacityOptions& capacity = choice.plan.capacity;
  TRY_ASSIGN(const cost_model::StepTimeModel times,
             cost_model::StepTimeModel::make({.hardware = capacity.memory.hardware,
                                              .shape = capacity.memory.shape,
                                              .layout = capacity.memory.layout,
                                              .efficiency = capacity.efficiency,
                                              .arithmetic = capacity.arithmetic,
                                              .kv_element_bytes = capacity.memory.kv_element_bytes,
                                              .by_rows = capacity.by_rows,
                                              .by_tokens = capacity.by_tokens}));
  TRY_ASSIGN(SimulationOptions options, read_options(arguments, model, choice));
  TRY_ASSIGN(workload::WorkloadSpec spec, read_workload(arguments));
  if (arguments.has("--max-concurrency")) {
    spec.concurrency_max = static_cast<int>(arguments.integer("--max-concurrency"));
  }
  if (!arguments.has("--workload")) spec.seed = options.seed;
  spec.arrivals.seed = spec.seed;
  options.concurrency_max = spec.concurrency_max;
  TRY_ASSIGN(const workload::Workload workload,
             workload::make_workload(spec, workload::ids_vocabulary(kVocab)));
  const base::SystemClock clock;
  const int64_t begin_ns = clock.now_ns();
  TRY_ASSIGN(const SimulationResult result, simulator::simulate(options, workload, times));
  const double took_s = static_cast<double>(clock.now_ns() - begin_ns) * 1e-9;
  return report_result(arguments, choice, spec, workload::offered_load(workload), options, result,
                       took_s);
}

// Some are of this machine alone.
std::vector<cli::Flag> memory_flags_of_here() {
  std::vector<cli::Flag> memory = memory_flags();
  for (cli::Flag& flag : memory) {
    const bool of_here =
        flag.name == "--kernels" || flag.name == "--threads" || flag.name == "--kv-cache-memory";
    if (of_here) flag.not_with = named_hardware();
  }
  return memory;
}

// Who sends requests, and from where.
std::vector<cli::Flag> gateway_flags() {
  return {
      {.name = "--gateways",
       .value = "N",
       .help = "that requests come to, each by what it knows itself",
       .kind = cli::Flag::Kind::kInteger,
       .default_text = "1",
       .least = 1,
       .most = 64},
      {.name = "--report-interval",
       .value = "MS",
       .help = "from one report of the replicas to the next, as gateways hear of them (100); 0: "
               "they see them as they are",
       .kind = cli::Flag::Kind::kNumber,
       .default_text = "0",
       .most = 10'000},
      {.name = "--zones",
       .value = "N",
       .help = "zones that gateways and replicas stand in, by turns",
       .kind = cli::Flag::Kind::kInteger,
       .default_text = "1",
       .least = 1,
       .most = 64,
       .only_with = {{"--gateways"}}},
      {.name = "--zone-distance",
       .value = "MS",
       .help = "from one zone to another, there and back",
       .kind = cli::Flag::Kind::kNumber,
       .default_text = "50",
       .most = 60'000,
       .only_with = {{"--zones"}}}};
}

// What is simulate's own.
std::vector<cli::Flag> fleet_flags() {
  return {{.name = "--replicas",
           .value = "N",
           .help = "copies of the model behind one dispatcher",
           .kind = cli::Flag::Kind::kInteger,
           .default_text = "1",
           .least = 1,
           .most = 10'000},
          {.name = "--router",
           .value = "HOW",
           .help = "who gets a request; cost: as the gateway; prefix-threshold: as SGLang",
           .default_text = "least-busy",
           .choices = simulator::router_names()},
          {.name = "--faults",
           .value = "FILE",
           .help = "what goes wrong when (docs/formats/workload.md)"},
          {.name = "--duration",
           .value = "SECONDS",
           .help = "stop there; default when all is answered",
           .kind = cli::Flag::Kind::kNumber,
           .least = 0.001,
           .most = 1e9},
          {.name = "--seed",
           .value = "S",
           .help = "of everything that is drawn",
           .kind = cli::Flag::Kind::kInteger,
           .default_text = "0"},
          {.name = "--no-noise",
           .help = "steps take what the model says, not what it left over when it was fitted",
           .kind = cli::Flag::Kind::kSwitch,
           .only_with = {{"--calibration"}}},
          {.name = "--max-concurrency",
           .value = "N",
           .help = "requests under way at once, of all clients",
           .kind = cli::Flag::Kind::kInteger,
           .least = 1,
           .most = 1e6},
          {.name = "--goodput",
           .value = "BOUNDS",
           .help = "objectives, as 'ttft:500 tpot:50', in milliseconds"},
          {.name = "--metric-percentiles",
           .value = "P,P",
           .help = "which percentiles",
           .default_text = "50,90,99"},
          {.name = "--json", .value = "FILE", .help = "also write the result; - is stdout"}};
}

}  // namespace

cli::Verb simulate_verb() {
  cli::Verb verb{
      .name = "simulate",
      .summary = "Simulates a workload on replicas, with the shipped scheduler.",
      .about =
          "Virtual time: the scheduler that serves is linked, clock and arithmetic are modelled. "
          "The\n"
          "metrics are bench serve's. One seed replays one run, byte for byte. Without --gpu or\n"
          "--instance the engine of this machine is simulated, with the blocks that serve's flags "
          "give\n"
          "it; a --calibration of this machine makes its times those measured here.",
      .positionals = {{"MODEL", "a folder, a hub id, a published shape or a config.json"}},
      .flags = fleet_flags(),
      .examples =
          {"pelton simulate gpt-oss-120b --gpu h100 --max-num-seqs 64 --request-rate 4",
           "pelton simulate ./model --calibration c.json --workload conversation",
           "pelton simulate gpt-oss-20b --gpu h100 --autoscale concurrency --max-replicas 4",
           "pelton simulate gpt-oss-20b --gpu h100 --replicas 2 --router cost --adapters 20 "
           "--max-loras 4",
           "pelton simulate gpt-oss-120b --instance p5.48xlarge --layout tp2 --replicas 4"},
      .run = run};
  std::vector<cli::Flag> hardware = hardware_flags();
  for (cli::Flag& flag : hardware) {
    if (flag.name == "--devices" || flag.name == "--layout") flag.only_with = named_hardware();
  }
  const std::vector<cli::Flag> memory = memory_flags_of_here();
  std::vector<cli::Flag> batch = batch_flags();
  for (cli::Flag& flag : batch) {
    if (flag.name == "--swap-space") flag.not_with = named_hardware();
  }
  for (std::vector<cli::Flag> some :
       {hardware, workload_flags(), memory, batch, queue_flags(), modelled_speculation_flags(),
        autoscale_flags(), gateway_flags(), simulated_adapter_flags()}) {
    for (cli::Flag& flag : some) verb.flags.push_back(std::move(flag));
  }
  return verb;
}

}  // namespace pelton::apps
