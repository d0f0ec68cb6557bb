// Which tensors a gpt-oss checkpoint in Hugging Face layout must hold, for a given configuration:
// the one list that the reader checks against, that synthetic checkpoints are written from, and
// that bytes and parameters are counted over. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/model_config.h"
#include "tensor/dtype.h"

namespace pelton::checkpoint {

// What a tensor is for, when bytes and parameters are counted.
enum class TensorKind { kExperts, kRouter, kAttention, kNorms, kEmbedding, kHead };

struct ExpectedTensor {
  std::string name;
  tensor::DType dtype = tensor::DType::kBf16;
  std::vector<int64_t> shape;
  TensorKind kind = TensorKind::kExperts;
  bool is_scales = false;  // MXFP4 scales: bytes, but no parameters

  int64_t bytes() const;
  int64_t parameters() const;  // MXFP4 blocks hold two a byte
};

// In the order of the published files: layers by the text of their number (0, 1, 10, 11, ..., 2,
// 20), then embedding, last norm, head. Shapes of blocks: [experts, rows, columns / 32, 16].
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config);

}  // namespace pelton::checkpoint
