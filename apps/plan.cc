// pelton plan: what a model will take of this machine or of another, before any weight is read.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/engine_flags.h"
#include "apps/fleet_flags.h"
#include "apps/footprint_estimate.h"
#include "apps/input.h"
#include "apps/loading.h"
#include "apps/lora_flags.h"
#include "apps/speculation_flags.h"
#include "apps/speech_plan.h"
#include "apps/transcription_flags.h"
#include "apps/verbs.h"
#include "base/file.h"
#include "base/machine.h"
#include "base/terminal_text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/compact_weights.h"
#include "checkpoint/load_choice.h"
#include "cli/terminal.h"
#include "cost_model/footprint.h"
#include "executor/device.h"
#include "executor/device_step_model.h"
#include "executor/rank_bytes.h"
#include "families/published_config.h"
#include "planner/footprint_text.h"
#include "planner/published.h"
#include "simulator/published_tables.h"
#include "workload/offered_load.h"

namespace pelton::apps {
namespace {

using cost_model::Footprint;

// Of serve's flags those that other hardware is planned by, too.
constexpr std::string_view kOfAnyHardware[] = {
    "--max-model-len",     "--memory-utilization",  "--block-size",
    "--kv-cache-dtype",    "--max-num-seqs",        "--max-num-batched-tokens",
    "--max-audio-seconds", "--transcription-batch", "--transcription-beams"};

// What the model takes of this machine, where that is known and there is as much.
std::optional<int64_t> bytes_that_fit(const std::string& model,
                                      const cost_model::MemoryRequest& request) {
  const Result<Footprint> one = estimate_footprint(model, request);
  if (!one || one->bytes() > one->memory_bytes) return std::nullopt;
  return one->bytes();
}

// Where it is the model that is too large, and not what a flag asks for, the largest published ones
// that this machine holds.
Error with_what_fits(Error error, const std::string& model,
                     const cost_model::MemoryRequest& request) {
  if (error.code != ErrorCode::kDoesNotFit) return error;
  const cost_model::MemoryRequest usual{.block_tokens = request.block_tokens,
                                        .kv_dtype = request.kv_dtype,
                                        .kernels = request.kernels,
                                        .threads = request.threads,
                                        .memory_bytes = request.memory_bytes};
  if (bytes_that_fit(model, usual)) return error;
  std::vector<std::pair<int64_t, std::string_view>> fitting;
  for (const std::string_view shape : families::published_models()) {
    if (const auto bytes = bytes_that_fit(std::string(shape), usual)) {
      fitting.emplace_back(*bytes, shape);
    }
  }
  std::sort(fitting.rbegin(), fitting.rend());
  constexpr size_t kNamed = 3;
  if (fitting.size() > kNamed) fitting.resize(kNamed);
  std::vector<std::string_view> names;
  for (const auto& [bytes, name] : fitting) names.push_back(name);
  error.message += names.empty()
                       ? std::string("; of the published models none fits, whatever the flags")
                       : fmt::format("; {} would fit here", fmt::join(names, " or "));
  error.message += "; --gpu NAME plans for other hardware";
  return error;
}

// What a proposer keeps depends on the model that it guesses for.
Result<cost_model::MemoryRequest> request_of(const std::string& model,
                                             const executor::LocalExecutor::Options& options) {
  // Of ranks each has a share of the processors, and threads for those.
  if (!options.speculation.on() && options.adapters_max == 0 && !options.ranks.several()) {
    return executor::LocalExecutor::memory_request(options);
  }
  TRY_ASSIGN(const families::ModelConfig config, planned_config(model));
  return executor::LocalExecutor::memory_request(options, config);
}

Result<void> write_footprint(const cli::Arguments& arguments, const std::string& model,
                             const Footprint& footprint) {
  if (arguments.has("--json")) return write_output(cost_model::to_json(footprint).dump() + "\n");
  return write_text(planner::footprint_text(model, footprint));
}

// The GPU's memory: what --device-memory says, or what the one of this machine has.
Result<executor::DeviceStepModel::Memory> device_memory(const cli::Arguments& arguments) {
  if (arguments.has("--device-memory")) {
    const int64_t bytes = arguments.integer("--device-memory");
    return executor::DeviceStepModel::Memory{
        .device = "--device-memory", .bytes = bytes, .free_bytes = bytes};
  }
  Result<executor::DeviceChoice> choice = executor::choose_device("cuda");
  if (!choice.ok()) {
    Error error = choice.error();
    error.message += "; --device-memory 80GiB plans for one that is not here";
    return error;
  }
  const cuda::DeviceInfo& info = choice->device->info;
  return executor::DeviceStepModel::Memory{
      .device = info.name, .bytes = info.memory_bytes, .free_bytes = info.memory_free_bytes};
}

Result<void> plan_device(const cli::Arguments& arguments, const std::string& model,
                         const cost_model::MemoryRequest& request) {
  if (arguments.text("--weights") != "shipped") {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("--weights {}: a GPU computes with the weights as they are shipped, so "
                    "--device cuda takes --weights shipped only",
                    arguments.text("--weights")),
        "weights"};
  }
  TRY_ASSIGN(const families::ModelConfig config, planned_config(model));
  TRY_ASSIGN(const auto memory, device_memory(arguments));
  TRY_ASSIGN(const Footprint footprint, executor::DeviceStepModel::plan(config, request, memory));
  return write_footprint(arguments, model, footprint);
}

Result<Footprint> footprint_here(const cli::Arguments& arguments, const std::string& model,
                                 cost_model::MemoryRequest request) {
  const std::string& weights = arguments.text("--weights");
  if (weights == "int8") return estimate_packed_footprint(model, request);
  if (weights == "shipped") request.compact_from = checkpoint::kCompactFromBytes;
  return estimate_footprint(model, request);
}

// What each rank of --tensor-parallel-size holds, as serve compares it at its start; empty: one
// process has all.
Result<std::vector<executor::RankBytes>> rank_bytes_of(const cli::Arguments& arguments,
                                                       const std::string& model,
                                                       const Footprint& footprint) {
  const auto ranks = static_cast<size_t>(arguments.integer("--tensor-parallel-size"));
  if (ranks < 2) return std::vector<executor::RankBytes>{};
  if (arguments.text("--weights") == "int8") {
    return Error{
        ErrorCode::kUnsupported,
        "--tensor-parallel-size: what ranks hold of weights that are not packed yet is not "
        "known; pack the model and plan its file",
        "tensor-parallel-size"};
  }
  const Result<std::string> folder = checkpoint::resolve_model(model);
  if (!folder.ok()) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("--tensor-parallel-size: which rows a rank holds is counted in a "
                             "model's files, and those of {} are not here; --gpu with --devices "
                             "plans for a shape",
                             model),
                 "tensor-parallel-size"};
  }
  TRY_ASSIGN(const checkpoint::Checkpoint files, checkpoint::Checkpoint::open(*folder));
  return executor::plan_rank_bytes(files, std::vector<int>(ranks, 1), {}, footprint);
}

