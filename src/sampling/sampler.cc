#include "sampling/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/check.h"
#include "base/random.h"

namespace pelton::sampling {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// e^x for x <= 0, written so that the compiler can vectorise a loop of it: 2^n e^r, |r| <= ln(2)/2,
// e^r by its Taylor series (relative error below 2e-7). Below -87 it is 0.
inline float exp_of_negative(float x) {
  const float clamped = x < -87.0f ? -87.0f : x;
  const float shifted = clamped * 1.44269504f + 12582912.0f;  // rounds: 1.5 * 2^23
  const float n = shifted - 12582912.0f;
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  float e = 1.0f / 720;
  e = e * r + 1.0f / 120;
  e = e * r + 1.0f / 24;
  e = e * r + 1.0f / 6;
  e = e * r + 0.5f;
  e = e * r + 1.0f;
  e = e * r + 1.0f;
  const auto power = static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23;
  const float value = e * std::bit_cast<float>(power);
  return x < -87.0f ? 0.0f : value;
}

// No NaN, no +infinity, and something to choose. On bits, so that the loop runs at the speed of
// memory.
bool are_usable(std::span<const float> logits) {
  constexpr uint32_t kInfinity = 0x7F800000;
  uint32_t broken = 0;
  uint32_t finite = 0;
  for (const float logit : logits) {
    const auto bits = std::bit_cast<uint32_t>(logit);
    const uint32_t magnitude = bits & 0x7FFFFFFF;
    broken |=
        static_cast<uint32_t>(magnitude > kInfinity) | static_cast<uint32_t>(bits == kInfinity);
    finite |= static_cast<uint32_t>(magnitude < kInfinity);
  }
  return broken == 0 && finite != 0;
}

float highest_of(std::span<const float> logits) {
  float highest = kNever;
  for (const float logit : logits) highest = logit > highest ? logit : highest;
  return highest;
}

void apply_penalties(std::span<float> logits, const request::SamplingParams& params,
                     const TokenHistory& history) {
  for (const auto& [token, count] : history.counts()) {
    if (static_cast<size_t>(token) >= logits.size()) continue;
    float& logit = logits[token];
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    if (count.in_output > 0) {
      logit -=
          params.frequency_penalty * static_cast<float>(count.in_output) + params.presence_penalty;
    }
  }
}

}  // namespace

void Sampler::reserve(int vocab) {
  static_assert(kBytesPerLogit == 2 * sizeof(float) + sizeof(Candidate));
  weights_.reserve(static_cast<size_t>(vocab));
  candidates_.reserve(static_cast<size_t>(vocab));
  raw_.reserve(static_cast<size_t>(vocab));
}

int64_t Sampler::bytes() const {
  return static_cast<int64_t>((weights_.capacity() + raw_.capacity()) * sizeof(float) +
                              candidates_.capacity() * sizeof(Candidate));
}

SampledChoice Sampler::sample(const SampleInput& input) {
  const request::SamplingParams& params = input.params;
  SampledChoice choice;
  if (!are_usable(input.logits)) {
    choice.usable = false;
    return choice;
  }
  if (params.logprobs >= 0) raw_.assign(input.logits.begin(), input.logits.end());

  if (input.history != nullptr) apply_penalties(input.logits, params, *input.history);
  for (const auto& [token, bias] : params.logit_bias) {
    if (static_cast<size_t>(token) < input.logits.size()) input.logits[token] += bias;
  }
  for (const TokenId token : input.banned) {
    if (static_cast<size_t>(token) < input.logits.size()) input.logits[token] = kNever;
  }
  choice.token = draw(input.logits, params,
                      base::random_unit(params.seed, static_cast<uint64_t>(input.position)));
  if (params.logprobs >= 0) report(input, choice);
  return choice;
}

