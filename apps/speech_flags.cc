#include "apps/speech_flags.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apps/model_fetch.h"
#include "base/check.h"
#include "base/split.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "kernels/kernels.h"
#include "media/sound_writer.h"
#include "models/snac.h"
#include "server/speech_use.h"
#include "speech/audio_windows.h"

namespace pelton::apps {
namespace {

using cli::Flag;

constexpr size_t kVoicesMax = 256;
constexpr size_t kVoiceBytesMax = 64;

// Of "MODEL=DIR" with a model of these names the folder: by the longest that fits, as both may hold
// an "=". Nothing: it names none of them.
std::optional<std::string> decoder_of(const std::string& word,
                                      const std::vector<std::string>& names) {
  size_t longest = 0;
  for (const std::string& name : names) {
    if (word.starts_with(name + "=")) longest = std::max(longest, name.size() + 1);
  }
  return longest == 0 ? std::nullopt : std::optional(word.substr(longest));
}

std::vector<std::string> names_of(const node::NamedModel& model) {
  std::vector<std::string> names = model.aliases;
  names.push_back(model.id);
  return names;
}

// A SNAC decoder whose codes are Orpheus' frames. Each thread has kernels of its own over the same
// weights.
class SnacVocoder final : public speech::Vocoder {
 public:
  static Result<std::unique_ptr<SnacVocoder>> load(const std::string& folder,
                                                   kernels::KernelChoice choice, int threads) {
    auto made = std::make_unique<SnacVocoder>();
    for (int i = 0; i < threads; ++i) {
      made->pools_.push_back(std::make_unique<base::ThreadPool>(
          base::ThreadPool::Options{.threads = 1, .pin = false}));
      TRY_ASSIGN(auto kernels, kernels::make_kernels(choice, *made->pools_.back()));
      made->kernels_.push_back(std::move(kernels));
    }
    TRY_ASSIGN(made->snac_, models::Snac::load(folder, *made->kernels_.front()));
    const models::SnacConfig& config = made->snac_->config();
    if (std::ranges::equal(config.strides, speech::kStrideOfBook)) return made;
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("{}: vq_strides must be [4, 2, 1], as Orpheus' frames have them", folder),
        "speech-decoder"};
  }

  int book_size() const { return snac_->config().book_size; }
  int sample_rate() const override { return snac_->config().sample_rate; }
  int frame_samples() const override {
    return snac_->config().samples_per_frame() * speech::kStrideOfBook[0];
  }
  int threads() const override { return static_cast<int>(kernels_.size()); }

  std::vector<float> kept_frame(const speech::AudioWindow& window, int thread) override {
    const auto books = speech::books_of(window);
    const models::Snac::Samples kept{
        .begin = int64_t{frame_samples()} * static_cast<int64_t>(speech::kKeptFrame),
        .count = frame_samples()};
    auto samples = snac_->decode(books, kept, *kernels_[static_cast<size_t>(thread)]);
    CHECK(samples.ok(), "codes are looked at before they come here");
    return *std::move(samples);
  }

 private:
  std::vector<std::unique_ptr<base::ThreadPool>> pools_;
  std::vector<std::unique_ptr<kernels::Kernels>> kernels_;  // each on its pool
  std::unique_ptr<models::Snac> snac_;
};

// libsndfile's coder is made with the first sound, on the thread that decodes it: an answer that is
// refused or waits costs nothing.
class CompressedEncoder final : public speech::SoundEncoder {
 public:
  CompressedEncoder(std::string_view format, const speech::EncoderOptions& options)
      : format_(format), options_(options) {}

  void push(std::string_view pcm, std::string& out) override {
    std::vector<int16_t> samples(pcm.size() / sizeof(int16_t));
    for (size_t i = 0; i < samples.size(); ++i) {
      const auto low = static_cast<uint8_t>(pcm[2 * i]);
      const auto high = static_cast<uint8_t>(pcm[2 * i + 1]);
      samples[i] = static_cast<int16_t>(low | high << 8);
    }
    writer().push(samples, out);
  }
  void finish(std::string& out) override { writer().finish(out); }

 private:
  media::SoundWriter& writer() {
    if (writer_ != nullptr) return *writer_;
    auto made = media::SoundWriter::create(
        {.format = format_, .sample_rate = options_.sample_rate, .is_whole = options_.is_whole});
    CHECK(made.ok(), "a format that has been written");
    writer_ = *std::move(made);
    return *writer_;
  }