std::string ranks_text(const std::vector<executor::RankBytes>& ranks) {
  if (ranks.empty()) return "";
  std::string text = "\nof these each rank holds (working memory is each one's own)\n";
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto bytes = [](int64_t count) {
      return planner::format(static_cast<double>(count), planner::Unit::kBytes);
    };
    text += fmt::format("  rank {:<4}weights {}, KV cache and swap space {}\n", rank,
                        bytes(ranks[rank].weights), bytes(ranks[rank].caches));
  }
  return text;
}

Json ranks_json(const std::vector<executor::RankBytes>& ranks) {
  Json::Array all;
  for (const executor::RankBytes& rank : ranks) {
    Json one;
    one.set("weight_bytes", rank.weights).set("cache_bytes", rank.caches);
    all.push_back(std::move(one));
  }
  return Json(std::move(all));
}

Result<void> plan_here(const cli::Arguments& arguments, const std::string& model) {
  node::LoadedModel::Options options;
  TRY(read_memory_flags(arguments, options.executor));
  TRY(read_batch_flags(arguments, options));
  TRY(read_speculation_flag(arguments, options.executor));
  TRY(read_lora_memory_flags(arguments, options.executor));
  options.executor.ranks.count = static_cast<int>(arguments.integer("--tensor-parallel-size"));
  // As serve chooses where nobody has said.
  const Result<families::ModelConfig> config = planned_config(model);
  if (config.ok() && config->is_encoder() && options.executor.batch_from_memory) {
    options.executor.batch_tokens_max = cost_model::encoder_step_tokens(
        *config, options.executor.memory_bytes.value_or(base::memory_limit_bytes()));
  }
  TRY_ASSIGN(const cost_model::MemoryRequest request, request_of(model, options.executor));
  if (arguments.text("--device") == "cuda") return plan_device(arguments, model, request);
  const Result<Footprint> seen = footprint_here(arguments, model, request);
  if (!seen) return with_what_fits(seen.error(), model, request);
  const Footprint& footprint = *seen;
  TRY_ASSIGN(const auto mode, checkpoint::parse_load_mode(arguments.text("--load-mode")));
  TRY_ASSIGN(const checkpoint::LoadChoice choice,
             checkpoint::choose_load_mode(
                 mode, checkpoint::load_facts(footprint.weights.mapped + footprint.weights.dropped,
                                              footprint.beside_weights())));
  TRY_ASSIGN(const std::vector<executor::RankBytes> ranks,
             rank_bytes_of(arguments, model, footprint));
  if (arguments.has("--json")) {
    Json json = cost_model::to_json(footprint);
    if (!ranks.empty()) json.set("ranks", ranks_json(ranks));
    json.set("load_mode", std::string(load_mode_name(choice.mode)));
    json.set("load_mode_reason", choice.reason);
    return write_output(json.dump() + "\n");
  }
  return write_text(planner::footprint_text(model, footprint) + ranks_text(ranks) +
                    fmt::format("load mode {}\n", choice.text()));
}

