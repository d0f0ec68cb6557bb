#include "models/accuracy_gate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "kernels/bf16_kernels.h"
#include "layers/output_head.h"
#include "models/sequence_runner.h"

namespace pelton::models {
namespace {

// Logits of all positions are kept: (positions, vocab), in steps that bound the working memory.
constexpr int kStepTokens = 64;

Result<std::vector<float>> all_logits(const checkpoint::Checkpoint& checkpoint,
                                      kernels::Kernels& kernels, std::span<const TokenId> tokens) {
  const int count = static_cast<int>(tokens.size());
  const int step = std::min(count, kStepTokens);
  TRY_ASSIGN(const std::unique_ptr<Model> model,
             load_model(checkpoint, kernels, {.batch_tokens_max = step, .logit_rows_max = step}));
  TRY_ASSIGN(SequenceRunner runner, SequenceRunner::make(*model, kernels.kv_dtype(), count));
  const int64_t vocab = checkpoint.config().vocab_size;
  std::vector<float> logits;
  logits.reserve(tokens.size() * static_cast<size_t>(vocab));
  for (int begin = 0; begin < count; begin += step) {
    const int now = std::min(step, count - begin);
    std::vector<int> rows(static_cast<size_t>(now));
    for (int i = 0; i < now; ++i) rows[i] = i;
    const float* got = runner.step(tokens.subspan(begin, now), rows, nullptr);
    logits.insert(logits.end(), got, got + now * vocab);
  }
  return logits;
}

struct RowLoss {
  double error = 0;
  double divergence = 0;
  double lost_gap = -1;  // negative: the best token is the same
};

// The lowest of the logits that matter: the likeliest, and all that are likely enough.
float least_that_matters(const float* exact, int64_t vocab, double log_total) {
  std::vector<float> sorted(exact, exact + vocab);
  const int64_t nth = std::min<int64_t>(layers::OutputHead::kLikeliest, vocab) - 1;
  std::nth_element(sorted.begin(), sorted.begin() + nth, sorted.end(), std::greater<>());
  const double likely = log_total + std::log(layers::OutputHead::kProbability);
  return std::min(sorted[nth], static_cast<float>(likely));
}

RowLoss compare_rows(const float* got, const float* exact, int64_t vocab, ComparedLogits compared) {
  int64_t best = 0;
  int64_t got_best = 0;
  for (int64_t i = 0; i < vocab; ++i) {
    if (exact[i] > exact[best]) best = i;
    if (got[i] > got[got_best]) got_best = i;
  }
  double total = 0;
  double got_total = 0;
  for (int64_t i = 0; i < vocab; ++i) {
    total += std::exp(double{exact[i]} - exact[best]);
    got_total += std::exp(double{got[i]} - got[got_best]);
  }
  const double log_total = exact[best] + std::log(total);
  const double got_log_total = got[got_best] + std::log(got_total);
  const float least = compared == ComparedLogits::kThatMatter
                          ? least_that_matters(exact, vocab, log_total)
                          : -std::numeric_limits<float>::infinity();
  double difference = 0;
  double norm = 0;
  for (int64_t i = 0; i < vocab; ++i) {
    if (exact[i] < least) continue;
    difference += (double{got[i]} - exact[i]) * (double{got[i]} - exact[i]);
    norm += double{exact[i]} * exact[i];
  }
  RowLoss loss{.error = std::sqrt(difference / std::max(norm, 1e-30))};
  float second = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < vocab; ++i) {
    const double log_p = exact[i] - log_total;
    loss.divergence += std::exp(log_p) * (log_p - (got[i] - got_log_total));
    if (i != best) second = std::max(second, exact[i]);
  }
  if (best != got_best) loss.lost_gap = double{exact[best]} - second;
  return loss;
}

}  // namespace

bool WeightLoss::is_finite() const {
  return std::isfinite(error_mean) && std::isfinite(error_max) && std::isfinite(divergence) &&
         std::isfinite(lost_gap);
}

WeightLossLimits golden_limits(ComparedLogits compared) {
  WeightLossLimits limits;
  // Unlikely tokens may be further off where they are meant to be coarse.
  if (compared == ComparedLogits::kThatMatter) limits.divergence = 1e-3;
  return limits;
}

