#include "apps/fleet_flags.h"

#include <algorithm>
#include <cctype>
#include <limits>

#include <fmt/format.h>

#include "apps/input.h"
#include "base/machine.h"
#include "checkpoint/checkpoint.h"
#include "cost_model/footprint.h"
#include "tensor/kv_block.h"

namespace pelton::apps {
namespace {

using cli::Flag;

Result<families::ModelConfig> shape_of(const std::string& model) {
  if (cost_model::is_known_model(model) || model.ends_with(".json")) {
    return cost_model::find_model_config(model);
  }
  TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(model));
  TRY_ASSIGN(families::ModelConfig shape, cost_model::find_model_config(folder));
  shape.name = model;
  return shape;
}

// Without anybody's measurement: of steps, either way. A guess, like the shares themselves.
constexpr double kSpreadAssumed = 0.3;
constexpr double kSpreadLeast = 0.05;
// What stands in for a machine of which we know no figures.
constexpr const char* kThisMachine = "cpu-zen4-2";
constexpr int kDevicesMax = 4096;

Result<void> read_calibration(const cli::Arguments& arguments, HardwareChoice& choice) {
  planner::CapacityOptions& capacity = choice.plan.capacity;
  const auto& rates = capacity.memory.hardware.rates;
  // The widest type that everything computes in, unless somebody knows better.
  capacity.arithmetic = rates.contains(cost_model::Arithmetic::kBf16)
                            ? cost_model::Arithmetic::kBf16
                            : rates.begin()->first;
  if (arguments.has("--calibration")) {
    const std::string& file = arguments.text("--calibration");
    TRY_ASSIGN(const std::string text, read_input(file));
    TRY_ASSIGN(const Json json, Json::parse(text));
    TRY_ASSIGN(choice.calibration, cost_model::Calibration::from_json(json, file));
    const std::string& measured = choice.calibration.hardware;
    if (!measured.empty() && measured != capacity.memory.hardware.name) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{} was measured on {}, not on {}", file, measured,
                               capacity.memory.hardware.name),
                   "calibration"};
    }
    choice.calibrated = true;
    choice.plan.efficiency_source = "measured, " + file;
    capacity.spread = std::max(choice.calibration.error_p90, kSpreadLeast);
    capacity.efficiency = choice.calibration.efficiency;
    capacity.by_rows = choice.calibration.by_rows;
    capacity.by_tokens = choice.calibration.by_tokens;
    TRY_ASSIGN(capacity.arithmetic, cost_model::parse_arithmetic(choice.calibration.arithmetic));
  }
  if (arguments.has("--compute")) {
    TRY_ASSIGN(capacity.arithmetic, cost_model::parse_arithmetic(arguments.text("--compute")));
  }
  TRY(capacity.memory.hardware.rate(capacity.arithmetic));
  return {};
}

}  // namespace

std::vector<Flag> hardware_flags() {
  return {{.name = "--gpu",
           .value = "NAME",
           .help = "hardware by name (h100, l4, ...) or a data file of your own; see "
                   "src/cost_model/data"},
          {.name = "--instance",
           .value = "NAME",
           .help = "a machine by name: p4de.24xlarge, g6.48xlarge, p5.48xlarge, gb200-nvl72, ..."},
          {.name = "--devices",
           .value = "N",
           .help = "devices of one machine; default 1, or the instance's",
           .kind = Flag::Kind::kInteger,
           .least = 1,
           .most = kDevicesMax},
          {.name = "--layout",
           .value = "L",
           .help = "how one copy lies on devices: tp8, ep4, tp4pp2; default the fewest it fits on, "
                   "and for a load the best of all"},
          {.name = "--compute",
           .value = "TYPE",
           .help = "what products are computed in; default what was calibrated, or bf16",
           .choices = {"f32", "bf16", "int8", "fp8", "fp4"}},
          {.name = "--calibration",
           .value = "FILE",
           .help = "of pelton calibrate; without it the instance's fit to published numbers, or "
                   "assumed shares of the datasheet"}};
}

std::vector<cli::Circumstance> named_hardware() {
  return {{.flag = "--gpu"}, {.flag = "--instance"}};
}

void only_with(std::vector<Flag>& flags, const std::vector<cli::Circumstance>& any_of) {
  for (Flag& flag : flags) {
    flag.only_with.insert(flag.only_with.end(), any_of.begin(), any_of.end());
  }
}

void not_with(std::vector<Flag>& flags, const std::vector<cli::Circumstance>& none_of) {
  for (Flag& flag : flags) {
    flag.not_with.insert(flag.not_with.end(), none_of.begin(), none_of.end());
  }
}

bool has_hardware(const cli::Arguments& arguments) {
  return arguments.has("--gpu") || arguments.has("--instance");
}