Result<void> write_report(const cli::Arguments& arguments, const planner::PlanReport& report,
                          planner::Explain explain) {
  if (arguments.has("--html")) {
    TRY(base::write_file(arguments.text("--html"), planner::to_html(report)));
  }
  if (arguments.has("--json")) return write_output(planner::to_json(report).dump() + "\n");
  return write_text(planner::to_text(report, explain, output_columns()));
}

Result<void> plan_elsewhere(const cli::Arguments& arguments, const std::string& model) {
  TRY_ASSIGN(HardwareChoice choice, read_hardware(arguments, model));
  planner::FleetPlanOptions& plan = choice.plan;
  plan.memory_only = arguments.has("--memory");
  plan.capacity.any_sequences = arguments.origin("--max-num-seqs") == "default";
  plan.capacity.any_layout = !arguments.has("--layout");
  plan.capacity.any_step_tokens = arguments.origin("--max-num-batched-tokens") == "default";
  if (arguments.has("--price")) {
    plan.capacity.price_per_hour = arguments.number("--price");
    plan.price_source = "--price";
  }
  plan.context_tokens = arguments.has("--max-model-len") ? arguments.integer("--max-model-len") : 0;
  plan.batch = arguments.integer("--batch");
  TRY_ASSIGN(plan.capacity.objectives, planner::parse_objectives(arguments.text("--slo")));
  plan.capacity.headroom = arguments.number("--headroom");
  plan.with_load = arguments.has("--slo");
  for (const cli::Flag& flag : workload_flags()) plan.with_load |= arguments.has(flag.name);
  TRY_ASSIGN(plan.capacity.speculation, read_modelled_speculation(arguments));
  if (plan.with_load) {
    TRY_ASSIGN(const workload::WorkloadSpec spec, read_workload(arguments));
    TRY_ASSIGN(const workload::Workload workload,
               workload::make_workload(spec, workload::ids_vocabulary(1000)));
    write_note(workload.note);
    const workload::OfferedLoad load = workload::offered_load(workload);
    plan.capacity.demand = planner::demand_of(load);
    plan.repeated_tokens = load.repeated_tokens;
    plan.pause_s = load.pause_s;
  }
  TRY_ASSIGN(const planner::PlanReport report, planner::plan_fleet(plan));
  const planner::Explain explain =
      arguments.has("--explain") ? planner::Explain::kYes : planner::Explain::kNo;
  TRY(write_report(arguments, report, explain));
  if (!report.fits) return Error{ErrorCode::kDoesNotFit, report.headline[1], "gpu"};
  if (report.meets_objectives.value_or(true)) return {};
  return Error{ErrorCode::kDoesNotFit, report.headline.back(), "slo"};
}

