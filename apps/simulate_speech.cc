#include "apps/simulate_speech.h"

#include <limits>

#include <fmt/format.h>

#include "apps/input.h"
#include "apps/speech_plan.h"
#include "apps/transcription_flags.h"
#include "base/file.h"
#include "report/percentile.h"
#include "simulator/speech_fleet.h"
#include "workload/arrivals.h"

namespace pelton::apps {
namespace {

constexpr double kHeardFiles = 2;  // of the longest kind, as node::LoadedSpeechModel has them

Result<simulator::SpeechLoad> read_load(const cli::Arguments& arguments) {
  simulator::SpeechLoad load{.rate = std::numeric_limits<double>::infinity(),
                             .seconds = arguments.number("--audio-seconds"),
                             .seed = static_cast<uint64_t>(arguments.integer("--seed"))};
  if (arguments.has("--num-prompts")) load.count = arguments.integer("--num-prompts");
  if (arguments.has("--request-rate")) {
    TRY_ASSIGN(load.rate, workload::parse_rate(arguments.text("--request-rate"), "request-rate"));
  }
  if (arguments.has("--random-range-ratio")) {
    load.range_ratio = arguments.number("--random-range-ratio");
  }
  const double longest = load.seconds * (1 + load.range_ratio);
  const double most = arguments.number("--max-audio-seconds");
  if (longest <= most) return load;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--audio-seconds: the longest file has {:g} s, and --max-audio-seconds "
                           "{:g} are read",
                           longest, most),
               "audio-seconds"};
}

Result<simulator::SpeechFleetOptions> read_fleet(const cli::Arguments& arguments) {
  simulator::SpeechFleetOptions options{
      .replicas = static_cast<int>(arguments.integer("--replicas")),
      .text_tokens_per_s = arguments.number("--audio-tokens-per-second"),
      .waiting_max = static_cast<int>(arguments.integer("--max-num-transcriptions")),
      .heard_seconds_max = kHeardFiles * arguments.number("--max-audio-seconds"),
      .batch_max = static_cast<int>(arguments.integer("--transcription-batch"))};
  if (arguments.has("--max-concurrency")) {
    options.concurrency_max = static_cast<int>(arguments.integer("--max-concurrency"));
  }
  if (options.replicas > 0) return options;
  return Error{ErrorCode::kInvalidArgument,
               "--replicas 0: of a speech model no replicas are started or stopped; give one",
               "replicas"};
}

}  // namespace

std::vector<cli::Flag> simulated_speech_flags() {
  std::vector<cli::Flag> flags = speech_load_flags();
  for (cli::Flag& flag : transcription_flags()) {
    if (flag.name != "--max-audio-bytes") flags.push_back(std::move(flag));
  }
  return flags;
}

Result<void> simulate_speech_model(const cli::Arguments& arguments, const std::string& model,
                                   const std::string& folder) {
  TRY_ASSIGN(planner::SpeechPlanOptions plan, read_speech_plan(arguments, model, folder));
  plan.memory_only = true;
  TRY_ASSIGN(const planner::PlanReport report, planner::plan_speech(plan));
  if (!report.fits) return Error{ErrorCode::kDoesNotFit, report.headline[1], "gpu"};
  TRY_ASSIGN(const cost_model::SpeechTimeModel times,
             cost_model::SpeechTimeModel::make(plan.timing));
  TRY_ASSIGN(const simulator::SpeechLoad load, read_load(arguments));
  TRY_ASSIGN(const simulator::SpeechFleetOptions options, read_fleet(arguments));
  TRY_ASSIGN(const std::vector<simulator::SpeechFile> files, simulator::speech_files(load));
  TRY_ASSIGN(const std::vector<double> percents,
             report::parse_percents(arguments.text("--metric-percentiles"), "metric-percentiles"));
  const simulator::SpeechResult result = simulator::simulate_speech(options, files, times);
  if (arguments.has("--json")) {
    Json json = simulator::speech_json(options, result, percents);
    json.set("model", model).set("hardware", plan.timing.hardware.name);
    json.set("audio_seconds_each", load.seconds);
    if (arguments.text("--json") == "-") return write_output(json.dump() + "\n");
    TRY(base::write_file(arguments.text("--json"), json.dump() + "\n"));
  }
  return write_text(fmt::format("{}\n{} on {}\n\n{}", report.headline[0], model,
                                plan.timing.hardware.title,
                                simulator::speech_text(options, result, percents)));
}

}  // namespace pelton::apps
