// The KV groups of a model (kv/group.h): which layers keep keys and values of the same tokens, and
// what a block of theirs takes. The one place that knows by which fields of a configuration a layer
// belongs to a group. Pure.
#pragma once

#include <vector>

#include "families/model_config.h"
#include "kv/group.h"
#include "tensor/dtype.h"
#include "tensor/kv_block.h"

namespace pelton::families {

// How keys and values are stored.
struct KvFormat {
  tensor::DType dtype = tensor::DType::kF16;
  int block_tokens = 16;
};

// What a layer keeps of a block's tokens.
tensor::KvBlockShape kv_block_shape(const ModelConfig& config, int block_tokens);

struct KvGroups {
  kv::PerGroup<kv::GroupSpec> specs;        // those that have layers
  std::vector<int> of_layer;                // index into `specs`
  kv::PerGroup<int64_t> layer_block_bytes;  // of one block in one layer, by group

  bool operator==(const KvGroups&) const = default;
};

KvGroups kv_groups(const ModelConfig& config, const KvFormat& format);

}  // namespace pelton::families