// 72 values of two instance types, beside a simulation with three fitted factors for each.
planner::Section tables_section() {
  planner::Section section{.key = "tables",
                           .title =
                               "gpt-oss-120b on eight A100 and on eight L4, closed loop: "
                               "measured by others, simulated here"};
  planner::Table table{
      .key = "cells", .columns = {"cell", "measured", "modelled", "error"}, .rows = {}};
  for (const simulator::PublishedCell& cell : simulator::compare_published_tables()) {
    const std::string name =
        fmt::format("{} {} {} {} users {}", cell.instance.substr(0, cell.instance.find('.')),
                    cell.workload, cell.engine, cell.users, cell.metric);
    table.rows.push_back(
        {{.text = name},
         {.text = fmt::format("{:.2f}", cell.measured)},
         {.text = fmt::format("{:.2f}", cell.modelled)},
         {.text = fmt::format("{:+.1f} %", (cell.modelled / cell.measured - 1) * 100)}});
  }
  section.tables.push_back(std::move(table));
  for (const simulator::TableFactors& factors : simulator::table_factors()) {
    section.notes.push_back(fmt::format(
        "{}: {:.1f} % of the bandwidth, {:.1f} % of the bf16 rate and of the links, {:.1f} ms a "
        "step",
        factors.instance, factors.bandwidth * 100, factors.compute * 100, factors.step_s * 1e3));
  }
  section.notes.push_back(
      "Their lengths are not known to us: 2 048 in and 300 out, 512 in and 2 048 out, and 8 192 "
      "tokens a step are taken, as rates and gaps suggest. A share above 100 % is the fit's way of "
      "saying that another cost than reading weights rules.");
  return section;
}

Result<void> plan_published(const cli::Arguments& arguments) {
  const planner::PlanReport report{.title = "Published numbers beside the model",
                                   .sections = {planner::published_section(), tables_section()}};
  return write_report(arguments, report, planner::Explain::kYes);
}

Result<void> run_plan(const cli::Arguments& arguments) {
  if (arguments.has("--published")) return plan_published(arguments);
  const std::string& named = arguments.text("--model");
  const std::string& model = named.empty() ? arguments.text("MODEL") : named;
  if (model.empty()) {
    return Error{ErrorCode::kInvalidArgument, "which model? Give MODEL or --model", "model"};
  }
  if (const auto folder = speech_model_folder(model)) return plan_speech(arguments, model, *folder);
  TRY(refuse_speech_flags(arguments, model));
  if (has_hardware(arguments)) return plan_elsewhere(arguments, model);
  arguments.has("--memory");  // what a plan of this machine is about
  return plan_here(arguments, model);
}

