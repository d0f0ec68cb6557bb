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

// The likeliest tokens, or some drawn; `logits`: of the first one.
WhisperCandidate draw_text(Whisper& model, WhisperWindow& window, std::span<const float> logits,
                           const WhisperTask& task, uint64_t seed,
                           const std::function<bool()>& go_on) {
  const WhisperConfig& config = model.config();
  WhisperCandidate text;
  std::vector<TokenId> all = task.begun;
  while (static_cast<int>(all.size()) < task.tokens_max && go_on()) {
    std::vector<float> masked(logits.begin(), logits.end());
    mask_logits(masked, all, config, {.timestamps = task.timestamps});
    const TokenId token = token_of(masked, task.temperature, base::random_unit(seed, all.size()));
    text.logprob += double{masked[static_cast<size_t>(token)]} - log_sum(masked, 0, masked.size());
    text.ended = token == config.end_of_text;
    if (text.ended) break;
    text.tokens.push_back(token);
    all.push_back(token);
    if (window.length() == config.target_positions) break;
    logits = model.step(window, {&token, 1});
  }
  return text;
}

// The best of those drawn.
WhisperCandidate draw_texts(Whisper& model, WhisperWindow& window, std::span<const float> logits,
                            const WhisperTask& task, const std::function<bool()>& go_on) {
  const int length = window.length();
  const int count = task.temperature > 0.0 ? task.search.best_of : 1;
  const std::vector<float> first(logits.begin(), logits.end());
  WhisperCandidate best = draw_text(model, window, first, task, task.seed, go_on);
  for (int i = 1; i < count && go_on(); ++i) {
    window.rewind(length);
    const uint64_t seed = base::random_bits(task.seed, static_cast<uint64_t>(i));
    WhisperCandidate other = draw_text(model, window, first, task, seed, go_on);
    const bool is_better = candidate_score(other, task.search) > candidate_score(best, task.search);
    if (is_better) best = std::move(other);
  }
  return best;
}

}  // namespace

WhisperText decode_window(Whisper& model, WhisperWindow& window, const WhisperTask& task,
                          const std::function<bool()>& go_on) {
  const WhisperConfig& config = model.config();
  const auto vocab = static_cast<size_t>(config.vocab_size);
  std::vector<TokenId> prompt = whisper_prompt(config, task);
  prompt.insert(prompt.end(), task.begun.begin(), task.begun.end());
  window.rewind(0);
  const std::span<const float> all = model.step(window, prompt);
  WhisperText text{.tokens = task.begun};
  {
    const auto start =
        static_cast<size_t>(std::ranges::find(prompt, config.start) - prompt.begin());
    const auto row = all.subspan(start * vocab, vocab);
    text.no_speech = std::exp(row[static_cast<size_t>(config.no_speech)] - log_sum(row, 0, vocab));
  }
  const bool has_beams = task.temperature <= 0.0 && task.search.beam_size > 1;
  const WhisperCandidate best = has_beams
                                    ? follow_beams(model, window, all.last(vocab), task, go_on)
                                    : draw_texts(model, window, all.last(vocab), task, go_on);
  text.tokens.insert(text.tokens.end(), best.tokens.begin(), best.tokens.end());
  text.ended = best.ended;
  text.average_logprob = best.logprob / static_cast<double>(best.tokens.size() + 1);
  return text;
}

}  // namespace pelton::models
