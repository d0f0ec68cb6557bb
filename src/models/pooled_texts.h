// Vectors and scores of texts outside the engine, exactly: for `pelton embed` and tests. Encoders
// take as many texts at a time as a step has room for; a decoder's texts go one by one. One thread.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "models/model.h"
#include "tensor/dtype.h"

namespace pelton::models {

struct PooledText {
  std::vector<TokenId> tokens;
  int second_text = 0;  // as ForwardInput::Sequence's
};

struct PooledRequest {
  enum class Of : uint8_t { kFirst, kMean, kLast, kLabels, kTokens };
  Of of = Of::kLast;                  // whose state, or which head's logits
  std::vector<TokenId> label_tokens;  // of kTokens
  tensor::DType kv_dtype = tensor::DType::kF32;
};

// A vector for each text, in order, as it is pooled: not normalised. Errors: kInvalidArgument of a
// text that is empty, has an id beyond the vocabulary, or is longer than the model takes.
Result<std::vector<std::vector<float>>> pooled_texts(Model& model,
                                                     std::span<const PooledText> texts,
                                                     const PooledRequest& request);

// To length one, in double; zeros stay.
void normalise(std::vector<float>& vector);

}  // namespace pelton::models