// Which flags plan what: this machine, named hardware, a load on it, or nothing (--published).
std::vector<cli::Flag> load_flags_of_plan() {
  std::vector<cli::Flag> flags = {
      {.name = "--slo",
       .value = "ttft=T,itl=T",
       .help = "objectives: time to the first token, mean time between tokens; as "
               "ttft=500ms,itl=50ms"}};
  for (cli::Flag& flag : workload_flags()) flags.push_back(std::move(flag));
  only_with(flags, named_hardware());
  std::vector<cli::Flag> of_speculation;
  std::vector<cli::Flag> of_load = {{.name = "--headroom",
                                     .value = "SHARE",
                                     .help = "of the capacity left unused on purpose",
                                     .kind = cli::Flag::Kind::kNumber,
                                     .default_text = "0.2",
                                     .most = 0.99},
                                    {.name = "--price",
                                     .value = "DOLLARS",
                                     .help = "of a machine, an hour; default the instance's list "
                                             "price",
                                     .kind = cli::Flag::Kind::kNumber,
                                     .most = 1e6}};
  for (cli::Flag& flag : hardware_flags()) {
    if (flag.name == "--compute" || flag.name == "--calibration")
      of_load.push_back(std::move(flag));
  }
  std::vector<cli::Flag> of_sound = speech_load_flags();
  for (cli::Flag& flag : speech_target_flags()) of_sound.push_back(std::move(flag));
  not_with(of_sound, {{"--memory"}});
  for (cli::Flag& flag : modelled_speculation_flags()) {
    // Those that ask for another one have what that one needs.
    (flag.only_with.empty() ? of_load : of_speculation).push_back(std::move(flag));
  }
  std::vector<cli::Circumstance> a_load;
  for (const cli::Flag& flag : flags) a_load.push_back({.flag = flag.name});
  for (const char* target : {"--audio-hours", "--live-streams"}) a_load.push_back({target});
  only_with(of_load, a_load);
  for (cli::Flag& flag : of_load) flags.push_back(std::move(flag));
  for (cli::Flag& flag : of_sound) flags.push_back(std::move(flag));
  for (cli::Flag& flag : of_speculation) flags.push_back(std::move(flag));
  not_with(flags, {{"--memory"}});
  return flags;
}

std::vector<cli::Flag> flags_of_hardware() {
  std::vector<cli::Flag> flags;
  for (cli::Flag& flag : hardware_flags()) {
    if (flag.name == "--compute" || flag.name == "--calibration") continue;
    if (flag.name == "--devices" || flag.name == "--layout") flag.only_with = named_hardware();
    flags.push_back(std::move(flag));
  }
  return flags;
}

std::vector<cli::Flag> flags_of_this_machine() {
  std::vector<cli::Flag> flags;
  for (std::vector<cli::Flag> some : {memory_flags(), batch_flags(), lora_memory_flags()}) {
    for (cli::Flag& flag : some) flags.push_back(std::move(flag));
  }
  flags.push_back(
      {.name = "--weights",
       .value = "W",
       .help = "as serve takes it: shipped, mapped, or what int8 will make of the model",
       .default_text = "shipped",
       .choices = {"shipped", "mapped", "int8"}});
  for (cli::Flag& flag : transcription_flags()) {
    const bool is_of_memory =
        flag.name == "--max-audio-seconds" || flag.name.starts_with("--transcription-");
    if (is_of_memory) flags.push_back(std::move(flag));
  }
  flags.push_back({.name = "--device",
                   .value = "D",
                   .help = "memory of the processors, or of a GPU as serve would divide it",
                   .default_text = "cpu",
                   .choices = {"cpu", "cuda"}});
  flags.push_back({.name = "--device-memory",
                   .value = "BYTES",
                   .help = "of a GPU that is not here, as 80GiB; default this machine's GPU",
                   .kind = cli::Flag::Kind::kSize,
                   .least = 1,
                   .only_with = {{"--device", {"cuda"}}}});
  for (cli::Flag& flag : parallel_flags()) {
    if (flag.name != "--tensor-parallel-size") continue;
    flag.help = "ranks that serve would share the model out among: says what each holds";
    flag.not_with.push_back({"--device", {"cuda"}});
    flags.push_back(std::move(flag));
  }
  flags.push_back(load_mode_flag());
  flags.push_back(speculation_flag());
  for (cli::Flag& flag : flags) {
    const bool of_both = std::any_of(std::begin(kOfAnyHardware), std::end(kOfAnyHardware),
                                     [&](std::string_view name) { return flag.name == name; });
    if (of_both) continue;
    for (const cli::Circumstance& one : named_hardware()) flag.not_with.push_back(one);
  }
  return flags;
}

}  // namespace