std::vector<Flag> workload_flags() {
  return {
      {.name = "--workload",
       .value = "W",
       .help = "prefill-heavy, decode-heavy, conversation, or a file (docs/formats/workload.md)"},
      {.name = "--request-rate",
       .value = "RPS",
       .help = "requests a second, or inf; instead of the workload's",
       .aliases = {"--rps"}},
      {.name = "--num-prompts",
       .value = "N",
       .help = "conversations; instead of the workload's",
       .kind = Flag::Kind::kSize,
       .least = 1,
       .most = 1e7},
      {.name = "--input-len",
       .value = "TOKENS",
       .help = "of random prompts; instead of the workload's",
       .kind = Flag::Kind::kSize,
       .least = 1,
       .most = 1e7},
      {.name = "--output-len",
       .value = "TOKENS",
       .help = "of answers, 0: none, a request ends with its prompt; instead of the workload's",
       .kind = Flag::Kind::kSize,
       .least = 0,
       .most = 1e7},
      {.name = "--random-range-ratio",
       .value = "R",
       .help = "random lengths vary by this share both ways; instead of the workload's",
       .kind = Flag::Kind::kNumber,
       .most = 0.999}};
}

void set_output_tokens(workload::WorkloadSpec& spec, int64_t tokens) {
  // The step that computes a prompt's last token gives the first of its answer: none is one.
  spec.lengths.output_tokens = static_cast<int>(std::max<int64_t>(tokens, 1));
  if (tokens > 0) return;
  write_note(
      "No answers: a request ends with its prompt's last step, whose result counts as one output "
      "token.");
}

Result<workload::WorkloadSpec> read_workload(
    const cli::Arguments& arguments, const std::optional<workload::WorkloadSpec>& otherwise) {
  workload::WorkloadSpec spec = otherwise.value_or(workload::WorkloadSpec{.name = "random"});
  if (!otherwise) spec.arrivals.rate = std::numeric_limits<double>::infinity();
  if (arguments.has("--workload")) {
    TRY_ASSIGN(spec, workload::read_spec(arguments.text("--workload")));
  }
  const bool is_made = spec.dataset == workload::WorkloadSpec::Dataset::kRandom;
  // What has no effect is refused as a word; a variable is for other workloads too.
  const auto is_word = [&](const char* flag) {
    return arguments.has(flag) && arguments.source(flag) == cli::Arguments::Source::kWord;
  };
  for (const char* flag : {"--input-len", "--output-len", "--random-range-ratio"}) {
    if (is_made || !is_word(flag)) continue;
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("{} has no effect: the lengths of {} are recorded in it", flag, spec.name),
        flag};
  }
  const bool is_trace = spec.dataset == workload::WorkloadSpec::Dataset::kTrace;
  if (is_trace && is_word("--request-rate")) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("--request-rate has no effect: {} says when its requests come", spec.name),
        "--request-rate"};
  }
  if (!is_trace && arguments.has("--request-rate")) {
    TRY_ASSIGN(spec.arrivals.rate,
               workload::parse_rate(arguments.text("--request-rate"), "request-rate"));
  }
  if (arguments.has("--num-prompts")) spec.count = arguments.integer("--num-prompts");
  if (is_made && arguments.has("--input-len")) {
    spec.lengths.input_tokens = static_cast<int>(arguments.integer("--input-len"));
  }
  if (is_made && arguments.has("--output-len")) {
    set_output_tokens(spec, arguments.integer("--output-len"));
  }
  if (is_made && arguments.has("--random-range-ratio")) {
    spec.lengths.range_ratio = arguments.number("--random-range-ratio");
  }
  return spec;
}

Result<cost_model::Layout> parse_layout(const std::string& text) {
  const auto bad = [&] {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--layout '{}' is not like tp8, ep4, pp2 or tp4pp2", text), "layout"};
  };
  cost_model::Layout layout;
  if (text == "1") return layout;
  if (text.empty()) return bad();
  for (size_t at = 0; at < text.size();) {
    const std::string kind = text.substr(at, 2);
    at += kind.size();
    int count = 0;
    while (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) &&
           count < 100'000) {
      count = count * 10 + (text[at++] - '0');
    }
    if (count < 1 || count > kDevicesMax) return bad();
    if (kind == "tp") {
      layout.tensor = count;
    } else if (kind == "ep") {
      layout.expert = count;
    } else if (kind == "pp") {
      layout.pipeline = count;
    } else {
      return bad();
    }
  }
  const int64_t devices = int64_t{layout.tensor} * layout.expert * layout.pipeline;
  if (devices <= kDevicesMax) return layout;
  return Error{
      ErrorCode::kInvalidArgument,
      fmt::format("--layout '{}' takes {} devices, more than {}", text, devices, kDevicesMax),
      "layout"};
}

