#include "layers/label_head.h"

#include <cmath>

#include "base/check.h"

namespace pelton::layers {

Result<LabelHead> LabelHead::load(const checkpoint::Checkpoint& checkpoint) {
  const families::ModelConfig& config = checkpoint.config();
  LabelHead head;
  if (config.label_count == 0) return head;
  const int hidden = config.hidden_size;
  if (!config.is_encoder()) {
    TRY_ASSIGN(head.out_.weight,
               load_matrix(checkpoint, "score.weight", config.label_count, hidden));
    return head;
  }
  TRY_ASSIGN(head.dense_, load_linear(checkpoint, "classifier.dense", hidden, hidden, Bias::kAdded,
                                      head.vectors_));
  TRY_ASSIGN(head.out_, load_linear(checkpoint, "classifier.out_proj", config.label_count, hidden,
                                    Bias::kAdded, head.vectors_));
  head.dense_out_.resize(static_cast<size_t>(hidden));
  return head;
}

void LabelHead::forward(kernels::Kernels& kernels, float* logits, const float* state) {
  using Output = kernels::Kernels::Output;
  CHECK(label_count() > 0, "the model has no labels");
  if (dense_.weight.data != nullptr) {
    kernels.linear(dense_out_.data(), state, dense_, 1, Output::kOverwrite);
    for (float& value : dense_out_) value = static_cast<float>(std::tanh(double{value}));
    state = dense_out_.data();
  }
  kernels.linear(logits, state, out_, 1, Output::kOverwrite);
}

}  // namespace pelton::layers
