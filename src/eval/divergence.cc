#include "eval/divergence.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "models/sequence_runner.h"

namespace pelton::eval {
namespace {

// Logits as log-probabilities: logit - log_total.
struct Distribution {
  const float* logits = nullptr;
  double log_total = 0;
  int64_t best = 0;

  double log_probability(int64_t token) const { return double{logits[token]} - log_total; }
};

Distribution distribution_of(const float* logits, int64_t vocab) {
  const int64_t best = std::max_element(logits, logits + vocab) - logits;
  double total = 0;
  for (int64_t i = 0; i < vocab; ++i) total += std::exp(double{logits[i]} - logits[best]);
  return {.logits = logits, .log_total = logits[best] + std::log(total), .best = best};
}

double kl_of(const Distribution& base, const Distribution& other, int64_t vocab) {
  double sum = 0;
  for (int64_t i = 0; i < vocab; ++i) {
    const double log_p = base.log_probability(i);
    sum += std::exp(log_p) * (log_p - other.log_probability(i));
  }
  return std::max(sum, 0.0);  // not below for rounding
}

class Scorer {
 public:
  Scorer(const ScoredModel& base, const ScoredModel* other, int chunk,
         std::span<const TokenId> tokens, const TextScoringOptions& options)
      : base_(base),
        other_(other),
        chunk_(chunk),
        vocab_(base.model->config().vocab_size),
        tokens_(tokens),
        options_(options) {}

  Result<TextComparison> run() {
    const auto count = static_cast<int64_t>(tokens_.size());
    int64_t predicted = 1;  // the first token is never predicted
    for (int64_t begin = 0; predicted < count; begin += options_.stride) {
      const int64_t end = std::min(begin + options_.window, count);
      if (end - 1 <= std::ssize(options_.known)) {
        for (; predicted < end; ++predicted) {
          add(options_.known[static_cast<size_t>(predicted - 1)]);
        }
        continue;
      }
      scores_.clear();
      TRY(score_window(begin, end, predicted));
      if (options_.keep) TRY(options_.keep(scores_));
      predicted = end;
    }
    return result();
  }

 private:
  // Tokens [predicted, end) are predicted, those from `begin` on are seen.
  Result<void> score_window(int64_t begin, int64_t end, int64_t predicted) {
    const auto length = static_cast<int>(end - begin);
    TRY_ASSIGN(models::SequenceRunner base,
               models::SequenceRunner::make(*base_.model, base_.kv, length));
    std::optional<models::SequenceRunner> other;
    if (other_ != nullptr) {
      TRY_ASSIGN(other, models::SequenceRunner::make(*other_->model, other_->kv, length));
    }
    // The last token's logits predict nothing that is known.
    for (int64_t at = begin; at + 1 < end;) {
      const int64_t to = std::min(at + chunk_, end - 1);
      std::vector<int> rows;
      for (int64_t i = std::max(at, predicted - 1); i < to; ++i) {
        rows.push_back(static_cast<int>(i - at));
      }
      const std::span<const TokenId> chunk =
          tokens_.subspan(static_cast<size_t>(at), static_cast<size_t>(to - at));
      const float* logits = base.step(chunk, rows, nullptr);
      const float* others = other ? other->step(chunk, rows, nullptr) : nullptr;
      for (size_t i = 0; i < rows.size(); ++i) {
        const auto offset = static_cast<int64_t>(i) * vocab_;
        TRY(score_row(at + rows[i] + 1, logits + offset, others ? others + offset : nullptr));
      }
      at = to;
      if (options_.go_on && !options_.go_on(at + 1, static_cast<int64_t>(tokens_.size()))) {
        return Error{ErrorCode::kCancelled, "interrupted", {}};
      }
    }
    return {};
  }

  Result<void> score_row(int64_t position, const float* logits, const float* others) {
    const auto token = static_cast<int64_t>(tokens_[static_cast<size_t>(position)]);
    const Distribution base = distribution_of(logits, vocab_);
    PositionScore score{.nats = -base.log_probability(token)};
    if (others != nullptr) {
      const Distribution other = distribution_of(others, vocab_);
      score.other_nats = -other.log_probability(token);
      score.divergence = kl_of(base, other, vocab_);
      score.agrees = base.best == other.best;
    }
    scores_.push_back(score);
    add(score);
    const bool finite = std::isfinite(score.nats) && std::isfinite(score.other_nats) &&
                        std::isfinite(score.divergence);
    if (finite) return {};
    return Error{
        ErrorCode::kBadCheckpoint, fmt::format("NaN or infinity at position {}", position - 1), {}};
  }

  void add(const PositionScore& score) {
    ++count_;
    base_nats_ += score.nats;
    if (other_ == nullptr) return;
    other_nats_ += score.other_nats;
    kl_.push_back(score.divergence);
    agreed_ += score.agrees ? 1 : 0;
  }

  TextComparison result() {
    TextComparison all;
    const auto count = static_cast<double>(count_);
    all.base = {.tokens = count_, .nats = base_nats_ / count};
    if (kl_.empty()) return all;
    all.other = {.tokens = count_, .nats = other_nats_ / count};
    double sum = 0;
    for (const double one : kl_) sum += one;
    std::ranges::sort(kl_);
    all.divergence = {.kl_mean = sum / count,
                      .kl_p99 = kl_[static_cast<size_t>(0.99 * (count - 1))],
                      .kl_max = kl_.back(),
                      .agreement = static_cast<double>(agreed_) / count};
    return all;
  }

  const ScoredModel& base_;
  const ScoredModel* other_;
  const int64_t chunk_;
  const int64_t vocab_;
  const std::span<const TokenId> tokens_;
  const TextScoringOptions& options_;
  int64_t count_ = 0;
  double base_nats_ = 0;
  double other_nats_ = 0;
  int64_t agreed_ = 0;
  std::vector<double> kl_;             // of each position
  std::vector<PositionScore> scores_;  // of the window at hand
};

Error wrong(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), {}};
}

}  // namespace

double TextScore::perplexity() const {
  return std::exp(nats);
}

Result<TextComparison> score_text(const ScoredModel& base, const ScoredModel* other, int chunk,
                                  std::span<const TokenId> tokens,
                                  const TextScoringOptions& options) {
  if (tokens.size() < 2) return wrong("a text of at least two tokens is needed");
  if (options.stride < 1 || options.stride > options.window || options.window < 2) {
    return wrong("the stride wants to be from 1 to the window, which is 2 or more");
  }
  if (options.window > base.model->config().context_max) {
    return wrong(fmt::format("a window of {} tokens, but the model's context is {}", options.window,
                             base.model->config().context_max));
  }
  if (other != nullptr && other->model->config().vocab_size != base.model->config().vocab_size) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("a model with a vocabulary of {} tokens cannot be compared with one of "
                    "{} tokens; --against wants another form of the same model",
                    base.model->config().vocab_size, other->model->config().vocab_size),
        "against"};
  }
  return Scorer(base, other, chunk, tokens, options).run();
}

}  // namespace pelton::eval
