// A text that a model is tried with: by `verify`, and when weights are packed. Any thread.
#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "checkpoint/checkpoint.h"

namespace pelton::node {

struct SampleTokens {
  std::vector<TokenId> tokens;
  bool real_text = false;
};

// At most `count` tokens: real text where the model has a tokenizer, otherwise some token ids.
Result<SampleTokens> sample_tokens(const checkpoint::Checkpoint& checkpoint, size_t count);

}  // namespace pelton::node
