// What a model computes in one step, and whoever watches it. Plain values; executor thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/function_ref.h"
#include "base/token_id.h"
#include "kv/group.h"
#include "lora/adapter.h"

namespace pelton::models {

// One step, flat: the tokens of all sequences one after the other.
struct ForwardInput {
  struct Sequence {
    int start = 0;  // position of its first row
    int count = 0;  // rows
    // By KV group: block tables by position / block_tokens.
    kv::PerGroup<const int32_t*> tables;
    const lora::Adapter* adapter = nullptr;  // null: the model itself
    int adapter_from = 0;                    // rows at positions before it are the model's own
    // Of an encoder's pair of texts: where the second one begins; 0: there is one text.
    int second_text = 0;
    int slot = 0;  // whose block tables these are, from step to step
  };
  std::vector<TokenId> tokens;
  std::vector<Sequence> sequences;
  std::vector<int> logit_rows;  // rows (indices into tokens) whose logits are wanted
};

// Sees the residual stream: index 0 after the embedding, then after each attention and each
// feed-forward block; x: float (tokens, hidden).
using HiddenTap = base::FunctionRef<void(int index, const float* x, int tokens)>;

}  // namespace pelton::models
