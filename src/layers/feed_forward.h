// The second half of a layer: x += mlp(rms_norm(x)), a dense MLP or a mixture of experts. Immutable
// after loading; working memory is the caller's. Executor thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "kernels/kernels.h"
#include "layers/rank_part.h"
#include "layers/step_adapters.h"

namespace pelton::layers {

// Room for one step of at most `tokens` rows; shared by all layers.
struct FeedForwardWorkspace {
  FeedForwardWorkspace(const families::ModelConfig& config, int tokens);

  std::vector<float> normed;                   // (tokens, hidden)
  std::vector<float> gate;                     // (tokens, inner), of gated MLPs
  std::vector<float> up;                       // the same
  std::vector<float> router_logits;            // (tokens, experts)
  std::vector<kernels::ExpertChoice> choices;  // (tokens, experts_per_token)

  int64_t bytes() const;
};

class FeedForward {
 public:
  virtual ~FeedForward() = default;

  // x: float (tokens, hidden). adapters: what this layer adds for some of them.
  virtual void forward(kernels::Kernels& kernels, float* x, int tokens,
                       const LayerAdapters& adapters, FeedForwardWorkspace& workspace) const = 0;

  // What a step of so many tokens reads, in the mean where experts are chosen.
  virtual double weight_bytes(int tokens) const = 0;
  virtual int64_t owned_bytes() const = 0;  // beside what is mapped
};

// Layer `layer`'s, as the configuration says: all of it, or (not null) what is this rank's. Errors
// name the tensor.
Result<std::unique_ptr<FeedForward>> load_feed_forward(const checkpoint::Checkpoint& checkpoint,
                                                       int layer, const RankPart* part);

// What the norm ahead of it is called: with norms behind blocks as well, not as without.
std::string feed_forward_norm(const families::ModelConfig& config, int layer);

kernels::GluShape glu_shape(const families::ModelConfig& config);

}  // namespace pelton::layers
