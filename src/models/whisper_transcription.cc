#include "models/whisper_transcription.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace pelton::models {
namespace {

constexpr int kHop = 160;
constexpr int kFramesPerSecond = 100;
constexpr int kFramesPerTimestamp = 2;
constexpr double kSecondsPerTimestamp = 0.02;
constexpr double kNoSpeech = 0.6;
constexpr double kUnlikely = -1.0;

// The spectrogram of a recording, window by window. One window's worth is filled with silence
// before its spectrogram is made; of a longer one the spectrogram is made whole, and what lies
// behind its end is 0.
class Windows {
 public:
  Windows(const WhisperConfig& config, std::span<const float> samples, const MelOf& mel)
      : bands_(config.mel_bands), frames_(config.frames()) {
    const size_t one = static_cast<size_t>(frames_) * kHop;
    content_ = static_cast<int64_t>(samples.size()) / kHop;
    is_short_ = samples.size() <= one;
    std::vector<float> padded(samples.begin(), samples.end());
    padded.resize(is_short_ ? one : samples.size() + one);
    mel_ = mel(padded);
    stride_ = static_cast<int64_t>(padded.size()) / kHop;
    if (samples.size() % kHop != 0 && content_ == 0) content_ = 1;
  }

  int64_t content() const { return content_; }  // frames

  std::vector<float> at(int64_t seek) const {
    std::vector<float> window(static_cast<size_t>(bands_) * static_cast<size_t>(frames_));
    const int64_t end = is_short_ ? stride_ : content_;
    const int64_t count = std::min<int64_t>(frames_, end - seek);
    for (int64_t band = 0; band < bands_; ++band) {
      std::copy_n(mel_.data() + band * stride_ + seek, count, window.data() + band * frames_);
    }
    return window;
  }

 private:
  const int bands_;
  const int frames_;
  int64_t content_ = 0;
  bool is_short_ = false;
  std::vector<float> mel_;  // (bands, stride)
  int64_t stride_ = 0;
};

// What one window's tokens come to, and how many frames further the next one begins.
struct Cut {
  std::vector<WhisperSegment> segments;
  int64_t advance = 0;
};

Cut cut_window(const WhisperText& text, const WhisperConfig& config, double offset_s,
               int64_t frames) {
  const TokenId first = config.timestamp_begin;
  const std::vector<TokenId>& tokens = text.tokens;
  const auto is_time = [&](size_t i) { return tokens[i] >= first; };
  const auto seconds = [&](size_t i) { return (tokens[i] - first) * kSecondsPerTimestamp; };
  Cut cut{.segments = {}, .advance = frames};
  const auto add = [&](size_t begin, size_t end, double from_s, double to_s) {
    cut.segments.push_back({.begin_s = offset_s + from_s,
                            .end_s = offset_s + to_s,
                            .tokens = {tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                                       tokens.begin() + static_cast<std::ptrdiff_t>(end)},
                            .average_logprob = text.average_logprob,
                            .no_speech = text.no_speech});
  };
  std::vector<size_t> pairs;  // where the second one of two timestamps stands
  for (size_t i = 1; i < tokens.size(); ++i) {
    if (is_time(i - 1) && is_time(i)) pairs.push_back(i);
  }
  const size_t count = tokens.size();
  const bool ends_open = count >= 2 && !is_time(count - 2) && is_time(count - 1);
  if (pairs.empty()) {
    double duration = static_cast<double>(frames) / kFramesPerSecond;
    for (size_t i = count; i-- > 0;) {
      if (!is_time(i)) continue;
      if (tokens[i] != first) duration = seconds(i);
      break;
    }
    if (count > 0) add(0, count, 0.0, duration);
    return cut;
  }
  if (ends_open) pairs.push_back(count);
  size_t begin = 0;
  for (const size_t end : pairs) {
    add(begin, end, seconds(begin), seconds(end - 1));
    begin = end;
  }
  // Text behind the last pair is heard again, from the pair on.
  if (!ends_open) cut.advance = int64_t{tokens[begin - 1] - first} * kFramesPerTimestamp;
  if (cut.advance <= 0) cut.advance = frames;  // a pair at 0.00: nothing would be won
  return cut;
}

Result<TokenId> language_token(const WhisperConfig& config, const TranscriptionTask& task) {
  if (!config.multilingual) {
    if (task.language.empty() || task.language == "en") {
      if (!task.translates) return TokenId{-1};
      return Error{ErrorCode::kInvalidArgument, "an English-only model translates nothing", "task"};
    }
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("the language is '{}', but this model knows English only", task.language),
        "language"};
  }
  if (task.language.empty()) return TokenId{-1};
  const TokenId token = config.language(task.language);
  if (token >= 0) return token;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("the language is '{}', which is none of this model's {} (as \"{}\")",
                           task.language, config.languages.size(), config.languages[0].first),
               "language"};
}

}  // namespace

Result<Transcription> transcribe(Whisper& model, std::span<const float> samples,
                                 const TranscriptionTask& task, const MelOf& mel,
                                 const std::function<bool()>& go_on) {
  const WhisperConfig& config = model.config();
  TRY_ASSIGN(TokenId language, language_token(config, task));
  Transcription made{
      .language = task.language,
      .seconds = static_cast<double>(samples.size()) / (double{kHop} * kFramesPerSecond),
      .segments = {}};
  if (samples.empty()) return made;
  const Windows windows(config, samples, mel);
  std::vector<TokenId> previous;
  for (int64_t seek = 0; seek < windows.content();) {
    if (!go_on()) return Error{ErrorCode::kCancelled, "stopped"};
    WhisperWindow window = model.window(model.encode(windows.at(seek)));
    if (config.multilingual && language < 0) {
      const std::vector<double> shares = language_probabilities(model, window);
      const auto best = std::ranges::max_element(shares) - shares.begin();
      language = config.languages[static_cast<size_t>(best)].second;
      made.language = config.languages[static_cast<size_t>(best)].first;
    }
    const int64_t frames = std::min<int64_t>(config.frames(), windows.content() - seek);
    const WhisperText text =
        decode_greedily(model, window,
                        {.language = language,
                         .translates = task.translates,
                         .timestamps = task.timestamps,
                         .previous = task.uses_previous ? previous : std::vector<TokenId>()});
    if (text.no_speech > kNoSpeech && text.average_logprob <= kUnlikely) {
      seek += frames;
      continue;
    }
    Cut cut = cut_window(text, config, static_cast<double>(seek) / kFramesPerSecond, frames);
    seek += std::min(cut.advance, frames);
    for (WhisperSegment& segment : cut.segments) {
      segment.end_s = std::min(std::max(segment.end_s, segment.begin_s), made.seconds);
      segment.begin_s = std::min(segment.begin_s, segment.end_s);
      previous.insert(previous.end(), segment.tokens.begin(), segment.tokens.end());
      made.segments.push_back(std::move(segment));
    }
  }
  return made;
}

}  // namespace pelton::models
