#include "models/whisper_transcription.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/random.h"

namespace pelton::models {
namespace {

constexpr int kHop = 160;
constexpr int kFramesPerSecond = 100;
constexpr int kFramesPerTimestamp = 2;
constexpr double kSecondsPerTimestamp = 0.02;
// Text that was drawn at more than this is no prompt for what follows.
constexpr double kTemperatureOfPrompts = 0.5;

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
                            .no_speech = text.no_speech,
                            .aligned = {}});
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
      return Error{ErrorCode::kInvalidArgument, "an English-only model translates nothing",
                   "model"};
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

Result<void> check_task(const WhisperConfig& config, const TranscriptionTask& task) {
  TRY(language_token(config, task));
  if (!task.aligns || !config.alignment_heads.empty()) return {};
  return Error{ErrorCode::kUnsupported,
               "this model does not say which of its heads follow the words (alignment_heads in "
               "generation_config.json), so words have no times",
               "timestamp_granularities"};
}

// One window's worth is filled with silence before its spectrogram is made; of a longer one the
// spectrogram is made whole, and what lies behind its end is 0.
WhisperTranscription::WhisperTranscription(const WhisperConfig& config, std::vector<float> samples,
                                           TranscriptionTask task, const MelOf& mel,
                                           CompressionOf compression)
    : config_(config),
      task_(std::move(task)),
      compression_(std::move(compression)),
      seconds_(static_cast<double>(samples.size()) / (double{kHop} * kFramesPerSecond)),
      language_(task_.language),
      previous_(task_.prompt) {
  const Result<TokenId> token = language_token(config, task_);
  language_token_ = token.ok() ? *token : -1;
  if (samples.empty()) return;
  const size_t one = static_cast<size_t>(config.frames()) * kHop;
  content_ = std::max<int64_t>(static_cast<int64_t>(samples.size()) / kHop, 1);
  is_short_ = samples.size() <= one;
  samples.resize(is_short_ ? one : samples.size() + one);
  mel_ = mel(samples);
  stride_ = static_cast<int64_t>(samples.size()) / kHop;
}

std::vector<float> WhisperTranscription::window_mel() const {
  const int64_t frames = config_.frames();
  std::vector<float> window(static_cast<size_t>(config_.mel_bands) * static_cast<size_t>(frames));
  const int64_t end = is_short_ ? stride_ : content_;
  const int64_t count = std::min(frames, end - seek_);
  for (int64_t band = 0; band < config_.mel_bands; ++band) {
    std::copy_n(mel_.data() + band * stride_ + seek_, count, window.data() + band * frames);
  }
  return window;
}

void WhisperTranscription::detect_language(Whisper& model, WhisperWindow& window) {
  const std::vector<double> shares = language_probabilities(model, window);
  const auto best = std::ranges::max_element(shares) - shares.begin();
  language_token_ = config_.languages[static_cast<size_t>(best)].second;
  language_ = config_.languages[static_cast<size_t>(best)].first;
}

// What is drawn depends on the recording's place and the temperature only.
WhisperTask WhisperTranscription::window_task(double temperature) const {
  return {.language = language_token_,
          .translates = task_.translates,
          .timestamps = task_.timestamps,
          .previous = previous_,
          .tokens_max = config_.target_positions / 2,
          .temperature = temperature,
          .seed = base::random_bits(static_cast<uint64_t>(seek_),
                                    static_cast<uint64_t>(temperature * 100.0 + 0.5)),
          .search = task_.search};
}

Result<bool> WhisperTranscription::begin_window(Whisper& model,
                                                const std::function<bool()>& go_on) {
  const Error stopped{ErrorCode::kCancelled, "stopped", ""};
  if (seek_ >= content_) return false;
  if (!go_on()) return stopped;
  auto open = std::make_unique<Open>();
  open->window = model.window(model.encode(window_mel()));
  if (!go_on()) return stopped;
  if (config_.multilingual && language_token_ < 0) detect_language(model, open->window);
  open->attempts.emplace(
      model, open->window,
      WhisperAttempts::Parts{
          .task_at = [this](double temperature) { return window_task(temperature); },
          .temperatures = {.first = task_.temperature, .falls_back = task_.falls_back},
          .compression = compression_,
          .go_on = go_on});
  open_ = std::move(open);
  return true;
}