  const std::string format_;
  const speech::EncoderOptions options_;
  std::unique_ptr<media::SoundWriter> writer_;  // null: nothing has come
};

speech::CompressedSound compressed_sound(int sample_rate) {
  return {.formats = media::written_formats(sample_rate),
          .make = [](std::string_view format, const speech::EncoderOptions& options) {
            return std::make_unique<CompressedEncoder>(format, options);
          }};
}

Result<std::vector<std::string>> voices_of(const cli::Arguments& arguments) {
  std::vector<std::string> voices;
  for (const std::string_view voice : base::split(arguments.text("--speech-voices"), ',')) {
    const bool is_plain = !voice.empty() && voice.size() <= kVoiceBytesMax &&
                          voice.find_first_of(" :\t\r\n") == std::string_view::npos;
    if (is_plain && voices.size() < kVoicesMax) {
      voices.emplace_back(voice);
      continue;
    }
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("--speech-voices: '{}': 1 to {} names apart by commas, each of 1 to {} "
                    "bytes without blanks and colons",
                    voice, kVoicesMax, kVoiceBytesMax),
        "speech-voices"};
  }
  return voices;
}

}  // namespace

std::vector<Flag> speech_flags() {
  return {{.name = "--speech-decoder",
           .value = "DIR",
           .help = "the model's tokens are sound (Orpheus), which the SNAC decoder in this folder "
                   "(or of this hub id) makes of them: /v1/audio/speech; of several models "
                   "MODEL=DIR says which; may be given again",
           .many = true},
          {.name = "--speech-voices",
           .value = "NAMES",
           .help = "the voices that the model was trained with, apart by commas",
           .default_text = "tara,leah,jess,leo,dan,mia,zac,zoe",
           .only_with = {{"--speech-decoder"}}},
          {.name = "--speech-threads",
           .value = "N",
           .help = "threads that decode sound, beside those that compute the model",
           .kind = Flag::Kind::kInteger,
           .default_text = "1",
           .least = 1,
           .most = 64,
           .only_with = {{"--speech-decoder"}}}};
}

Result<void> check_speech_decoders(const cli::Arguments& arguments,
                                   const std::vector<node::NamedModel>& models) {
  if (!arguments.knows("--speech-decoder") || models.size() == 1) return {};
  for (const std::string& word : arguments.list("--speech-decoder")) {
    const bool is_named = std::ranges::any_of(models, [&](const node::NamedModel& model) {
      return decoder_of(word, names_of(model)).has_value();
    });
    if (is_named) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--speech-decoder '{}': of several models MODEL=DIR says which one "
                             "speaks",
                             word),
                 "speech-decoder"};
  }
  return {};
}

Result<void> read_speech(const cli::Arguments& arguments, const SpeechOwner& owner,
                         const SpeechLoad& load, server::ServedModel& served) {
  if (!arguments.knows("--speech-decoder")) return {};
  std::optional<std::string> decoder;
  std::optional<std::string> unnamed;
  for (const std::string& word : arguments.list("--speech-decoder")) {
    if (auto own = decoder_of(word, owner.names)) {
      decoder = std::move(own);
    } else if (owner.has_unnamed) {
      unnamed = word;
    }
  }
  if (!decoder) decoder = std::move(unnamed);
  if (!decoder) return {};
  if (!served.has_text) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("--speech-decoder: '{}' has no tokenizer, so no text can be spoken", served.id),
        "speech-decoder"};
  }
  TRY_ASSIGN(const kernels::KernelChoice choice,
             kernels::parse_kernel_choice(arguments.text("--kernels")));
  if (auto fetched = fetch_if_missing(*decoder, "", load.stopped, load.clock, load.log);
      !fetched.ok()) {
    Error error = fetched.error();
    error.field = "speech-decoder";
    return error;
  }
  TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(*decoder));
  TRY_ASSIGN(
      std::unique_ptr<SnacVocoder> vocoder,
      SnacVocoder::load(folder, choice, static_cast<int>(arguments.integer("--speech-threads"))));
  TRY_ASSIGN(std::vector<std::string> voices, voices_of(arguments));
  auto tokens = speech::AudioTokens::of(served.tokenizer, vocoder->book_size(), served.vocab_size);
  if (!tokens.ok()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--speech-decoder: '{}': {}", served.id, tokens.error().message),
                 "speech-decoder"};
  }
  served.speech = std::make_shared<server::SpeechUse>(*std::move(tokens), std::move(voices),
                                                      std::move(vocoder));
  served.speech->compressed = compressed_sound(served.speech->queue.sample_rate());
  load.log.info(fmt::format(
      "speech: {} voices; {} Hz; wav, pcm{}{}; decoded by {} thread{} beside "
      "the model",
      served.speech->voices.size(), served.speech->queue.sample_rate(),
      served.speech->compressed.formats.empty() ? "" : ", ",
      fmt::join(served.speech->compressed.formats, ", "), arguments.integer("--speech-threads"),
      arguments.integer("--speech-threads") == 1 ? "" : "s"));
  return {};
}

}  // namespace pelton::apps
