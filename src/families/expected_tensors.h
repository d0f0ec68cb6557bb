// Which tensors a checkpoint must hold, for a given configuration and layout of weights: the one
// list that the reader checks against, that synthetic checkpoints are written from, and that bytes
// and parameters are counted over. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "families/model_config.h"
#include "tensor/dtype.h"

namespace pelton::families {

// What a tensor is for, when bytes and parameters are counted.
enum class TensorKind { kExperts, kMlp, kRouter, kAttention, kNorms, kEmbedding, kHead };

// How the weights are stored; of dense models kPublished, kGguf or kTiled.
enum class WeightLayout {
  kPublished,    // safetensors as the family publishes them; gpt-oss: experts in MXFP4 blocks and
                 // scales, all else bf16; other families: three matrices for each expert
  kBf16Experts,  // gpt-oss, all bf16, experts (experts, columns, rows), as transformers writes them
  kFusedExperts,  // the others: gate_up_proj (experts, 2 * inner, hidden), gate's rows first, and
                  // down_proj (experts, hidden, inner), as transformers 5 writes them
  kGguf,          // gate_exps, up_exps, down_exps of any type, vectors float32
  kGgufFused,     // the same with gate_up_exps
  kTiled,         // Pelton's own (layers/pack_weights.h): tiles, queries, keys and values in one
};

inline constexpr int64_t kF8Block = 128;  // rows and columns that share a scale

// Which types will do.
enum class AllowedTypes { kExact, kVector, kMatrix, kExperts, kTiledExperts };

// A file of tiles may hold the output head a second time, in 4 bits: what is likely is found with
// that, and then computed with lm_head.weight (layers/output_head.h).
inline constexpr std::string_view kCoarseHead = "lm_head_coarse.weight";

struct ExpectedTensor {
  std::string name;
  tensor::DType dtype = tensor::DType::kBf16;
  std::vector<int64_t> shape;
  TensorKind kind = TensorKind::kExperts;
  bool is_scales = false;  // of another tensor, or a copy: bytes, but no parameters
  AllowedTypes allowed = AllowedTypes::kExact;
  int numbers = 1;  // weights in an element: 8 of 4 bits in a word of 32

  bool allows(tensor::DType type) const;
  int64_t bytes() const;
  int64_t parameters() const;  // MXFP4 blocks hold two a byte
};

// In the order of gpt-oss' published files: layers by the text of their number (0, 1, 10, 11, ...,
// 2, 20), then embedding, last norm, head. Shapes of blocks: [experts, rows, columns / 32, 16].
// FP8 in blocks: `NAME` (rows, columns) E4M3, then `NAME`_scale_inv (rows / 128, columns / 128),
// rounded up, float32; with a scale for each row or one: `NAME`_scale (rows, 1) or (1), any plain
// type.
// Integers: instead of `BASE`weight the tensors that GPTQ, AWQ and compressed-tensors have of it.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config, WeightLayout layout);
// What integer weights become in memory, exactly: Q4_0 if they are of 4 bits and symmetric, or
// Q8_0.
tensor::DType int_weight_type(const ModelConfig& config);
ExpectedTensor coarse_head_tensor(const ModelConfig& config);

}  // namespace pelton::families