TokenId Sampler::draw(std::span<const float> logits, const request::SamplingParams& params,
                      double unit) {
  const float highest = highest_of(logits);
  if (params.temperature <= 0.0f || !std::isfinite(highest)) {
    const auto best = std::find(logits.begin(), logits.end(), highest);
    return best == logits.end() ? 0 : static_cast<TokenId>(best - logits.begin());
  }
  const bool cuts = params.top_k > 0 || params.top_p < 1.0f || params.min_p > 0.0f;
  return cuts ? draw_from_best(logits, highest, params, unit)
              : draw_from_all(logits, highest, params.temperature, unit);
}

TokenId Sampler::draw_from_all(std::span<const float> logits, float highest, float temperature,
                               double unit) {
  const float sharpness = 1.0f / temperature;
  weights_.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    weights_[i] = exp_of_negative((logits[i] - highest) * sharpness);
  }
  double total = 0;
  for (const float weight : weights_) total += weight;
  double left = unit * total;
  TokenId last = 0;
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] == 0.0f) continue;
    last = static_cast<TokenId>(i);
    left -= weights_[i];
    if (left < 0) break;
  }
  return last;
}

TokenId Sampler::draw_from_best(std::span<const float> logits, float highest,
                                const request::SamplingParams& params, double unit) {
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  };
  const float sharpness = 1.0f / params.temperature;
  const auto weight = [&](const Candidate& candidate) {
    return double{exp_of_negative((candidate.logit - highest) * sharpness)};
  };

  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] != kNever) candidates_.push_back({logits[i], static_cast<TokenId>(i)});
  }
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + params.top_k, candidates_.end(),
                     better);
    candidates_.resize(static_cast<size_t>(params.top_k));
  }
  double total = 0;
  for (const Candidate& candidate : candidates_) total += weight(candidate);

  // What top_p and min_p keep is a prefix of the sorted candidates. It is nearly always short: sort
  // only as much as it needs.
  size_t kept = 0;
  double kept_mass = 0;
  size_t sorted = 0;
  bool enough = false;
  while (!enough && sorted < candidates_.size()) {
    const size_t next = std::min(candidates_.size(), std::max<size_t>(64, sorted * 8));
    std::partial_sort(candidates_.begin() + static_cast<std::ptrdiff_t>(sorted),
                      candidates_.begin() + static_cast<std::ptrdiff_t>(next), candidates_.end(),
                      better);
    for (; sorted < next; ++sorted) {
      const double mass = weight(candidates_[sorted]);
      if (sorted > 0 && (kept_mass >= params.top_p * total || mass < params.min_p)) {
        enough = true;
        break;
      }
      kept_mass += mass;
      kept = sorted + 1;
    }
  }
  double left = unit * kept_mass;
  for (size_t i = 0; i + 1 < kept; ++i) {
    left -= weight(candidates_[i]);
    if (left < 0) return candidates_[i].token;
  }
  CHECK(kept > 0);
  return candidates_[kept - 1].token;
}

void Sampler::report(const SampleInput& input, SampledChoice& choice) {
  const float highest = highest_of(raw_);
  double total = 0;
  for (const float logit : raw_) total += exp_of_negative(logit - highest);
  const double log_total = highest + std::log(total);
  const auto logprob = [&](TokenId token) {
    // JSON has no infinity: -9999 is what OpenAI's API prints for "never".
    return std::max(static_cast<float>(raw_[token] - log_total), -9999.0f);
  };
  choice.logprob = logprob(choice.token);

  const size_t wanted = std::min<size_t>(input.params.logprobs, raw_.size());
  if (wanted == 0) return;
  candidates_.clear();
  for (size_t i = 0; i < raw_.size(); ++i) {
    candidates_.push_back({raw_[i], static_cast<TokenId>(i)});
  }
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(wanted),
                    candidates_.end(), [](const Candidate& a, const Candidate& b) {
                      return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
                    });
  for (size_t i = 0; i < wanted; ++i) {
    choice.top.emplace_back(candidates_[i].token, logprob(candidates_[i].token));
  }
}

}  // namespace pelton::sampling
