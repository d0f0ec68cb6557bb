// The first half of a layer: x += attention(rms_norm(x)), of full heads or latent. Immutable after
// loading; working memory is the caller's. Executor thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "kernels/kernels.h"
#include "layers/rank_part.h"
#include "layers/step_adapters.h"

namespace pelton::layers {

// Room for one step of at most `tokens` rows; shared by all layers.
struct AttentionWorkspace {
  AttentionWorkspace(const families::ModelConfig& config, int tokens);

  std::vector<float> normed;    // (tokens, hidden)
  std::vector<float> qkv;       // what is made of them: each attention says how it lies
  std::vector<float> absorbed;  // (tokens, heads, rank + rope_size), of latent attention
  std::vector<float> mixed;     // (tokens, heads * head_size), or (tokens, heads, rank)

  int64_t bytes() const;
};

class Attention {
 public:
  virtual ~Attention() = default;

  // x: float (tokens, hidden). cos_sin: (tokens, rotary size) of the layer's own Rotary. sequences:
  // with the block tables of this layer's group; their rows lie one after the other and cover all
  // tokens. adapters: what this layer adds for some of them.
  virtual void forward(kernels::Kernels& kernels, float* x, int tokens, const float* cos_sin,
                       const kernels::KvLayer& cache,
                       const std::vector<kernels::SequenceRows>& sequences,
                       const LayerAdapters& adapters, AttentionWorkspace& workspace) const = 0;

  virtual int64_t weight_bytes() const = 0;  // what a step reads
  virtual int64_t owned_bytes() const = 0;   // beside what is mapped
};

// Layer `layer`'s, as the configuration says: all of it, or (not null) what is this rank's. Errors
// name the tensor.
Result<std::unique_ptr<Attention>> load_attention(const checkpoint::Checkpoint& checkpoint,
                                                  int layer, const RankPart* part);

}  // namespace pelton::layers
