// How many blocks of each group the host keeps for sequences that make room. Pure arithmetic.
#pragma once

#include <cstdint>

#include "checkpoint/model_config.h"
#include "models/kv_storage.h"

namespace pelton::executor {

// At most `bytes`, divided between the groups as they are on the device: that is what sequences
// which run short of room hold of each on average. No blocks at all if there is not room for one of
// either.
models::KvStorage::Options plan_swap(const checkpoint::ModelConfig& config,
                                     const models::KvStorage::Options& device, int64_t bytes);

}  // namespace pelton::executor