constexpr std::string_view kPlanAbout =
    "Reads configuration and headers, no weights. Without --gpu or --instance it is about this\n"
    "machine: it takes serve's flags, and the numbers are those that serve allocates and logs\n"
    "at start, to the byte. With one of them it plans for that hardware: memory of each\n"
    "device, closed-form estimates beside it, what fits where; and with --slo or --workload\n"
    "how many copies on which layout, and at what price. With several devices it also\n"
    "forecasts ranks as serve's --tensor-parallel-size and --enable-expert-parallel have them;\n"
    "pipeline parallel, which serve refuses, is not planned so. As many sequences at once,\n"
    "and tokens in a step, are taken as serve the load best, unless --max-num-seqs or\n"
    "--max-num-batched-tokens say it; all layouts are compared, unless --layout names one.\n"
    "A model that does not fit ends with 5, and so does a load whose objectives no layout\n"
    "meets. MODEL may also be the name of a published shape or\n"
    "any config.json of a family that serve runs, before anything is downloaded.";

cli::Verb plan_verb() {
  cli::Verb verb{
      .name = "plan",
      .summary = "Says what a model takes, here or on other hardware, and what a load needs.",
      .about = std::string(kPlanAbout),
      .positionals = {{"MODEL",
                       "a model folder, a .gguf file, a hub id, gpt-oss-20b, gpt-oss-120b, "
                       "llama-3.1-405b or a config.json",
                       false}},
      .flags = {{.name = "--model", .value = "MODEL", .help = "the same as MODEL"},
                {.name = "--memory",
                 .help = "memory alone: weights, working memory, KV cache; all there is "
                         "without --gpu or --instance",
                 .kind = cli::Flag::Kind::kSwitch},
                {.name = "--json",
                 .help = "one JSON object, in bytes and seconds, instead of a table",
                 .kind = cli::Flag::Kind::kSwitch},
                {.name = "--html",
                 .value = "FILE",
                 .help = "also write a page that needs nothing",
                 .only_with = {{"--gpu"}, {"--instance"}, {"--published"}}},
                {.name = "--explain",
                 .help = "every number with its formula",
                 .kind = cli::Flag::Kind::kSwitch,
                 .only_with = named_hardware(),
                 .not_with = {{"--json"}}},
                {.name = "--published",
                 .help = "instead: what others measured beside what the model says of it",
                 .kind = cli::Flag::Kind::kSwitch,
                 .not_with = {{"MODEL"}}},
                {.name = "--batch",
                 .value = "N",
                 .help = "sequences of the closed-form estimate",
                 .kind = cli::Flag::Kind::kInteger,
                 .default_text = "4",
                 .least = 1,
                 .most = 1e6,
                 .only_with = named_hardware(),
                 .not_with = {{"--memory"}}}},
      .exclusive = {{"MODEL", "--model"}},
      .examples = {"pelton plan openai/gpt-oss-20b --memory",
                   "pelton plan gpt-oss-120b --memory --memory-utilization 0.9 --max-model-len 32K",
                   "pelton plan ./model --memory --json --kv-cache-memory 4GiB --max-num-seqs 64",
                   "pelton plan gpt-oss-20b --weights int8",
                   "pelton plan gpt-oss-120b --device cuda --device-memory 80GiB",
                   "pelton plan gpt-oss-120b --gpu h100 --explain",
                   "pelton plan gpt-oss-120b --instance p4de.24xlarge --slo itl=30ms --rps 50",
                   "pelton plan --published"},
      .run = run_plan,
  };
  for (std::vector<cli::Flag> some :
       {flags_of_hardware(), load_flags_of_plan(), flags_of_this_machine()}) {
    for (cli::Flag& flag : some) verb.flags.push_back(std::move(flag));
  }
  for (cli::Flag& flag : verb.flags) {
    const bool of_published =
        flag.name == "--json" || flag.name == "--html" || flag.name == "--published";
    if (!of_published) flag.not_with.push_back({.flag = "--published"});
  }
  return verb;
}

}  // namespace pelton::apps
