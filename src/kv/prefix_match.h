// How much of a sequence is in the cache. A hit of n tokens needs every full block up to n and the
// window blocks that the query at n looks back into; both are found together, here, so that no
// caller can use one without the other. Engine thread only.
#pragma once

#include <span>

#include "kv/block_hash.h"
#include "kv/block_pool.h"

namespace pelton::kv {

struct PrefixQuery {
  std::span<const BlockHash> hashes;  // of the sequence's blocks, from its first
  int window_tokens = 128;            // the query at p sees p-window_tokens+1 .. p
};

// The pools in which blocks of one group may be found.
struct GroupPools {
  const BlockPool& device;
  const BlockPool& host;

  bool has(const BlockHash& hash) const {
    return device.find(hash) != kNoBlock || host.find(hash) != kNoBlock;
  }
};

// The longest hit, in blocks, at most hashes.size(): with what lies on the device, or also with
// what can be copied there.
int longest_hit(const PrefixQuery& query, const BlockPool& full, const BlockPool& window);
int longest_hit(const PrefixQuery& query, const GroupPools& full, const GroupPools& window);

// The first block that the query right after `hit_blocks` sees through its window.
int first_window_block(int hit_blocks, int window_tokens, int block_tokens);

}  // namespace pelton::kv
