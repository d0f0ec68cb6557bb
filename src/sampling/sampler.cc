#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/check.h"
#include "base/random.h"

namespace pelton::sampling {
namespace {

using kernels::LogitScale;
using kernels::Mass;

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr float kFiniteMax = std::numeric_limits<float>::max();
constexpr double kLog2E = 1.4426950408889634;

LogitScale scale_of(float highest, float temperature) {
  return {.highest = highest,
          .sharpness = static_cast<float>(std::min(kLog2E / temperature, 1e30))};
}

// A logit a hair lower than those that weigh 2^exponent: whoever weighs as much is at least this.
float floor_of(LogitScale scale, double exponent) {
  const double hair = 0.001 / scale.sharpness + std::abs(double{scale.highest}) * 0x1p-22;
  return static_cast<float>(
      std::max(scale.highest + exponent / scale.sharpness - hair, -double{kFiniteMax}));
}

// floor(fraction * mass), the fraction being `bits` / 2^64.
Mass scaled(Mass mass, uint64_t bits) {
  return static_cast<Mass>((static_cast<unsigned __int128>(mass) * bits) >> 64);
}

// The least mass that is at least top_p of all.
Mass share_of(Mass total, float top_p) {
  const auto share = static_cast<uint64_t>(double{top_p} * 0x1p53);  // exact: a float has 24 bits
  const unsigned __int128 product = static_cast<unsigned __int128>(total) * share;
  return static_cast<Mass>((product + ((uint64_t{1} << 53) - 1)) >> 53);
}

// JSON has no infinity: -9999 is what OpenAI's API prints for "never".
float logprob(float logit, double log_total) {
  return static_cast<float>(std::max(logit - log_total, -9999.0));
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

void apply_edits(const SampleInput& input) {
  const std::span<float> logits = input.logits;
  if (input.history != nullptr) apply_penalties(logits, input.params, *input.history);
  for (const auto& [token, bias] : input.params.logit_bias) {
    if (static_cast<size_t>(token) < logits.size()) logits[token] += bias;
  }
  for (const TokenId token : input.banned) {
    if (static_cast<size_t>(token) >= logits.size()) continue;
    // A NaN stays, to be found.
    if (logits[token] <= kFiniteMax) logits[token] = kNever;
  }
}

bool has_edits(const SampleInput& input) {
  return input.history != nullptr || !input.params.logit_bias.empty() || !input.banned.empty();
}

}  // namespace

Sampler::Sampler(kernels::KernelChoice choice)
    : rows_(std::move(kernels::make_logit_rows(choice)).value()) {}

void Sampler::reserve(int vocab) {
  candidates_.reserve(vocab);
  raw_.reserve(static_cast<size_t>(vocab));
  const size_t blocks = kernels::logit_blocks(static_cast<size_t>(vocab));
  if (blocks <= block_highest_.size()) return;
  block_highest_.resize(blocks);
  block_mass_.resize(blocks);
}

int64_t Sampler::bytes() const {
  return candidates_.bytes() +
         static_cast<int64_t>((raw_.capacity() + block_highest_.capacity()) * sizeof(float) +
                              block_mass_.capacity() * sizeof(Mass));
}

int64_t Sampler::bytes_for(int vocab) {
  const auto blocks = static_cast<int64_t>(kernels::logit_blocks(static_cast<size_t>(vocab)));
  const int64_t of_block = kernels::kLogitBlock * Candidates::kBytesPerLogit + 4 + 8;
  return vocab * static_cast<int64_t>(sizeof(float)) + blocks * of_block;
}

SampledChoice Sampler::sample(const SampleInput& input) {
  const request::SamplingParams& params = input.params;
  const std::span<float> logits = input.logits;
  CHECK(input.allowed.empty() || input.allowed.size() * 64 >= logits.size());
  reserve(static_cast<int>(logits.size()));

  SampledChoice choice;
  const bool reports = params.logprobs >= 0;
  const bool changes = has_edits(input) || !input.allowed.empty();
  kernels::LogitRows::Scan scan{};
  double log_total = 0;
  if (reports) {
    scan = rows_->scan(logits, {}, block_highest_.data());
    if (!scan.broken && scan.highest != kNever) {
      log_total = report_best(logits, scan.highest, params.logprobs, choice);
    }
    if (changes) raw_.assign(logits.begin(), logits.end());
  }
  apply_edits(input);
  if (changes || !reports) scan = rows_->scan(logits, input.allowed, block_highest_.data());
  if (scan.broken || scan.highest == kNever) return {.usable = false};

  choice.token = draw(logits, scan.highest, params,
                      base::random_bits(params.seed, static_cast<uint64_t>(input.position)));
  if (reports) {
    const float raw = changes ? raw_[choice.token] : logits[choice.token];
    choice.logprob = logprob(raw, log_total);
  }
  return choice;
}

TokenId Sampler::draw(std::span<const float> logits, float highest,
                      const request::SamplingParams& params, uint64_t random) {
  if (params.temperature <= 0.0f) return first_of(logits, highest);
  const LogitScale scale = scale_of(highest, params.temperature);
  const bool best_only = params.top_k > 0 && static_cast<size_t>(params.top_k) < logits.size();

  // Collects a few tokens that hold all those which the cuts leave.
  if (best_only) {
    collect_best(logits, static_cast<size_t>(params.top_k));
    const Mass total = candidates_.weigh(*rows_, scale);
    if (params.top_p < 1.0f) candidates_.cut_to_mass(share_of(total, params.top_p));
  } else if (params.top_p < 1.0f) {
    collect_mass(logits, scale, params.top_p);
  } else if (params.min_p > 0.0f) {
    candidates_.collect(*rows_, logits, block_highest(logits),
                        floor_of(scale, std::log2(double{params.min_p})));
    candidates_.weigh(*rows_, scale);
  } else {
    return draw_from_all(logits, scale, random);
  }
  if (params.min_p > 0.0f) {
    const double least = std::ceil(double{params.min_p} * static_cast<double>(kernels::kWholeMass));
    candidates_.cut_lighter(std::min(static_cast<Mass>(least), kernels::kWholeMass));
  }
  return candidates_.token_at(scaled(candidates_.kept_mass(), random));
}

TokenId Sampler::draw_from_all(std::span<const float> logits, LogitScale scale, uint64_t random) {
  Mass target = scaled(rows_->weigh(logits, scale, block_mass_.data()), random);
  size_t block = 0;
  while (target >= block_mass_[block]) target -= block_mass_[block++];
  const size_t begin = block * kernels::kLogitBlock;
  const size_t count = std::min<size_t>(kernels::kLogitBlock, logits.size() - begin);
  Mass masses[kernels::kLogitBlock];
  rows_->weigh_each(logits.subspan(begin, count), scale, masses);
  size_t at = 0;
  while (target >= masses[at]) target -= masses[at++];
  return static_cast<TokenId>(begin + at);
}

void Sampler::collect_best(std::span<const float> logits, size_t count) {
  const std::span<const float> highest = block_highest(logits);
  candidates_.collect(*rows_, logits, highest, candidates_.floor_of_best(highest, count));
  candidates_.keep_best(count);
}

// Nearly always most of the mass is that of a few tokens. So first only those that weigh at least
// 1/64 of the best; then all that could be needed: if the tokens left out together weigh
// (1 - top_p) of the whole, or less, the last one that stays weighs at least its share of that.
void Sampler::collect_mass(std::span<const float> logits, LogitScale scale, float top_p) {
  const Mass total = rows_->weigh(logits, scale, block_mass_.data());
  const Mass needed = share_of(total, top_p);
  const double whole = static_cast<double>(total) / static_cast<double>(kernels::kWholeMass);
  const double share_left = (1.0 - double{top_p}) * whole / static_cast<double>(logits.size());
  constexpr double kFewExponent = -6;
  constexpr double kFewWhole = 8;  // a row whose best token has an eighth of all mass
  for (const double exponent : {kFewExponent, std::log2(share_left), -1e30}) {
    if (exponent == kFewExponent && whole > kFewWhole) continue;
    candidates_.collect(*rows_, logits, block_highest(logits), floor_of(scale, exponent));
    if (candidates_.weigh(*rows_, scale) >= needed) break;
  }
  candidates_.cut_to_mass(needed);
}

TokenId Sampler::first_of(std::span<const float> logits, float value) const {
  size_t block = 0;
  while (block_highest_[block] != value) ++block;
  size_t at = block * kernels::kLogitBlock;
  while (logits[at] != value) ++at;
  return static_cast<TokenId>(at);
}

double Sampler::report_best(std::span<const float> raw, float highest, int wanted,
                            SampledChoice& choice) {
  const Mass total = rows_->weigh(raw, scale_of(highest, 1.0f), block_mass_.data());
  const double log_total =
      highest + std::log(static_cast<double>(total) / static_cast<double>(kernels::kWholeMass));
  if (wanted == 0) return log_total;
  const size_t count = std::min({static_cast<size_t>(wanted), raw.size(), Candidates::kSortedMax});
  collect_best(raw, count);
  for (const uint32_t i : candidates_.best(count)) {
    choice.top.emplace_back(candidates_.token(i), logprob(candidates_.logit(i), log_total));
  }
  return log_total;
}

}  // namespace pelton::sampling
