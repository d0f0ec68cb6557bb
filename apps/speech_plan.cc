#include "apps/speech_plan.h"

#include <fmt/format.h>

#include "apps/input.h"
#include "base/json.h"
#include "base/machine.h"
#include "checkpoint/checkpoint.h"
#include "cli/human_size.h"
#include "node/loaded_speech_model.h"

namespace pelton::apps {
namespace {

using Memory = node::LoadedSpeechModel::Memory;

std::string bytes_text(int64_t bytes) {
  return cli::format_bytes(static_cast<double>(bytes));
}

std::string to_json(const Memory& memory, double seconds, int64_t here) {
  Json json{Json::Object{}};
  json.set("family", "whisper").set("task", "speech to text");
  json.set("weight_bytes", memory.weights).set("workspace_bytes", memory.workspace);
  json.set("sound_bytes", memory.sound).set("total_bytes", memory.bytes());
  json.set("audio_seconds_max", seconds).set("memory_bytes", here);
  return json.dump() + "\n";
}

std::string to_text(const std::string& model, const Memory& memory, double seconds, int64_t here) {
  std::string text = fmt::format("{}: speech to text, on the processors\n", model);
  const auto line = [&](std::string_view what, int64_t bytes, std::string_view why) {
    text += fmt::format("  {:<10}{:>12}  {}\n", what, bytes_text(bytes), why);
  };
  line("weights", memory.weights, "in the file");
  line(
      "windows", memory.workspace,
      "30 s of sound each while they are heard (--transcription-batch), and their keys and values");
  line(
      "sound", memory.sound,
      fmt::format("files of at most {:.0f} s (--max-audio-seconds) that are read, parked and heard",
                  seconds));
  line("in all", memory.bytes(), fmt::format("of {} here", bytes_text(here)));
  return text;
}

}  // namespace

std::optional<std::string> speech_model_folder(const std::string& model) {
  const Result<std::string> folder = checkpoint::resolve_model(model);
  if (folder.ok() && node::is_speech_model(*folder)) return *folder;
  return std::nullopt;
}

Result<void> plan_speech(const cli::Arguments& arguments, const std::string& model,
                         const std::string& folder) {
  const double seconds = arguments.number("--max-audio-seconds");
  const node::LoadedSpeechModel::Bounds bounds{
      .audio_seconds_max = seconds,
      .batch_max = static_cast<int>(arguments.integer("--transcription-batch")),
      .beams_max = static_cast<int>(arguments.integer("--transcription-beams"))};
  TRY_ASSIGN(const Memory memory, node::LoadedSpeechModel::plan(folder, bounds));
  const int64_t here = base::memory_limit_bytes();
  TRY(arguments.has("--json") ? write_output(to_json(memory, seconds, here))
                              : write_text(to_text(model, memory, seconds, here)));
  if (memory.bytes() <= here) return {};
  return Error{ErrorCode::kDoesNotFit,
               fmt::format("{} takes {} of memory, and there are {}; --max-audio-seconds and "
                           "--transcription-batch make it less",
                           model, bytes_text(memory.bytes()), bytes_text(here)),
               "model"};
}

}  // namespace pelton::apps
