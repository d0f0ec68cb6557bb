#include "models/whisper_decoding.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "models/whisper_beams.h"

namespace pelton::models {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// log of the sum of e^x, of [begin, end).
double log_sum(std::span<const float> logits, size_t begin, size_t end) {
  double highest = kNever;
  for (size_t i = begin; i < end; ++i) highest = std::max(highest, double{logits[i]});
  if (highest == double{kNever}) return highest;
  double sum = 0.0;
  for (size_t i = begin; i < end; ++i) sum += std::exp(logits[i] - highest);
  return highest + std::log(sum);
}

void forbid(std::span<float> logits, TokenId begin, TokenId end) {
  const auto size = static_cast<TokenId>(logits.size());
  for (TokenId id = std::max<TokenId>(begin, 0); id < std::min(end, size); ++id) {
    logits[static_cast<size_t>(id)] = kNever;
  }
}

// Timestamps come in pairs, never go back, and are taken where together they are likelier than any
// text.
void mask_timestamps(std::span<float> logits, std::span<const TokenId> generated,
                     const WhisperConfig& config) {
  const TokenId begin = config.timestamp_begin;
  const auto size = static_cast<TokenId>(logits.size());
  logits[static_cast<size_t>(config.no_timestamps)] = kNever;
  const size_t count = generated.size();
  const bool last = count >= 1 && generated[count - 1] >= begin;
  const bool one_before = count < 2 || generated[count - 2] >= begin;
  if (last && one_before) forbid(logits, begin, size);             // a pair is complete
  if (last && !one_before) forbid(logits, 0, config.end_of_text);  // its twin, or the end
  for (size_t i = count; i-- > 0;) {
    if (generated[i] < begin) continue;
    // The same one again may only close a pair.
    const bool closes = last && !one_before;
    forbid(logits, begin, closes ? generated[i] : generated[i] + 1);
    break;
  }
  if (count == 0) {
    forbid(logits, 0, begin);
    forbid(logits, begin + config.initial_timestamp_max + 1, size);
  }
  const double all = log_sum(logits, 0, logits.size());
  const double stamps = log_sum(logits, static_cast<size_t>(begin), logits.size()) - all;
  double text = kNever;
  for (TokenId id = 0; id < begin; ++id) {
    text = std::max(text, double{logits[static_cast<size_t>(id)]} - all);
  }
  if (stamps > text) forbid(logits, 0, begin);
}

}  // namespace

void mask_logits(std::span<float> logits, std::span<const TokenId> generated,
                 const WhisperConfig& config, const WhisperMasks& masks) {
  if (generated.empty()) {
    for (const TokenId id : config.suppressed_first) logits[static_cast<size_t>(id)] = kNever;
  }
  for (const TokenId id : config.suppressed) logits[static_cast<size_t>(id)] = kNever;
  if (masks.timestamps) mask_timestamps(logits, generated, config);
}

std::vector<double> language_probabilities(Whisper& model, WhisperWindow& window) {
  const int before = window.length();
  const std::span<const float> logits = model.step(window, {&model.config().start, 1});
  window.rewind(before);
  double highest = kNever;
  for (const auto& [name, token] : model.config().languages) {
    highest = std::max(highest, double{logits[static_cast<size_t>(token)]});
  }
  std::vector<double> shares;
  double total = 0.0;
  for (const auto& [name, token] : model.config().languages) {
    shares.push_back(std::exp(logits[static_cast<size_t>(token)] - highest));
    total += shares.back();
  }
  for (double& share : shares) share /= total;
  return shares;
}

std::vector<TokenId> whisper_prompt(const WhisperConfig& config, const WhisperTask& task) {
  std::vector<TokenId> prompt;
  if (!task.previous.empty()) {
    // Start of previous, start, language, task, no timestamps, and a token more.
    constexpr int kOthers = 6;
    const int room = config.target_positions - static_cast<int>(task.begun.size()) - kOthers;
    const int most = std::clamp(room, 0, config.target_positions / 2 - 1);
    const size_t kept = std::min(task.previous.size(), static_cast<size_t>(most));
    prompt.push_back(config.start_of_previous);
    prompt.insert(prompt.end(), task.previous.end() - static_cast<std::ptrdiff_t>(kept),
                  task.previous.end());
  }
  prompt.push_back(config.start);
  if (config.multilingual) {
    CHECK(task.language >= 0, "a multilingual model needs a language");
    prompt.push_back(task.language);
    prompt.push_back(task.translates ? config.translate : config.transcribe);
  }
  if (!task.timestamps) prompt.push_back(config.no_timestamps);
  return prompt;
}

namespace {

// One of softmax(logits / temperature); `draw` in [0, 1).
TokenId token_of(std::span<const float> logits, double temperature, double draw) {
  const auto best = std::ranges::max_element(logits);
  if (temperature <= 0.0) return static_cast<TokenId>(best - logits.begin());
  const double highest = *best;
  double all = 0.0;
  for (const float logit : logits) all += std::exp((logit - highest) / temperature);
  double left = draw * all;
  for (size_t id = 0; id < logits.size(); ++id) {
    left -= std::exp((logits[id] - highest) / temperature);
    if (left < 0.0 && logits[id] != kNever) return static_cast<TokenId>(id);
  }
  return static_cast<TokenId>(best - logits.begin());
}

}  // namespace

