// What the verb `inspect` says of a checkpoint: architecture, parameters, bytes, layers, context,
// KV cache, stop tokens. Counted from the configuration's tensor list, so it also answers for
// models that are not on this machine. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "families/model_config.h"

namespace pelton::checkpoint {

struct WeightCounts {
  int64_t parameters = 0;
  // Used for one token: the chosen experts, and all else but the embedding (one row is read of it).
  int64_t active_parameters = 0;
  int64_t expert_bytes = 0;  // with their scales and biases
  int64_t mlp_bytes = 0;     // of dense layers
  int64_t attention_bytes = 0;
  int64_t embedding_bytes = 0;
  int64_t head_bytes = 0;
  int64_t other_bytes = 0;  // norms and routers
  // By the type's name: "BF16", "MXFP4" (blocks and scales), "Q4_K"; those that occur.
  std::map<std::string_view, int64_t> type_bytes;
  int64_t total_bytes = 0;
  int64_t tensor_count = 0;
};
WeightCounts count_weights(const families::ModelConfig& config);  // as published
WeightCounts count_weights(const Checkpoint& checkpoint);         // as it lies there

struct KvBytes {
  int64_t per_token = 0;     // full-attention layers: for each token of context
  int64_t per_sequence = 0;  // sliding layers: their window
};
KvBytes count_kv_bytes(const families::ModelConfig& config);  // of 16-bit elements

// Of what types the large weights are, in a few words.
std::string weight_types(const Checkpoint& checkpoint);

// The family, its layers and its context, in one line.
std::string family_line(const families::ModelConfig& config);
// What was left out of the computation although it looks like a part of it; empty: nothing.
std::string left_out_warning(const Checkpoint& checkpoint);

std::string describe(const Checkpoint& checkpoint);
Json describe_json(const Checkpoint& checkpoint);

}  // namespace pelton::checkpoint
