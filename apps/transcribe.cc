// pelton transcribe: speech to text by a Whisper model, outside the server; and what the model
// computes on the way, exactly, to compare with other programs.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "apps/input.h"
#include "apps/loading.h"
#include "apps/verbs.h"
#include "audio/log_mel.h"
#include "audio/resample.h"
#include "audio/wav_file.h"
#include "base/file.h"
#include "base/json_writer.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "cli/interrupt.h"
#include "kernels/kernels.h"
#include "models/whisper.h"
#include "models/whisper_decoding.h"
#include "models/whisper_transcription.h"
#include "node/model_tokenizer.h"
#include "tensor/npy.h"

namespace pelton::apps {
namespace {

using cli::Flag;

constexpr size_t kSoundBytesMax = size_t{1} << 31;

Result<std::vector<float>> read_sound(const std::string& name) {
  TRY_ASSIGN(const std::string file, base::read_file(name, kSoundBytesMax));
  TRY_ASSIGN(const audio::Sound sound,
             audio::read_wav({reinterpret_cast<const uint8_t*>(file.data()), file.size()}, name));
  if (sound.samples.empty()) {
    return Error{ErrorCode::kInvalidArgument, name + ": has no samples", "FILE"};
  }
  return audio::resample(sound.samples, sound.sample_rate, audio::LogMel::kSampleRate);
}

// Null: the folder has none.
Result<std::unique_ptr<tokenizer::Tokenizer>> read_tokenizer(const std::string& folder) {
  const std::string file = folder + "/tokenizer.json";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::unique_ptr<tokenizer::Tokenizer>();
  TRY_ASSIGN(tokenizer::Tokenizer tokenizer, node::read_tokenizer_file(file));
  return std::make_unique<tokenizer::Tokenizer>(std::move(tokenizer));
}

Result<void> write_rows(const std::string& file, std::vector<int64_t> shape,
                        std::span<const float> values) {
  TRY_ASSIGN(tensor::NpyWriter writer, tensor::NpyWriter::create(file, std::move(shape)));
  TRY(writer.append(values));
  return writer.finish();
}

// What the first window comes to: for --mel-out and so on. Whether any was asked for.
Result<bool> write_exact(const cli::Arguments& arguments, models::Whisper& model,
                         std::vector<float> samples, const audio::LogMel& front) {
  const bool any = arguments.has("--mel-out") || arguments.has("--encoder-out") ||
                   arguments.has("--logits-out") || arguments.has("--language-out");
  if (!any) return false;
  const models::WhisperConfig& config = model.config();
  samples.resize(static_cast<size_t>(config.frames()) * audio::LogMel::kHop);
  const std::vector<float> mel = front.of(samples);
  if (arguments.has("--mel-out")) {
    TRY(write_rows(arguments.text("--mel-out"), {config.mel_bands, config.frames()}, mel));
  }
  const std::vector<float> states = model.encode(mel);
  if (arguments.has("--encoder-out")) {
    TRY(write_rows(arguments.text("--encoder-out"), {config.source_positions, config.hidden_size},
                   states));
  }
  models::WhisperWindow window = model.window(states);
  if (arguments.has("--language-out")) {
    const std::vector<double> shares = models::language_probabilities(model, window);
    const std::vector<float> rounded(shares.begin(), shares.end());
    TRY(write_rows(arguments.text("--language-out"), {static_cast<int64_t>(rounded.size())},
                   rounded));
  }
  if (!arguments.has("--logits-out")) return true;
  TRY_ASSIGN(const auto sequences, read_sequences_file(arguments.text("--tokens")));
  const std::vector<TokenId>& tokens = sequences[0];
  const bool fits = !tokens.empty() && static_cast<int>(tokens.size()) <= config.target_positions &&
                    std::ranges::all_of(tokens, [&](TokenId id) { return id < config.vocab_size; });
  if (!fits) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--tokens: 1 to {} ids below {} are taken", config.target_positions,
                             config.vocab_size),
                 "tokens"};
  }
  TRY(write_rows(arguments.text("--logits-out"),
                 {static_cast<int64_t>(tokens.size()), config.vocab_size},
                 model.step(window, tokens)));
  return true;
}

class Shown {
 public:
  Shown(const models::WhisperConfig& config, const tokenizer::Tokenizer* tokenizer)
      : config_(config), tokenizer_(tokenizer) {}

  std::string text(const models::WhisperSegment& segment) const {
    std::vector<TokenId> words;
    for (const TokenId id : segment.tokens) {
      if (id < config_.end_of_text) words.push_back(id);
    }
    return tokenizer_ == nullptr ? "" : tokenizer_->decode(words);
  }

  std::string plain(const models::Transcription& made) const {
    std::string all;
    for (const models::WhisperSegment& segment : made.segments) all += text(segment);
    const size_t first = all.find_first_not_of(' ');
    return (first == std::string::npos ? "" : all.substr(first)) + "\n";
  }

  std::string json(const models::Transcription& made) const {
    std::string out;
    base::JsonWriter writer(out);
    writer.begin_object().key("language").string(made.language);
    writer.key("duration").number(made.seconds).key("segments").begin_array();
    for (const models::WhisperSegment& segment : made.segments) {
      writer.begin_object().key("start").number(segment.begin_s);
      writer.key("end").number(segment.end_s);
      if (tokenizer_ != nullptr) writer.key("text").string(text(segment));
      writer.key("tokens").begin_array();
      for (const TokenId id : segment.tokens) writer.integer(id);
      writer.end_array().key("avg_logprob").number(segment.average_logprob);
      writer.key("no_speech_prob").number(segment.no_speech).end_object();
    }
    writer.end_array().end_object();
    return out + "\n";
  }

