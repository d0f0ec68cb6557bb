// Runs one sequence through a model outside the engine: exact logits for `pelton logits`, `verify`
// and tests. Owns its KV blocks. One thread.
#pragma once

#include <memory>
#include <span>

#include "base/check.h"
#include "base/result.h"
#include "models/model.h"

namespace pelton::models {

class SequenceRunner {
 public:
  // Room for `tokens_max` positions; steps of at most the model's batch_tokens_max.
  static Result<SequenceRunner> make(Model& model, tensor::DType kv_dtype, int tokens_max);

  // Of the steps from here on; null: the model itself. It outlives them.
  // From that position on.
  void use_adapter(const lora::Adapter* adapter, int from = 0) {
    adapter_ = adapter;
    adapter_from_ = from;
  }

  // Appends `tokens` (at most batch_tokens_max) as one step. Returns float (wanted, vocab): the
  // logits of the step's rows `logit_rows` (indices into tokens, at most logit_rows_max), valid
  // until the next call.
  const float* step(std::span<const TokenId> tokens, std::span<const int> logit_rows,
                    HiddenTap* tap);

  int length() const { return length_; }
  // The tokens from `length` on are forgotten.
  void rewind(int length) {
    CHECK(length >= 0 && length <= length_);
    length_ = length;
  }

 private:
  SequenceRunner(Model& model, KvStorage kv, int tokens_max);

  Model* model_;
  KvStorage kv_;
  std::vector<int32_t> blocks_;  // position / block_tokens -> the same number, in every group
  int tokens_max_;
  int length_ = 0;
  const lora::Adapter* adapter_ = nullptr;
  int adapter_from_ = 0;
};

}  // namespace pelton::models
