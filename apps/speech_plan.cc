#include "apps/speech_plan.h"

#include <fmt/format.h>

#include "apps/fleet_flags.h"
#include "apps/input.h"
#include "base/file.h"
#include "base/json.h"
#include "base/machine.h"
#include "checkpoint/checkpoint.h"
#include "cli/human_size.h"
#include "cli/terminal.h"
#include "models/whisper_config.h"
#include "node/loaded_speech_model.h"

namespace pelton::apps {
namespace {

using Memory = node::LoadedSpeechModel::Memory;

std::string bytes_text(int64_t bytes) {
  return cli::format_bytes(static_cast<double>(bytes));
}

// What serve would claim of this machine.
struct Claim {
  Memory memory;
  int64_t each_more_bytes = 0;  // of `memory`'s workspace each window but one
  double seconds_max = 0;       // of a file
  int64_t here = 0;
};

Json to_json(const Claim& claim) {
  const Memory& memory = claim.memory;
  Json json{Json::Object{}};
  json.set("family", "whisper").set("task", "speech to text");
  json.set("weight_bytes", memory.weights).set("workspace_bytes", memory.workspace);
  json.set("each_more_bytes", claim.each_more_bytes);
  json.set("sound_bytes", memory.sound).set("total_bytes", memory.bytes());
  json.set("audio_seconds_max", claim.seconds_max).set("memory_bytes", claim.here);
  return json;
}

std::string to_text(const std::string& model, const Claim& claim) {
  const Memory& memory = claim.memory;
  std::string text = fmt::format("{}: speech to text, on the processors\n", model);
  const auto line = [&](std::string_view what, int64_t bytes, const std::string& why) {
    text += fmt::format("  {:<10}{:>12}  {}\n", what, bytes_text(bytes), why);
  };
  line("weights", memory.weights, "in the file");
  line("windows", memory.workspace,
       fmt::format("30 s of sound each while they are heard (--transcription-batch), and their "
                   "keys and values: {} for each more",
                   bytes_text(claim.each_more_bytes)));
  line("sound", memory.sound,
       fmt::format("files of at most {:.0f} s (--max-audio-seconds) that are read, parked and "
                   "heard",
                   claim.seconds_max));
  line("in all", memory.bytes(), fmt::format("of {} here", bytes_text(claim.here)));
  return text;
}

}  // namespace

std::optional<std::string> speech_model_folder(const std::string& model) {
  const Result<std::string> folder = checkpoint::resolve_model(model);
  if (folder.ok() && node::is_speech_model(*folder)) return *folder;
  return std::nullopt;
}

Result<void> refuse_speech_flags(const cli::Arguments& arguments, const std::string& model) {
  for (const std::string flag :
       {"--max-audio-seconds", "--max-num-transcriptions", "--transcription-batch",
        "--transcription-beams", "--audio-seconds", "--audio-tokens-per-second", "--audio-hours",
        "--live-streams", "--live-delay"}) {
    if (!arguments.knows(flag) || arguments.source(flag) != cli::Arguments::Source::kWord) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} is of speech models, and {} is none here", flag, model),
                 flag.substr(2)};
  }
  return {};
}