  // SubRip's "00:00:01,500 --> 00:00:03,000", WebVTT's with points.
  std::string subtitles(const models::Transcription& made, bool is_vtt) const {
    std::string out = is_vtt ? "WEBVTT\n\n" : "";
    int number = 0;
    for (const models::WhisperSegment& segment : made.segments) {
      const std::string words = text(segment);
      const size_t first = words.find_first_not_of(' ');
      if (!is_vtt) out += fmt::format("{}\n", ++number);
      out += fmt::format("{} --> {}\n{}\n\n", time(segment.begin_s, is_vtt),
                         time(segment.end_s, is_vtt),
                         first == std::string::npos ? "" : words.substr(first));
    }
    return out;
  }

 private:
  static std::string time(double seconds, bool is_vtt) {
    const auto ms = static_cast<int64_t>(std::llround(seconds * 1000));
    return fmt::format("{:02}:{:02}:{:02}{}{:03}", ms / 3'600'000, ms / 60'000 % 60, ms / 1000 % 60,
                       is_vtt ? '.' : ',', ms % 1000);
  }

  const models::WhisperConfig& config_;
  const tokenizer::Tokenizer* tokenizer_;
};

Result<void> run(const cli::Arguments& arguments) {
  const std::string& format = arguments.text("--format");
  TRY_ASSIGN(const kernels::KernelChoice choice,
             kernels::parse_kernel_choice(arguments.text("--kernels")));
  TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(arguments.text("MODEL")));
  TRY_ASSIGN(const std::vector<float> samples, read_sound(arguments.text("FILE")));
  TRY_ASSIGN(const auto tokenizer, read_tokenizer(folder));
  base::ThreadPool pool({.threads = static_cast<int>(arguments.integer("--threads"))});
  const base::ThreadPool::PinnedCaller pinned = pool.adopt_caller();
  TRY_ASSIGN(const std::unique_ptr<kernels::Kernels> kernels, kernels::make_kernels(choice, pool));
  TRY_ASSIGN(const std::unique_ptr<models::Whisper> model, models::Whisper::load(folder, *kernels));
  const audio::LogMel front(model->config().mel_bands);
  TRY_ASSIGN(const bool is_done, write_exact(arguments, *model, samples, front));
  if (is_done) return {};
  if (tokenizer == nullptr && format != "json") {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{} has no tokenizer.json; --format json gives token ids", folder)};
  }
  const cli::Interrupt interrupt;
  TRY_ASSIGN(const models::Transcription made,
             models::transcribe(
                 *model, samples,
                 {.language = arguments.text("--language"),
                  .translates = arguments.text("--task") == "translate",
                  .timestamps = !arguments.has("--without-timestamps"),
                  .uses_previous = !arguments.has("--no-previous-text")},
                 [&](std::span<const float> sound) { return front.of(sound); },
                 [&] { return !interrupt.pending(); }));
  const Shown shown(model->config(), tokenizer.get());
  if (format == "json") return write_output(shown.json(made));
  if (format == "text") return write_text(shown.plain(made));
  return write_text(shown.subtitles(made, format == "vtt"));
}

}  // namespace

cli::Verb transcribe_verb() {
  return {
      .name = "transcribe",
      .summary = "Writes down what is said in a WAV file, by a Whisper model.",
      .about =
          "MODEL is a folder of Hugging Face's layout. The sound is mixed to one channel and\n"
          "brought to 16 kHz; windows of 30 s are decoded one behind the other, the likeliest\n"
          "token each time. --mel-out and the others write what the first window comes to, as\n"
          "float32, and nothing else is done.",
      .positionals = {{"MODEL", "a model folder or a hub id"}, {"FILE", "a WAV file"}},
      .flags =
          {
              {.name = "--language",
               .value = "CODE",
               .help = "what is spoken, as en; default: detected in the first window"},
              {.name = "--task",
               .value = "NAME",
               .help = "translate: into English",
               .default_text = "transcribe",
               .choices = {"transcribe", "translate"}},
              {.name = "--format",
               .value = "NAME",
               .help = "what is written",
               .default_text = "text",
               .choices = {"text", "json", "srt", "vtt"}},
              {.name = "--without-timestamps",
               .help = "the model is not asked for times; segments are whole windows",
               .kind = Flag::Kind::kSwitch},
              {.name = "--no-previous-text",
               .help = "a window is decoded without what was said before",
               .kind = Flag::Kind::kSwitch},
              {.name = "--mel-out", .value = "FILE.npy", .help = "the spectrogram [bands, frames]"},
              {.name = "--encoder-out",
               .value = "FILE.npy",
               .help = "the encoder's states [positions, hidden]"},
              {.name = "--language-out",
               .value = "FILE.npy",
               .help = "each language's probability, in the order of their tokens"},
              {.name = "--logits-out",
               .value = "FILE.npy",
               .help = "the logits [tokens, vocab] of --tokens",
               .only_with = {{"--tokens"}}},
              {.name = "--tokens",
               .value = "IDS.json",
               .help = "a JSON array of ids that the decoder is fed",
               .only_with = {{"--logits-out"}}},
              kernels_flag(),
              threads_flag(),
          },
      .examples = {"pelton transcribe openai/whisper-small talk.wav",
                   "pelton transcribe ./whisper talk.wav --format srt --language de",
                   "pelton transcribe ./whisper talk.wav --format json --encoder-out states.npy"},
      .run = run,
  };
}

}  // namespace pelton::apps