double candidate_score(const WhisperCandidate& candidate, const WhisperSearch& search) {
  const auto count = static_cast<double>(candidate.tokens.size());
  if (search.length_penalty) {
    return candidate.logprob / std::pow((5.0 + count) / 6.0, *search.length_penalty);
  }
  return candidate.logprob / std::max(count, 1.0);
}

void to_logprobs(std::span<float> logits, std::span<const TokenId> generated,
                 const WhisperConfig& config, const WhisperMasks& masks) {
  mask_logits(logits, generated, config, masks);
  const double all = log_sum(logits, 0, logits.size());
  for (float& logit : logits) logit = static_cast<float>(logit - all);
}

namespace {

// One token more, the likeliest or one that is drawn; false: it is the end of the text.
bool draw_token(std::span<const float> logits, const WhisperConfig& config, const WhisperTask& task,
                uint64_t seed, WhisperCandidate& text) {
  std::vector<TokenId> all = task.begun;
  all.insert(all.end(), text.tokens.begin(), text.tokens.end());
  std::vector<float> masked(logits.begin(), logits.end());
  mask_logits(masked, all, config, {.timestamps = task.timestamps});
  const TokenId token = token_of(masked, task.temperature, base::random_unit(seed, all.size()));
  text.logprob += double{masked[static_cast<size_t>(token)]} - log_sum(masked, 0, masked.size());
  text.ended = token == config.end_of_text;
  if (!text.ended) text.tokens.push_back(token);
  return !text.ended;
}

bool has_room(const WhisperConfig& config, const WhisperWindow& window, const WhisperTask& task,
              const WhisperCandidate& text) {
  return static_cast<int>(task.begun.size() + text.tokens.size()) < task.tokens_max &&
         window.length() < config.target_positions;
}

// The best of those drawn; `logits`: of the first token.
WhisperCandidate draw_texts(Whisper& model, WhisperWindow& window, std::span<const float> logits,
                            const WhisperTask& task, const std::function<bool()>& go_on) {
  const int length = window.length();
  const std::vector<float> first(logits.begin(), logits.end());
  std::optional<WhisperCandidate> best;
  for (int i = 0; i < task.search.best_of && go_on(); ++i) {
    window.rewind(length);
    const uint64_t seed =
        i == 0 ? task.seed : base::random_bits(task.seed, static_cast<uint64_t>(i));
    WhisperCandidate text;
    logits = first;
    while (go_on() && draw_token(logits, model.config(), task, seed, text) &&
           has_room(model.config(), window, task, text)) {
      logits = model.step(window, {&text.tokens.back(), 1});
    }
    const bool is_better =
        !best || candidate_score(text, task.search) > candidate_score(*best, task.search);
    if (is_better) best = std::move(text);
  }
  return best.value_or(WhisperCandidate{});
}

}  // namespace

WindowDecoding::WindowDecoding(Whisper& model, WhisperWindow& window, WhisperTask task,
                               const std::function<bool()>& go_on)
    : config_(model.config()), window_(window), task_(std::move(task)) {
  const auto vocab = static_cast<size_t>(config_.vocab_size);
  std::vector<TokenId> prompt = whisper_prompt(config_, task_);
  prompt.insert(prompt.end(), task_.begun.begin(), task_.begun.end());
  window.rewind(0);
  const std::span<const float> all = model.step(window, prompt);
  const auto start = static_cast<size_t>(std::ranges::find(prompt, config_.start) - prompt.begin());
  const auto row = all.subspan(start * vocab, vocab);
  no_speech_ = std::exp(row[static_cast<size_t>(config_.no_speech)] - log_sum(row, 0, vocab));
  is_over_ = static_cast<int>(task_.begun.size()) >= task_.tokens_max;
  if (is_over_) return;
  const bool is_greedy = task_.temperature <= 0.0;
  if ((is_greedy ? task_.search.beam_size : task_.search.best_of) <= 1) {
    take(all.last(vocab));
    return;
  }
  drawn_ = is_greedy ? follow_beams(model, window, all.last(vocab), task_, go_on)
                     : draw_texts(model, window, all.last(vocab), task_, go_on);
  is_over_ = true;
}

std::optional<TokenId> WindowDecoding::next() const {
  if (is_over_) return std::nullopt;
  return drawn_.tokens.back();
}

void WindowDecoding::take(std::span<const float> logits) {
  is_over_ = !draw_token(logits, config_, task_, task_.seed, drawn_) ||
             !has_room(config_, window_, task_, drawn_);
}

WhisperText WindowDecoding::text() const {
  WhisperText text{
      .tokens = task_.begun,
      .average_logprob = drawn_.logprob / static_cast<double>(drawn_.tokens.size() + 1),
      .no_speech = no_speech_,
      .ended = drawn_.ended};
  text.tokens.insert(text.tokens.end(), drawn_.tokens.begin(), drawn_.tokens.end());
  return text;
}

WhisperText decode_window(Whisper& model, WhisperWindow& window, const WhisperTask& task,
                          const std::function<bool()>& go_on) {
  WindowDecoding decoding(model, window, task, go_on);
  for (auto token = decoding.next(); token && go_on(); token = decoding.next()) {
    decoding.take(model.step(window, {&*token, 1}));
  }
  return decoding.text();
}

}  // namespace pelton::models