namespace {

node::LoadedSpeechModel::Bounds bounds_of(const cli::Arguments& arguments) {
  return {.audio_seconds_max = arguments.number("--max-audio-seconds"),
          .batch_max = static_cast<int>(arguments.integer("--transcription-batch")),
          .beams_max = static_cast<int>(arguments.integer("--transcription-beams"))};
}

cost_model::SpeechShape shape_of(const models::WhisperConfig& config, int64_t weight_bytes) {
  cost_model::SpeechShape shape{
      .hidden = config.hidden_size,
      .mel_bands = config.mel_bands,
      .vocab = config.vocab_size,
      .positions = config.source_positions,
      .text_positions = config.target_positions,
      .encoder = {.layers = config.encoder.layers, .inner = config.encoder.inner},
      .decoder = {.layers = config.decoder.layers, .inner = config.decoder.inner}};
  shape.weight_bits = static_cast<double>(weight_bytes) * 8 / shape.parameters();
  return shape;
}

// Of a replica. Files before a GPU wait in the memory of its host.
std::vector<planner::MemoryLine> memory_lines(const Memory& memory, const cli::Arguments& arguments,
                                              bool is_processor) {
  std::vector<planner::MemoryLine> lines{
      {.name = "weights", .bytes = static_cast<double>(memory.weights), .formula = "in the file"},
      {.name = "windows",
       .bytes = static_cast<double>(memory.workspace),
       .formula = fmt::format("{} heard together (--transcription-batch)",
                              arguments.integer("--transcription-batch"))}};
  if (is_processor) {
    lines.push_back({.name = "sound",
                     .bytes = static_cast<double>(memory.sound),
                     .formula = fmt::format("files of at most {} s (--max-audio-seconds)",
                                            arguments.number("--max-audio-seconds"))});
  }
  return lines;
}

Result<void> read_targets(const cli::Arguments& arguments, planner::SpeechPlanOptions& plan) {
  if (arguments.has("--audio-hours")) plan.audio_hours_per_hour = arguments.number("--audio-hours");
  if (arguments.has("--live-streams")) plan.live_streams = arguments.integer("--live-streams");
  plan.live_delay_s = arguments.number("--live-delay");
  plan.file_seconds = arguments.number("--audio-seconds");
  plan.headroom = arguments.number("--headroom");
  if (!arguments.has("--price")) return {};
  plan.price_per_hour = arguments.number("--price");
  plan.price_source = "--price";
  return {};
}

Result<void> plan_elsewhere(const cli::Arguments& arguments, const planner::PlanReport& report) {
  if (arguments.has("--html")) {
    TRY(base::write_file(arguments.text("--html"), planner::to_html(report)));
  }
  if (arguments.has("--json")) return write_output(planner::to_json(report).dump() + "\n");
  const auto explain = arguments.has("--explain") ? planner::Explain::kYes : planner::Explain::kNo;
  return write_text(planner::to_text(report, explain, output_columns()));
}

// What it takes is said to the byte before, and how fast it is as of hardware that stands in for
// this machine.
Result<void> plan_here(const cli::Arguments& arguments, const std::string& model,
                       const Claim& claim, const std::optional<planner::PlanReport>& report) {
  if (arguments.has("--json")) {
    Json json = to_json(claim);
    if (report) json.set("modelled", planner::to_json(*report));
    TRY(write_output(json.dump() + "\n"));
  } else {
    std::string text = to_text(model, claim);
    if (report) text += "\n" + planner::to_text(*report, planner::Explain::kNo, output_columns());
    TRY(write_text(text));
  }
  if (claim.memory.bytes() <= claim.here) return {};
  return Error{ErrorCode::kDoesNotFit,
               fmt::format("{} takes {} of memory, and there are {}; --max-audio-seconds and "
                           "--transcription-batch make it less",
                           model, bytes_text(claim.memory.bytes()), bytes_text(claim.here)),
               "model"};
}

}  // namespace

std::vector<cli::Flag> speech_load_flags() {
  return {{.name = "--audio-seconds",
           .value = "SECONDS",
           .help = "of a speech model: how long a file is",
           .kind = cli::Flag::Kind::kNumber,
           .default_text = "300",
           .least = 0.1,
           .most = 86400},
          {.name = "--audio-tokens-per-second",
           .value = "N",
           .help = "of a speech model: tokens of text for each second of sound; 4 is 150 words a "
                   "minute, 1.3 tokens a word and the segments' times",
           .kind = cli::Flag::Kind::kNumber,
           .default_text = "4",
           .least = 0,
           .most = 100}};
}

std::vector<cli::Flag> speech_target_flags() {
  return {{.name = "--audio-hours",
           .value = "HOURS",
           .help = "of a speech model: hours of sound in files that are to be heard in an hour; "
                   "says how many replicas do it",
           .kind = cli::Flag::Kind::kNumber,
           .least = 0.001,
           .most = 1e7},
          {.name = "--live-streams",
           .value = "N",
           .help = "of a speech model: streams of live sound at once; says how many replicas keep "
                   "up with them",
           .kind = cli::Flag::Kind::kInteger,
           .least = 1,
           .most = 1e6},
          {.name = "--live-delay",
           .value = "SECONDS",
           .help = "of a speech model: by which the text of live sound may be late",
           .kind = cli::Flag::Kind::kNumber,
           .default_text = "5",
           .least = 0.1,
           .most = 60}};
}

