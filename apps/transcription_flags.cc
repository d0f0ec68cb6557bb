#include "apps/transcription_flags.h"

#include <fmt/format.h>

#include "base/digest.h"
#include "base/file.h"
#include "cli/human_size.h"
#include "cli/terminal.h"
#include "media/sound_reader.h"
#include "models/whisper_decoding.h"

namespace pelton::apps {
namespace {

using cli::Flag;

constexpr size_t kConfigBytesMax = size_t{4} << 20;

std::string bytes_text(int64_t bytes) {
  return cli::format_bytes(static_cast<double>(bytes));
}

// What its texts depend on besides their requests: its configuration and its kernels.
std::string fingerprint(const std::string& folder, const node::LoadedSpeechModel& model) {
  std::string all(model.kernels_name());
  for (const char* file : {"/config.json", "/generation_config.json"}) {
    const Result<std::string> text = base::read_file(folder + file, kConfigBytesMax);
    if (text.ok()) all += *text;
  }
  return base::sha256(all + std::to_string(model.memory().weights)).substr(0, 16);
}

std::vector<std::pair<std::string, std::string>> runtime_facts(const node::LoadedSpeechModel& model,
                                                               const std::string& fingerprint) {
  const node::LoadedSpeechModel::Memory& memory = model.memory();
  const std::string ffmpeg = media::find_ffmpeg();
  return {{"executor", "transcriber"},
          {"fingerprint", fingerprint},
          {"kernels", std::string(model.kernels_name())},
          {"ffmpeg", ffmpeg.empty() ? "not installed" : ffmpeg},
          {"memory", fmt::format("weights={} workspace={} sound={} total={}", memory.weights,
                                 memory.workspace, memory.sound, memory.bytes())}};
}

}  // namespace

std::vector<Flag> transcription_flags() {
  return {{.name = "--max-audio-bytes",
           .value = "SIZE",
           .help = "of a speech model: the largest file that is read, as OpenAI's 25 MB",
           .kind = Flag::Kind::kSize,
           .default_text = "25MiB",
           .least = 1,
           .most = int64_t{31} << 20},
          {.name = "--max-audio-seconds",
           .value = "SECONDS",
           .help = "of a speech model: the longest sound that is heard, for which memory is kept",
           .kind = Flag::Kind::kNumber,
           .default_text = "1500",
           .least = 1,
           .most = 86400},
          {.name = "--transcription-batch",
           .value = "N",
           .help = "of a speech model: files whose windows are decoded in one batch, for which "
                   "memory is kept",
           .kind = Flag::Kind::kInteger,
           .default_text = "4",
           .least = 1,
           .most = 16},
          {.name = "--transcription-beams",
           .value = "N",
           .help = "of a speech model: the most that a request may ask for as beam_size or "
                   "best_of, for which memory is kept",
           .kind = Flag::Kind::kInteger,
           .default_text = "1",
           .least = 1,
           .most = models::kWhisperBeamsMax},
          {.name = "--max-num-transcriptions",
           .value = "N",
           .help = "of a speech model: files that wait or are heard, and live sessions; more are "
                   "answered 429",
           .kind = Flag::Kind::kInteger,
           .default_text = "64",
           .least = 1,
           .most = 4096}};
}

speech::ReadSound sound_reader(double seconds_max) {
  const auto reader = std::make_shared<const media::SoundReader>(
      media::SoundReader::Options{.seconds_max = seconds_max, .ffmpeg = media::find_ffmpeg()});
  return [reader](const std::string& file, const std::function<bool()>& go_on) {
    return reader->read(file, "the file", go_on);
  };
}

node::LoadedSpeechModel::Options speech_options(const cli::Arguments& arguments,
                                                const std::string& kernels) {
  const double seconds_max = arguments.number("--max-audio-seconds");
  return {.kernels = kernels,
          .threads = nullptr,
          .read_sound = sound_reader(seconds_max),
          .queue = {.waiting_max = static_cast<int>(arguments.integer("--max-num-transcriptions")),
                    .batch_max = static_cast<int>(arguments.integer("--transcription-batch")),
                    .beams_max = static_cast<int>(arguments.integer("--transcription-beams"))},
          .audio_seconds_max = seconds_max};
}

server::ServedModel served_speech_model(const cli::Arguments& arguments, const std::string& folder,
                                        node::LoadedSpeechModel& model,
                                        const node::NamedModel& names, const base::Clock& clock) {
  server::ServedModel served{
      .id = names.id,
      .aliases = names.aliases,
      .created = clock.unix_ms() / 1000,
      .context_max = model.config().target_positions,
      .vocab_size = model.config().vocab_size,
      .tokenizer = model.tokenizer(),
      .chat = nullptr,
      .stop_tokens = {model.config().end_of_text},
      .engine = model.engine(),
      .sampling = {},
      .current_date = {},
      .unknown_fields = arguments.has("--strict-fields") ? api::UnknownFields::kRefuse
                                                         : api::UnknownFields::kWarn,
      .state = std::make_unique<server::ModelState>(clock),
  };
  served.transcriber = &model.transcriber();
  served.audio_bytes_max = arguments.integer("--max-audio-bytes");
  served.fingerprint = fingerprint(folder, model);
  served.runtime = [&model, print = served.fingerprint] { return runtime_facts(model, print); };
  served.load_phases = {{"model", model.load_seconds()}};
  served.limits = {
      {"audio_bytes_max", served.audio_bytes_max},
      {"audio_seconds_max", static_cast<int64_t>(arguments.number("--max-audio-seconds"))},
      {"transcriptions_max", arguments.integer("--max-num-transcriptions")}};
  return served;
}

std::string speech_line(const cli::Arguments& arguments, const node::LoadedSpeechModel& model,
                        const std::string& id) {
  const models::WhisperConfig& config = model.config();
  return fmt::format(
      "{}: {} kernels; speech to text, {}; files of at most {} and {:.0f} s; memory {}",
      cli::without_controls(id), model.kernels_name(),
      config.multilingual ? fmt::format("{} languages", config.languages.size()) : "English only",
      bytes_text(arguments.integer("--max-audio-bytes")), arguments.number("--max-audio-seconds"),
      bytes_text(model.memory().bytes()));
}

}  // namespace pelton::apps