WeightLossLimits limits_beside(const WeightLoss& in_bf16) {
  WeightLossLimits limits = golden_limits(in_bf16.compared);
  if (!in_bf16.is_finite()) return limits;
  const auto widen = [](double& limit, double loss, double widest) {
    limit = std::max(limit, std::min(loss, widest));
  };
  widen(limits.error_mean, in_bf16.error_mean, kWidestLimits.error_mean);
  widen(limits.error_max, in_bf16.error_max, kWidestLimits.error_max);
  widen(limits.divergence, in_bf16.divergence, kWidestLimits.divergence);
  widen(limits.lost_gap, in_bf16.lost_gap, kWidestLimits.lost_gap);
  limits.agreement =
      std::min(limits.agreement, std::max(in_bf16.agreement, kWidestLimits.agreement));
  return limits;
}

std::string excess(const WeightLoss& loss, const WeightLossLimits& limits) {
  std::string out;
  const auto check = [&](const char* what, double value, double limit) {
    if (value <= limit) return;
    out += fmt::format("{}{} {:.2e}, limit {:.2e}", out.empty() ? "" : "; ", what, value, limit);
  };
  check("relative error, mean", loss.error_mean, limits.error_mean);
  check("relative error, worst", loss.error_max, limits.error_max);
  check("divergence", loss.divergence, limits.divergence);
  check("other best tokens", 1 - loss.agreement, 1 - limits.agreement);
  check("gap at which a best token was lost", loss.lost_gap, limits.lost_gap);
  return out;
}

Result<AccuracyGate> AccuracyGate::make(
    const checkpoint::Checkpoint& shipped, kernels::Kernels& kernels,
    std::span<const TokenId> tokens, base::FunctionRef<bool(int64_t done, int64_t total)> go_on) {
  CHECK(tokens.size() >= 2);
  const Error interrupted{ErrorCode::kCancelled, "interrupted"};
  const int vocab = shipped.config().vocab_size;
  AccuracyGate gate(kernels, tokens, vocab);
  if (!go_on(0, 2)) return interrupted;
  TRY_ASSIGN(gate.exact_, all_logits(shipped, kernels, tokens));
  for (const float logit : gate.exact_) {
    if (std::isfinite(logit)) continue;
    return Error{
        ErrorCode::kBadCheckpoint,
        fmt::format("{}: computes NaN or infinity; pelton verify says where", shipped.folder())};
  }
  if (!go_on(1, 2)) return interrupted;
  const std::unique_ptr<kernels::Kernels> bf16 = kernels::make_bf16_kernels(kernels, vocab);
  TRY_ASSIGN(const std::vector<float> got, all_logits(shipped, *bf16, tokens));
  gate.all_in_bf16_ = gate.compare(got, ComparedLogits::kAll);
  gate.that_matter_in_bf16_ = gate.compare(got, ComparedLogits::kThatMatter);
  if (!go_on(2, 2)) return interrupted;
  return gate;
}

Result<WeightLoss> AccuracyGate::measure(const checkpoint::Checkpoint& packed) const {
  TRY_ASSIGN(const std::vector<float> got, all_logits(packed, *kernels_, tokens_));
  return compare(
      got, packed.has(families::kCoarseHead) ? ComparedLogits::kThatMatter : ComparedLogits::kAll);
}

WeightLoss AccuracyGate::compare(std::span<const float> got, ComparedLogits compared) const {
  const auto count = static_cast<int64_t>(tokens_.size());
  WeightLoss loss{.compared = compared};
  int64_t agreed = 0;
  for (int64_t p = 0; p < count; ++p) {
    const RowLoss row =
        compare_rows(got.data() + p * vocab_, exact_.data() + p * vocab_, vocab_, compared);
    loss.error_mean += row.error / static_cast<double>(count);
    loss.error_max = std::max(loss.error_max, row.error);
    loss.divergence += row.divergence / static_cast<double>(count);
    loss.lost_gap = std::max(loss.lost_gap, row.lost_gap);
    if (row.lost_gap < 0) ++agreed;
  }
  loss.agreement = static_cast<double>(agreed) / static_cast<double>(count);
  // A model that computes NaN is within no limit.
  if (!std::isfinite(loss.error_mean)) loss.error_max = std::numeric_limits<double>::infinity();
  return loss;
}

}  // namespace pelton::models