namespace {

// A variable's instance of other GPUs than --gpu names yields to the word.
bool names_instance(const cli::Arguments& arguments) {
  if (!arguments.has("--instance")) return false;
  if (arguments.source("--instance") >= arguments.source("--gpu")) return true;
  const auto instance = cost_model::find_instance(arguments.text("--instance"));
  return instance.ok() && instance->gpu == arguments.text("--gpu");
}

// On no more devices than there are; where nobody said how many, there are as many as it takes.
Result<void> read_layout(const cli::Arguments& arguments, planner::FleetPlanOptions& plan) {
  const std::string& text = arguments.text("--layout");
  cost_model::Layout& layout = plan.capacity.memory.layout;
  TRY_ASSIGN(layout, parse_layout(text));
  const bool said = arguments.has("--devices") || !plan.machine.empty();
  if (!said) plan.capacity.devices = layout.devices();
  if (layout.devices() <= plan.capacity.devices) return {};
  // By the names that the user wrote: those of variables, or lines of a file, too.
  const std::string there =
      arguments.has("--devices")
          ? fmt::format("{} {} says", arguments.origin("--devices"), plan.capacity.devices)
          : fmt::format("the {} of {}", plan.capacity.devices, plan.machine);
  const bool is_word = arguments.source("--layout") == cli::Arguments::Source::kWord;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} {} takes {} devices, more than {}", is_word ? "--layout" : "layout",
                           text, layout.devices(), there),
               "--layout"};
}

}  // namespace

Result<void> read_machine(const cli::Arguments& arguments, planner::FleetPlanOptions& plan) {
  plan.capacity.spread = kSpreadAssumed;
  plan.efficiency_source = "assumed, nobody measured it; give --calibration";
  std::string gpu = arguments.text("--gpu");
  if (names_instance(arguments)) {
    TRY_ASSIGN(const cost_model::Instance instance,
               cost_model::find_instance(arguments.text("--instance")));
    if (arguments.source("--gpu") < arguments.source("--instance")) gpu.clear();
    if (!gpu.empty() && gpu != instance.gpu) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{} has {}, not {}", instance.name, instance.gpu, gpu), "gpu"};
    }
    gpu = instance.gpu;
    plan.machine = instance.name;
    plan.price_source = instance.source;
    plan.capacity.devices = instance.count;
    plan.capacity.price_per_hour = instance.price_per_hour;
    if (instance.fit) {
      plan.capacity.efficiency = cost_model::Efficiency::of(*instance.fit);
      plan.capacity.spread = instance.fit->error_p90;
      plan.efficiency_source = instance.fit->source;
    }
  }
  if (gpu.empty()) gpu = kThisMachine;
  TRY_ASSIGN(plan.capacity.memory.hardware, cost_model::find_hardware(gpu));
  if (arguments.has("--devices")) {
    plan.capacity.devices = static_cast<int>(arguments.integer("--devices"));
  }
  return {};
}

Result<HardwareChoice> read_hardware(const cli::Arguments& arguments, const std::string& model) {
  HardwareChoice choice;
  planner::FleetPlanOptions& plan = choice.plan;
  planner::MemoryOptions& memory = plan.capacity.memory;
  TRY(read_machine(arguments, plan));
  TRY_ASSIGN(memory.shape, shape_of(model));
  if (arguments.has("--memory-utilization")) {
    memory.utilization = arguments.number("--memory-utilization");
  }
  memory.sequences_max = static_cast<int>(arguments.integer("--max-num-seqs"));
  memory.batch_tokens_max = static_cast<int>(arguments.integer("--max-num-batched-tokens"));
  // As serve chooses where nobody has said: of the device's memory, or of this machine's.
  if (memory.shape.is_encoder() &&
      arguments.source("--max-num-batched-tokens") == cli::Arguments::Source::kDefault) {
    memory.batch_tokens_max = cost_model::encoder_step_tokens(
        memory.shape,
        has_hardware(arguments) ? memory.hardware.memory_bytes : base::memory_limit_bytes());
  }
  memory.block_tokens = static_cast<int>(arguments.integer("--block-size"));
  TRY_ASSIGN(const auto kv_type, tensor::parse_kv_type(arguments.text("--kv-cache-dtype")));
  memory.kv_element_bytes = kv_type && tensor::kv_has_scales(*kv_type) ? 1 : 2;
  TRY(read_calibration(arguments, choice));
  if (arguments.has("--layout")) {
    TRY(read_layout(arguments, plan));
    return choice;
  }
  // The fewest devices it fits on, cut by tensors.
  for (int devices = 1; devices <= plan.capacity.devices; devices *= 2) {
    planner::MemoryOptions tried = memory;
    tried.layout = {.tensor = devices};
    const Result<planner::MemoryPlan> fits = planner::plan_memory(tried);
    if (!fits.ok()) break;
    memory.layout = tried.layout;
    if (fits->sequences_at(2048, tried) > 0) break;
  }
  return choice;
}

}  // namespace pelton::apps
