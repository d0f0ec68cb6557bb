// How many blocks of each group a number of bytes buys, and how they are shared between the groups.
// A part of footprint.h, apart for its length. Pure arithmetic.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "cost_model/footprint.h"

namespace pelton::cost_model {

struct KvBudget {
  KvAllocated kv;
  int context_tokens_max = 0;
};

// What must be there comes first: the blocks of the windows of everything that may run, and those
// of one sequence of the context asked for in groups that keep every token. The rest is divided so
// that the prefix cache evicts from all groups at about the same time: a full block is of no use to
// a later prompt without the window blocks where a hit can end, nor the other way round. The
// measure is a conversation of 4 096 tokens with its prefix checkpoints (kv/prefix_checkpoints.h):
// of every 256 full blocks 86 window blocks, a quarter of the bytes of gpt-oss. Without a prefix
// cache all the rest is full blocks. kDoesNotFit names the flag, what was asked and what would fit.
Result<KvBudget> plan_kv(const families::ModelConfig& config, const MemoryRequest& request,
                         int64_t allowed);

// Blocks of a group that the conversation leaves behind by which the groups are balanced.
int64_t conversation_blocks(const kv::GroupSpec& group, int block_tokens);

// At most `bytes` on the host, divided between the groups as on the device: that is what sequences
// which run short of room hold of each on average. No blocks if there is not room for one of each.
KvAllocated plan_swap(const KvAllocated& device, int64_t bytes);

}  // namespace pelton::cost_model
