#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/check.h"
#include "base/random.h"
#include "sampling/draw_numbers.h"
#include "sampling/repetition_edits.h"

namespace pelton::sampling {
namespace {

using kernels::LogitScale;
using kernels::Mass;

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr TokenId kLastToken = std::numeric_limits<TokenId>::max();
constexpr float kFiniteMax = std::numeric_limits<float>::max();
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

// The least mass that is at least top_p of all; one unit, which the best token has, if that is
// none.
Mass share_of(Mass total, float top_p) {
  const unsigned __int128 product = static_cast<unsigned __int128>(total) * share_bits(top_p);
  return std::max(static_cast<Mass>((product + ((uint64_t{1} << 53) - 1)) >> 53), Mass{1});
}

// A finite logit stays finite: beyond the largest float it is that one. What the model computed as
// a NaN or an infinity stays as it is, to be found.
float penalized(float logit, const request::SamplingParams& params, int in_output) {
  const float penalty = repetition_penalty_of(params.repetition_penalty);
  float changed = logit > 0 ? logit / penalty : logit * penalty;
  if (in_output > 0) {
    changed -= params.frequency_penalty * static_cast<float>(in_output) + params.presence_penalty;
  }
  return std::isfinite(logit) ? std::clamp(changed, -kFiniteMax, kFiniteMax) : logit;
}

void apply_penalties(std::span<float> logits, const request::SamplingParams& params,
                     const TokenHistory& history) {
  const auto penalize = [&](const std::unordered_map<TokenId, TokenHistory::Count>& counts) {
    for (const auto& [token, count] : counts) {
      if (static_cast<size_t>(token) >= logits.size()) continue;
      logits[token] = penalized(logits[token], params, count.in_output);
    }
  };
  if (history.is_whole(params.penalty_last_n)) {
    penalize(history.counts());
  } else {
    penalize(history.counts_of_last(params.penalty_last_n));
  }
}

void apply_dry(std::span<float> logits, const request::DryPenalty& dry,
               std::span<const TokenId> tokens) {
  for (const auto& [token, penalty] : dry_penalties(tokens, dry)) {
    if (static_cast<size_t>(token) >= logits.size() || !std::isfinite(logits[token])) continue;
    logits[token] = std::max(logits[token] - penalty, -kFiniteMax);
  }
}

// As unlikely as a number can be: chosen where nothing else may be. A NaN stays, to be found.
void discourage(float& logit) {
  if (logit <= kFiniteMax) logit = std::min(logit, -kFiniteMax);
}

void keep_allowed(std::span<float> logits, std::span<const TokenId> allowed) {
  std::vector<std::pair<TokenId, float>> kept;
  for (const TokenId token : allowed) {
    if (static_cast<size_t>(token) < logits.size()) kept.emplace_back(token, logits[token]);
  }
  for (float& logit : logits) discourage(logit);
  for (const auto& [token, logit] : kept) logits[token] = logit;
}

void apply_edits(std::span<float> logits, const DrawInput& input) {
  const request::SamplingParams& params = input.params;
  if (input.history != nullptr) {
    if (params.has_penalties()) apply_penalties(logits, params, *input.history);
    if (params.dry.multiplier > 0.0f) apply_dry(logits, params.dry, input.history->tokens());
  }
  for (const auto& [token, bias] : params.logit_bias) {
    if (static_cast<size_t>(token) < logits.size()) logits[token] += bias;
  }
  if (input.history != nullptr) {
    for (const TokenId token : ends_of_bad_words(input.history->output(), params.bad_words)) {
      if (static_cast<size_t>(token) < logits.size()) discourage(logits[token]);
    }
  }
  if (!params.allowed_tokens.empty()) keep_allowed(logits, params.allowed_tokens);
  for (const TokenId token : input.banned) {
    if (static_cast<size_t>(token) >= logits.size()) continue;
    // A NaN stays, to be found.
    if (logits[token] <= kFiniteMax) logits[token] = kNever;
  }
}

// What the caller asks of by its id. A token that the head has no row of is as unlikely as can be.
void report_named(std::span<const float> raw, std::span<const TokenId> tokens, double log_of_all,
                  SampledChoice& choice) {
  const size_t best = choice.top.size();
  for (const TokenId token : tokens) {
    const auto is_it = [&](const auto& known) { return known.first == token; };
    if (std::any_of(choice.top.begin(), choice.top.begin() + std::ptrdiff_t(best), is_it)) continue;
    const auto at = static_cast<size_t>(token);
    choice.top.emplace_back(token, logprob(at < raw.size() ? raw[at] : kNever, log_of_all));
  }
}

bool has_edits(const DrawInput& input) {
  return input.history != nullptr || !input.params.logit_bias.empty() || !input.banned.empty() ||
         !input.params.allowed_tokens.empty();
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

SampledChoice Sampler::sample(std::span<float> logits, const DrawInput& input) {
  const request::SamplingParams& params = input.params;
  CHECK(input.allowed.empty() || input.allowed.size() * 64 >= logits.size());
  reserve(static_cast<int>(logits.size()));

  SampledChoice choice;
  const bool reports = params.logprobs >= 0;
  const bool changes = has_edits(input) || !input.allowed.empty();
  kernels::LogitRows::Scan scan{};
  double log_of_all = 0;
  if (reports) {
    scan = rows_->scan(logits, {}, block_highest_.data());
    if (!scan.broken && scan.highest != kNever) {
      log_of_all = report_best(row_of(logits), scan.highest, params.logprobs, choice);
      report_named(logits, params.logprob_tokens, log_of_all, choice);
    }
    if (changes) raw_.assign(logits.begin(), logits.end());
  }
  apply_edits(logits, input);
  if (changes || !reports) scan = rows_->scan(logits, input.allowed, block_highest_.data());
  if (scan.broken || scan.highest == kNever) return {.usable = false};

  choice.token =
      draw(row_of(logits), scan.highest, input,
           base::random_bits(params.seed, static_cast<uint64_t>(input.position)), choice.surprise);
  if (reports) {
    const float raw = changes ? raw_[choice.token] : logits[choice.token];
    choice.logprob = logprob(raw, log_of_all);
  }
  return choice;
}

ScoredChoice Sampler::score(std::span<float> logits, TokenId token, int top) {
  reserve(static_cast<int>(logits.size()));
  ScoredChoice scored{.choice = {.token = token}};
  SampledChoice& choice = scored.choice;
  const kernels::LogitRows::Scan scan = rows_->scan(logits, {}, block_highest_.data());
  choice.usable = !scan.broken && scan.highest != kNever;
  if (!choice.usable) return scored;
  const double log_of_all = report_best(row_of(logits), scan.highest, top, choice);
  const auto at = static_cast<size_t>(token);
  const float logit = at < logits.size() ? logits[at] : kNever;  // no row of the head is its own
  choice.logprob = logprob(logit, log_of_all);
  const std::span<float> lower = logits.first(std::min(at, logits.size()));
  scored.rank =
      1 + static_cast<int>(std::count_if(lower.begin(), lower.end(),
                                         [&](float other) { return other >= logit; }) +
                           std::count_if(logits.begin() + static_cast<std::ptrdiff_t>(lower.size()),
                                         logits.end(), [&](float other) { return other > logit; }));
  return scored;
}

TokenId Sampler::draw(const Row& row, float highest, const DrawInput& input, uint64_t random,
                      float& surprise) {
  const request::SamplingParams& params = input.params;
  if (params.temperature <= 0.0f) return first_of(row, highest);
  if (params.mirostat.target > 0.0f) return draw_by_mirostat(row, highest, input, random, surprise);
  if (params.has_distribution_cuts()) return draw_by_distribution(row, highest, params, random);
  const LogitScale scale = scale_of(highest, params.temperature);
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < row.logits.size()) {
    collect_best(row, static_cast<size_t>(params.top_k));
    const Mass total = candidates_.softmax_weights(*rows_, scale);
    if (params.top_p < 1.0f) candidates_.cut_to_mass(share_of(total, params.top_p));
    return draw_from_candidates(params, random);
  }
  if (params.top_p < 1.0f) return draw_from_mass(row, scale, params, random);
  if (params.min_p > 0.0f) {
    candidates_.collect(*rows_, row, floor_of(scale, std::log2(double{params.min_p})));
    candidates_.softmax_weights(*rows_, scale);
    return draw_from_candidates(params, random);
  }
  return draw_from_all(row, scale, random);
}

void Sampler::rank_candidates() {
  ranked_.clear();
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (candidates_.weight(i) == 0) continue;
    ranked_.push_back({candidates_.token(i), candidates_.logit(i), candidates_.weight(i)});
  }
  std::sort(ranked_.begin(), ranked_.end(), [](const Weighted& a, const Weighted& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  });
}

// All cuts, one after the other, on the tokens that weigh anything. The draw is from those left, in
// order of id, as everywhere; whether XTC acts, a second random number says.
TokenId Sampler::draw_by_distribution(const Row& row, float highest,
                                      const request::SamplingParams& params, uint64_t random) {
  float floor = -kFiniteMax / 2;  // what is discouraged stays out where anything else may come
  if (params.top_n_sigma > 0.0f) floor = sigma_floor(row.logits, highest, params.top_n_sigma);
  candidates_.collect(*rows_, row, std::min(floor, highest));
  if (params.top_k > 0) candidates_.keep_best(static_cast<size_t>(params.top_k));
  double temperature = params.temperature;
  if (params.dynatemp_range > 0.0f) {
    candidates_.softmax_weights(*rows_, scale_of(highest, 1.0f));
    rank_candidates();
    temperature = dynamic_temperature(ranked_, candidates_.size(), params);
    if (temperature <= 0.0) return first_of(row, highest);
  }
  candidates_.softmax_weights(*rows_, scale_of(highest, static_cast<float>(temperature)));
  rank_candidates();
  if (params.typical_p < 1.0f) keep_typical(ranked_, params.typical_p);
  if (params.top_p < 1.0f) keep_share(ranked_, params.top_p);
  if (params.min_p > 0.0f) keep_above(ranked_, params.min_p);
  constexpr uint64_t kXtcStream = 0x5854'4358'5443'5854;
  const double chance = static_cast<double>(base::mix64(random ^ kXtcStream) >> 11) * 0x1p-53;
  if (chance < params.xtc_probability) exclude_top_choices(ranked_, params.xtc_threshold);
  return draw_from_ranked(random);
}

// Whatever has come before is in the bound: the draw is a function of it, the row, seed and
// position.
TokenId Sampler::draw_by_mirostat(const Row& row, float highest, const DrawInput& input,
                                  uint64_t random, float& surprise) {
  candidates_.collect(*rows_, row, std::min(-kFiniteMax / 2, highest));
  candidates_.softmax_weights(*rows_, scale_of(highest, input.params.temperature));
  rank_candidates();
  keep_unsurprising(ranked_, input.mirostat_bound);
  const TokenId token = draw_from_ranked(random);
  surprise = surprise_of(ranked_, token);
  return token;
}

TokenId Sampler::draw_from_ranked(uint64_t random) {
  std::sort(ranked_.begin(), ranked_.end(),
            [](const Weighted& a, const Weighted& b) { return a.token < b.token; });
  Mass total = 0;
  for (const Weighted& token : ranked_) total += token.weight;
  Mass target = scaled(total, random);
  for (const Weighted& token : ranked_) {
    if (target < token.weight) return token.token;
    target -= token.weight;
  }
  CHECK(false, "less mass than the tokens' weights");
  return 0;
}

TokenId Sampler::draw_from_candidates(const request::SamplingParams& params, uint64_t random) {
  if (params.min_p > 0.0f) {
    candidates_.cut_lighter(least_mass(params.min_p));
  }
  return candidates_.token_at(scaled(candidates_.kept_mass(), random));
}

// What top_p leaves. Nearly always most of the mass is that of a few tokens. So first only those
// are taken that weigh at least 1/64 of the best; then all that could be needed: the last one that
// stays and the N or less that do not, each of them no heavier, weigh more than (1 - top_p) of the
// whole. (A unit goes to rounding; who weighs less than half a unit is never needed.)
TokenId Sampler::draw_from_mass(const Row& row, LogitScale scale,
                                const request::SamplingParams& params, uint64_t random) {
  const Mass total = rows_->softmax_weights(row.logits, scale, kNever, block_mass_.data());
  const Mass needed = share_of(total, params.top_p);
  constexpr Mass kFewTotal = 8 * kernels::kWholeMass;  // the best token has an eighth of all
  if (total <= kFewTotal) {
    candidates_.collect(*rows_, row, floor_of(scale, -6));
    if (candidates_.softmax_weights(*rows_, scale) >= needed) {
      candidates_.cut_to_mass(needed);
      return draw_from_candidates(params, random);
    }
  }
  const double left = (1.0 - double{params.top_p}) * static_cast<double>(total) - 1.0;
  const double units = std::max(left / static_cast<double>(row.logits.size()) - 1.0, 0.25);
  const float floor = floor_of(scale, std::log2(units / static_cast<double>(kernels::kWholeMass)));
  if (params.min_p <= 0.0f && Candidates::many_reach(row, floor)) {
    const Front front = candidates_.spend_on_front(*rows_, row, floor, scale, total, needed);
    return draw_from_front(row, scale, front, random);
  }
  candidates_.collect(*rows_, row, floor);
  candidates_.softmax_weights(*rows_, scale);
  candidates_.cut_to_mass(needed);
  return draw_from_candidates(params, random);
}

// Straight from the row, by its blocks' masses.
TokenId Sampler::draw_from_all(const Row& row, LogitScale scale, uint64_t random) {
  const Mass total = rows_->softmax_weights(row.logits, scale, kNever, block_mass_.data());
  return draw_from_blocks(row, scale, 0, scaled(total, random), kNever, kLastToken);
}

// The same, less what is cut: of those equal to the front's last, all behind it. What the front
// weighs is known already, so that the row is weighed only up to the token that is drawn.
TokenId Sampler::draw_from_front(const Row& row, LogitScale scale, const Front& front,
                                 uint64_t random) {
  if (front.mass == 0) return draw_from_all(row, scale, random);
  const std::span<const TokenId> equals = candidates_.spend_on_equals(*rows_, row, front.logit);
  std::span<const TokenId> cut = equals.subspan(front.equals);
  Mass masses[kernels::kLogitBlock];
  rows_->weigh_each({&front.logit, 1}, scale, masses);
  const Mass each = masses[0];

  constexpr size_t kTogether = 64;  // blocks
  Mass target = scaled(front.mass, random);
  for (size_t block = 0;; block += kTogether) {
    const size_t begin = block * kernels::kLogitBlock;
    CHECK(begin < row.logits.size(), "a front has less mass than it is said to have");
    const size_t end = std::min(begin + kTogether * kernels::kLogitBlock, row.logits.size());
    Mass mass = rows_->softmax_weights(row.logits.subspan(begin, end - begin), scale, front.logit,
                                       block_mass_.data() + block);
    for (; !cut.empty() && static_cast<size_t>(cut[0]) < end; cut = cut.subspan(1)) {
      block_mass_[static_cast<size_t>(cut[0]) / kernels::kLogitBlock] -= each;
      mass -= each;
    }
    if (target < mass) {
      return draw_from_blocks(row, scale, block, target, front.logit, equals[front.equals - 1]);
    }
    target -= mass;
  }
}

// The token with which the masses from block `block` on exceed `target`. Of those whose logit is
// `floor`, none behind `last` counts.
TokenId Sampler::draw_from_blocks(const Row& row, LogitScale scale, size_t block, Mass target,
                                  float floor, TokenId last) {
  while (target >= block_mass_[block]) target -= block_mass_[block++];
  const size_t begin = block * kernels::kLogitBlock;
  const std::span<const float> logits =
      row.logits.subspan(begin, std::min<size_t>(kernels::kLogitBlock, row.logits.size() - begin));
  Mass masses[kernels::kLogitBlock];
  rows_->weigh_each(logits, scale, masses);
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto token = static_cast<TokenId>(begin + i);
    const bool kept = logits[i] > floor || (logits[i] == floor && token <= last);
    if (!kept) continue;
    if (target < masses[i]) return token;
    target -= masses[i];
  }
  CHECK(false, "a block has less mass than its logits");
  return 0;
}

void Sampler::collect_best(const Row& row, size_t count) {
  candidates_.collect(*rows_, row, candidates_.floor_of_best(row.block_highest, count));
  candidates_.keep_best(count);
}

TokenId Sampler::first_of(const Row& row, float value) const {
  size_t block = 0;
  while (row.block_highest[block] != value) ++block;
  size_t at = block * kernels::kLogitBlock;
  while (row.logits[at] != value) ++at;
  return static_cast<TokenId>(at);
}

double Sampler::report_best(const Row& raw, float highest, int wanted, SampledChoice& choice) {
  const Mass total =
      rows_->softmax_weights(raw.logits, scale_of(highest, 1.0f), kNever, block_mass_.data());
  const double log_of_all = log_total(highest, total);
  if (wanted == 0) return log_of_all;
  const size_t count =
      std::min({static_cast<size_t>(wanted), raw.logits.size(), Candidates::kSortedMax});
  collect_best(raw, count);
  for (const uint32_t i : candidates_.best(count)) {
    choice.top.emplace_back(candidates_.token(i), logprob(candidates_.logit(i), log_of_all));
  }
  return log_of_all;
}

}  // namespace pelton::sampling