// Whether there are more.
bool WhisperTranscription::end_window(Whisper& model) {
  const std::unique_ptr<Open> open = std::move(open_);
  const WhisperAttempt made = open->attempts->last();
  const int64_t frames = std::min<int64_t>(config_.frames(), content_ - seek_);
  if (made.is_silence) {
    seek_ += frames;
    return seek_ < content_;
  }
  Cut cut = cut_window(made.text, config_, static_cast<double>(seek_) / kFramesPerSecond, frames);
  for (WhisperSegment& segment : cut.segments) {
    segment.temperature = made.temperature;
    segment.compression_ratio = made.compression_ratio;
  }
  add_segments(model, open->window, std::move(cut.segments), frames);
  if (made.temperature > kTemperatureOfPrompts) previous_.clear();
  seek_ += std::min(cut.advance, frames);
  return seek_ < content_;
}

Result<bool> WhisperTranscription::step(Whisper& model, const std::function<bool()>& go_on) {
  const Turn turn{.recording = this, .go_on = go_on};
  return step_all(model, {&turn, 1}).front();
}

std::vector<Result<bool>> WhisperTranscription::step_all(Whisper& model,
                                                         std::span<const Turn> turns) {
  std::vector<Result<bool>> results;
  for (const Turn& turn : turns) {
    results.push_back(turn.recording->begin_window(model, turn.go_on));
  }
  std::vector<WhisperWindow*> windows;
  std::vector<TokenId> tokens;
  std::vector<WhisperAttempts*> attempts;
  for (;;) {
    windows.clear();
    tokens.clear();
    attempts.clear();
    for (size_t i = 0; i < turns.size(); ++i) {
      WhisperTranscription& recording = *turns[i].recording;
      if (recording.open_ == nullptr) continue;
      Open& open = *recording.open_;
      const std::optional<TokenId> token = open.attempts->next();
      if (!turns[i].go_on()) {
        recording.open_ = nullptr;
        results[i] = Error{ErrorCode::kCancelled, "stopped", ""};
      } else if (!token) {
        results[i] = recording.end_window(model);
      } else {
        windows.push_back(&open.window);
        tokens.push_back(*token);
        attempts.push_back(&*open.attempts);
      }
    }
    if (windows.empty()) return results;
    const std::span<const float> logits = model.step_each(windows, tokens);
    const size_t vocab = logits.size() / windows.size();
    for (size_t i = 0; i < attempts.size(); ++i) {
      attempts[i]->take(logits.subspan(i * vocab, vocab));
    }
  }
}

void WhisperTranscription::add_segments(Whisper& model, WhisperWindow& window,
                                        std::vector<WhisperSegment> cut, int64_t frames) {
  const auto is_text = [&](TokenId id) { return id < config_.end_of_text; };
  std::vector<AlignedToken> aligned;
  if (task_.aligns) {
    std::vector<TokenId> said;
    for (const WhisperSegment& segment : cut) {
      std::ranges::copy_if(segment.tokens, std::back_inserter(said), is_text);
    }
    WhisperTask task = window_task(0.0);
    task.previous.clear();
    task.timestamps = true;  // align() puts the token that says there are none itself
    aligned = align(model, window, whisper_prompt(config_, task), said, frames);
  }
  if (!task_.uses_previous) previous_.clear();
  const double begin_s = static_cast<double>(seek_) / kFramesPerSecond;
  size_t at = 0;
  for (WhisperSegment& segment : cut) {
    segment.seek = seek_;
    segment.end_s = std::min(std::max(segment.end_s, segment.begin_s), seconds_);
    segment.begin_s = std::min(segment.begin_s, segment.end_s);
    const auto count = static_cast<size_t>(std::ranges::count_if(segment.tokens, is_text));
    for (size_t i = 0; i < count && at < aligned.size(); ++i, ++at) {
      AlignedToken token = aligned[at];
      token.begin_s = std::min(token.begin_s + begin_s, seconds_);
      token.end_s = std::min(token.end_s + begin_s, seconds_);
      segment.aligned.push_back(token);
    }
    if (count == 0) continue;  // times without a word between them
    if (task_.uses_previous) {
      previous_.insert(previous_.end(), segment.tokens.begin(), segment.tokens.end());
    }
    segments_.push_back(std::move(segment));
  }
  // A prompt has room for no more.
  const auto most = static_cast<size_t>(config_.target_positions);
  if (previous_.size() > most) {
    previous_.erase(previous_.begin(), previous_.end() - static_cast<std::ptrdiff_t>(most));
  }
}

}  // namespace pelton::models
