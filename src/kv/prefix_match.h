// How much of a sequence is in the cache. A hit of n tokens needs, in each group, the blocks that
// the query at n looks back into: every block up to n, or those in its window. They are found
// together, here, so that no caller can use one group without the others. Engine thread only.
#pragma once

#include <span>

#include "base/function_ref.h"
#include "kv/block_hash.h"
#include "kv/block_pools.h"

namespace pelton::kv {

struct PrefixQuery {
  std::span<const BlockHash> hashes;  // of the sequence's blocks, from its first
  Tier furthest = kDevice;            // blocks may lie in the tiers up to this one
};

struct PrefixHit {
  int blocks = 0;  // the longest hit, at most hashes.size(), whatever the set of groups
  // So many, as many or more, are in every group that keeps all blocks: here the sequence parts
  // from what others have computed, though window blocks before it may be gone. Without such
  // groups: `blocks`.
  int parts_at = 0;
};
PrefixHit longest_hit(const PrefixQuery& query, const BlockPools& pools);

// The same of blocks that are where `has` says. `pools`: of their groups.
int longest_prefix(int blocks, const BlockPools& pools,
                   base::FunctionRef<bool(int group, int block)> has);

// The first block of this group that the query right after `hit_blocks` looks back into.
int first_seen_block(int hit_blocks, const GroupSpec& group, int block_tokens);

}  // namespace pelton::kv
