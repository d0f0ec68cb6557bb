// How well a model predicts a text, and how far another form of the same model (other weights or
// keys and values) is from it, token by token with the text as it is (teacher-forced). One thread,
// whose pool the kernels use.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/result.h"
#include "base/token_id.h"
#include "models/model.h"
#include "tensor/dtype.h"

namespace pelton::eval {

// A model, and what its keys and values are kept in.
struct ScoredModel {
  models::Model* model = nullptr;
  tensor::DType kv = tensor::DType::kF16;
};

struct TextScore {
  int64_t tokens = 0;  // that were predicted
  double nats = 0;     // mean negative log-probability of the text's tokens

  double perplexity() const;
};

struct Divergence {
  double kl_mean = 0;  // KL(base || other) in nats, over the whole vocabulary
  double kl_p99 = 0;
  double kl_max = 0;
  double agreement = 0;  // share of positions where both have the same most likely token
};

struct TextComparison {
  TextScore base;
  TextScore other;        // valid where there is another
  Divergence divergence;  // likewise
};

// A token that was predicted.
struct PositionScore {
  double nats = 0;  // negative log-probability
  // Valid where there is another form:
  double other_nats = 0;
  double divergence = 0;  // KL(base || other)
  bool agrees = false;    // both have the same likeliest token
};

struct TextScoringOptions {
  int window = 512;  // tokens seen at once; the model's context at most
  // The next window begins so far on; only tokens that no window before it has predicted count.
  // stride == window: windows that do not overlap; the first token of each is then not predicted.
  int stride = 512;
  std::function<bool(int64_t done, int64_t total)> go_on;  // tokens; false stops. May be empty
  // Of the second token and those behind it, as the same models gave them before: windows that they
  // cover are not computed again.
  std::span<const PositionScore> known = {};
  // Gets each further window's; an error ends the scoring. May be empty.
  std::function<Result<void>(std::span<const PositionScore>)> keep = {};
};

// `other`: null for the base alone; of the same vocabulary. Both take at least `chunk` tokens and
// rows of logits in a step. Errors: kInvalidArgument (fewer than two tokens, vocabularies that
// differ), kBadCheckpoint (NaN or infinity), kCancelled, kDoesNotFit.
Result<TextComparison> score_text(const ScoredModel& base, const ScoredModel* other, int chunk,
                                  std::span<const TokenId> tokens,
                                  const TextScoringOptions& options);

}  // namespace pelton::eval
