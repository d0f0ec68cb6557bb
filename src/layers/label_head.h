// A classification head: of one text's state the logits of its labels. An encoder's is
// W_out tanh(W_dense state + b) + b_out. Immutable after loading but for its working memory.
// Executor thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "kernels/kernels.h"
#include "layers/weights.h"

namespace pelton::layers {

class LabelHead {
 public:
  LabelHead() = default;  // of a model without labels
  static Result<LabelHead> load(const checkpoint::Checkpoint& checkpoint);

  int label_count() const { return out_.weight.rows; }
  // logits: float (labels); state: float (hidden).
  void forward(kernels::Kernels& kernels, float* logits, const float* state);

  int64_t owned_bytes() const { return vectors_.bytes(); }
  int64_t scratch_bytes() const {
    return static_cast<int64_t>(dense_out_.capacity() * sizeof(float));
  }

 private:
  FloatVectors vectors_;
  kernels::Linear dense_;  // no data: there is none
  kernels::Linear out_;
  std::vector<float> dense_out_;  // (hidden)
};

}  // namespace pelton::layers
