#include "models/whisper_live.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/random.h"

namespace pelton::models {
namespace {

constexpr size_t kHop = 160;

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
  const size_t all = static_cast<size_t>(config.frames()) * kHop;
  CHECK(samples.size() <= all);
  samples.resize(all);
  const std::vector<float> spectrogram = mel(samples);
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
