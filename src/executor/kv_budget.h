// How many KV blocks of each group, from a byte budget: pure arithmetic, exact to the byte. What
// the executor allocates is what this says.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "checkpoint/model_config.h"
#include "models/kv_storage.h"

namespace pelton::executor {

struct KvRequest {
  int sequences_max = 16;
  int batch_tokens_max = 512;
  int block_tokens = 16;
  tensor::DType dtype = tensor::DType::kF16;
  std::optional<int> context_tokens;  // asked for by the user; empty: as long as fits
  std::optional<int64_t> bytes;       // asked for by the user; empty: half of what is free
  int64_t free_bytes = 0;             // memory limit less weights and working memory
};

struct KvBudget {
  models::KvStorage::Options storage;
  int context_tokens_max = 0;
  int64_t bytes = 0;  // what the storage will take
};

// kDoesNotFit names the flag, what was asked and what would fit.
Result<KvBudget> plan_kv(const checkpoint::ModelConfig& config, const KvRequest& request);

}  // namespace pelton::executor