Result<planner::SpeechPlanOptions> read_speech_plan(const cli::Arguments& arguments,
                                                    const std::string& model,
                                                    const std::string& folder) {
  if (arguments.has("--calibration")) {
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("--calibration is of models whose steps are tokens, and {} turns sound "
                    "into text",
                    model),
        "calibration"};
  }
  planner::FleetPlanOptions fleet;
  TRY(read_machine(arguments, fleet));
  const planner::CapacityOptions& capacity = fleet.capacity;
  const cost_model::Hardware& hardware = capacity.memory.hardware;
  TRY_ASSIGN(const models::WhisperConfig config, models::read_whisper_config(folder));
  TRY_ASSIGN(const Memory memory, node::LoadedSpeechModel::plan(folder, bounds_of(arguments)));
  planner::SpeechPlanOptions plan{
      .model = model,
      .machine = fleet.machine,
      .timing = {.hardware = hardware,
                 .shape = shape_of(config, memory.weights),
                 .efficiency = capacity.efficiency},
      .efficiency_source =
          fleet.machine.empty() ? "assumed, nobody measured it" : fleet.efficiency_source,
      .memory = memory_lines(memory, arguments, hardware.is_processor()),
      .each_more_bytes = static_cast<double>(config.kv_bytes())};
  plan.timing.arithmetic = hardware.rates.contains(cost_model::Arithmetic::kBf16)
                               ? cost_model::Arithmetic::kBf16
                               : hardware.rates.begin()->first;
  if (arguments.has("--compute")) {
    TRY_ASSIGN(plan.timing.arithmetic, cost_model::parse_arithmetic(arguments.text("--compute")));
  }
  const double utilization = arguments.has("--memory-utilization")
                                 ? arguments.number("--memory-utilization")
                                 : capacity.memory.utilization;
  plan.allowed_bytes = utilization * static_cast<double>(hardware.memory_bytes);
  plan.text_tokens_per_s = arguments.number("--audio-tokens-per-second");
  plan.batch_max = static_cast<int>(arguments.integer("--transcription-batch"));
  plan.devices = capacity.devices;
  plan.spread = capacity.spread;
  plan.price_per_hour = capacity.price_per_hour;
  plan.price_source = fleet.price_source;
  return plan;
}

Result<void> plan_speech(const cli::Arguments& arguments, const std::string& model,
                         const std::string& folder) {
  const bool is_here = !has_hardware(arguments);
  std::optional<planner::PlanReport> report;
  if (!is_here || !arguments.has("--memory")) {
    TRY_ASSIGN(planner::SpeechPlanOptions plan, read_speech_plan(arguments, model, folder));
    TRY(read_targets(arguments, plan));
    if (is_here) plan.memory.clear();  // said to the byte
    plan.memory_only = arguments.has("--memory");
    TRY_ASSIGN(report, planner::plan_speech(plan));
  }
  if (is_here) {
    Claim claim{.seconds_max = arguments.number("--max-audio-seconds"),
                .here = base::memory_limit_bytes()};
    TRY_ASSIGN(claim.memory, node::LoadedSpeechModel::plan(folder, bounds_of(arguments)));
    TRY_ASSIGN(const models::WhisperConfig config, models::read_whisper_config(folder));
    claim.each_more_bytes = config.kv_bytes();
    TRY(plan_here(arguments, model, claim, report));
  } else {
    TRY(plan_elsewhere(arguments, *report));
    if (!report->fits) return Error{ErrorCode::kDoesNotFit, report->headline[1], "gpu"};
  }
  if (!report || report->meets_objectives.value_or(true)) return {};
  return Error{ErrorCode::kDoesNotFit, report->headline.back(), "live-streams"};
}

}  // namespace pelton::apps
