#include "models/whisper_live.h"

#include <algorithm>
#include <utility>

#include "base/random.h"

namespace pelton::models {
namespace {

constexpr size_t kHop = 160;
constexpr size_t kSilence = 16'000;  // behind the sound, whose last frames see nothing else

// The spectrogram of the sound and of silence to the window's end, whose frames are all alike: so
// one second of it is computed.
std::vector<float> window_mel(std::vector<float> samples, const WhisperConfig& config,
                              const MelOf& mel) {
  const auto frames = static_cast<size_t>(config.frames());
  const size_t sounding = (samples.size() + kHop - 1) / kHop * kHop;
  samples.resize(std::min(sounding + kSilence, frames * kHop));
  const size_t known = samples.size() / kHop;
  std::vector<float> part = mel(samples);
  if (known == frames) return part;
  std::vector<float> whole(static_cast<size_t>(config.mel_bands) * frames);
  for (size_t band = 0; band < static_cast<size_t>(config.mel_bands); ++band) {
    const float* const from = part.data() + band * known;
    float* const to = whole.data() + band * frames;
    std::copy_n(from, known, to);
    std::fill_n(to + known, frames - known, from[known - 1]);
  }
  return whole;
}

TokenId language_of(Whisper& model, WhisperWindow& window, std::string& language) {
  const WhisperConfig& config = model.config();
  if (!config.multilingual) return -1;
  if (!language.empty()) return config.language(language);
  const std::vector<double> shares = language_probabilities(model, window);
  const auto best = std::ranges::max_element(shares) - shares.begin();
  language = config.languages[static_cast<size_t>(best)].first;
  return config.languages[static_cast<size_t>(best)].second;
}

}  // namespace

Result<LiveWindowText> hear_live_window(Whisper& model, std::vector<float> samples,
                                        const LiveWindowTask& task, const MelOf& mel,
                                        const CompressionOf& compression,
                                        const std::function<bool()>& go_on) {
  const Error stopped{ErrorCode::kCancelled, "stopped", ""};
  const WhisperConfig& config = model.config();
  TRY(check_task(config, {.language = task.language, .prompt = {}}));
  if (samples.size() > static_cast<size_t>(config.frames()) * kHop) {
    return Error{ErrorCode::kUnsupported, "the model's windows are shorter than this sound", ""};
  }
  const std::vector<float> spectrogram = window_mel(std::move(samples), config, mel);
  if (!go_on()) return stopped;
  WhisperWindow window = model.window(model.encode(spectrogram));
  if (!go_on()) return stopped;
  LiveWindowText heard{.tokens = {}, .language = task.language};
  const TokenId language = language_of(model, window, heard.language);
  const auto task_at = [&](double temperature) {
    return WhisperTask{
        .language = language,
        .timestamps = false,
        .previous = task.previous,
        .begun = task.begun,
        .tokens_max = config.target_positions / 2,
        .temperature = temperature,
        // As of a recording's first window.
        .seed = base::random_bits(0, static_cast<uint64_t>(temperature * 100.0 + 0.5))};
  };
  WhisperAttempt made = decode_with_fallback(model, window,
                                             {.task_at = task_at,
                                              .temperatures = {.falls_back = task.falls_back},
                                              .compression = compression,
                                              .go_on = go_on});
  if (!go_on()) return stopped;
  heard.tokens = made.is_silence ? task.begun : std::move(made.text.tokens);
  std::erase_if(heard.tokens, [&](TokenId id) { return id >= config.end_of_text; });
  heard.is_repetitive = made.compression_ratio > kWhisperRepetitive;
  return heard;
}

}  // namespace pelton::models
