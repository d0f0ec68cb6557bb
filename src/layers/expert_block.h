// One mixture-of-experts block: x += sum over the router's top k of weight * expert(n), n =
// rms_norm(x). Immutable after loading; working memory is the caller's. Executor thread.
#pragma once

#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "kernels/kernels.h"
#include "layers/weights.h"

namespace pelton::layers {

// Room for one step of at most `tokens` rows; shared by all layers.
struct ExpertWorkspace {
  ExpertWorkspace(const checkpoint::ModelConfig& config, int tokens);

  std::vector<float> normed;                   // (tokens, hidden)
  std::vector<float> router_logits;            // (tokens, experts)
  std::vector<kernels::ExpertChoice> choices;  // (tokens, experts_per_token)

  int64_t bytes() const;
};

class ExpertBlock {
 public:
  static Result<ExpertBlock> load(const checkpoint::Checkpoint& checkpoint, int layer);

  // x: float (tokens, hidden)
  void forward(kernels::Kernels& kernels, float* x, int tokens, ExpertWorkspace& workspace) const;

  // What a step of so many tokens reads in the mean, were one expert chosen as often as another:
  // the router, and experts * (1 - (1 - chosen / experts)^tokens) experts.
  double weight_bytes(int tokens) const;
  int64_t owned_bytes() const { return vectors_.bytes(); }  // beside what is mapped

 private:
  FloatVectors vectors_;  // what the pointers below lead to
  const float* norm_ = nullptr;
  kernels::Linear router_;
  kernels::ExpertWeights experts_;
  kernels::MoeShape shape_;
  int hidden_ = 0;
  float epsilon_ = 0;
};

}  // namespace pelton::layers
