#include "kv/prefix_match.h"

#include <algorithm>

namespace pelton::kv {

int first_seen_block(int hit_blocks, const GroupSpec& group, int block_tokens) {
  return group.first_seen(hit_blocks * block_tokens) / block_tokens;
}

namespace {

bool any_full_group(const BlockPools& pools) {
  for (int group = 0; group < pools.group_count(); ++group) {
    if (!pools.spec(group).slides()) return true;
  }
  return false;
}

// Groups that keep every token serve the blocks before the first that any of them lacks.
template <typename Has>
int longest_in_full_groups(int blocks, const BlockPools& pools, const Has& has) {
  int hit = blocks;
  for (int group = 0; group < pools.group_count(); ++group) {
    if (pools.spec(group).slides()) continue;
    int found = 0;
    while (found < hit && has(group, found)) ++found;
    hit = found;
  }
  return hit;
}

// Of at most `hit` blocks, which the groups that keep every token have.
// A block that a window group lacks rules out every hit that would look back into it: the next
// candidate ends right before it. So each block is looked up once in each group at most. Blocks of
// 4 tokens, a window of 5: with blocks 0..5 in the full group and 0, 1, 2, 4 in the window group, a
// hit of 6 blocks looks back into block 5 (20..24): missing, so 5; that into 4 (16..20): there, and
// no further. 5 blocks. With another group whose window of 9 needs 3 and 4, and which lacks 3: 3.
template <typename Has>
int longest_whole(int hit, const BlockPools& pools, const Has& has) {
  PerGroup<int> there;  // the blocks from here on up to the hit are known to be in the group
  there.assign(pools.group_count(), hit);
  for (bool agreed = false; !agreed;) {
    agreed = true;
    for (int group = 0; group < pools.group_count(); ++group) {
      const GroupSpec& spec = pools.spec(group);
      if (!spec.slides()) continue;
      int& block = there[group];
      block = std::min(block, hit);
      while (hit > 0 && block > first_seen_block(hit, spec, pools.block_tokens())) {
        --block;
        if (has(group, block)) continue;
        hit = block;
        agreed = false;
      }
    }
  }
  return hit;
}

}  // namespace

PrefixHit longest_hit(const PrefixQuery& query, const BlockPools& pools) {
  const auto has = [&](int group, int block) {
    const BlockHash& hash = query.hashes[static_cast<size_t>(block)];
    return pools.find(group, hash, query.furthest).block != kNoBlock;
  };
  const int kept = longest_in_full_groups(static_cast<int>(query.hashes.size()), pools, has);
  const int blocks = longest_whole(kept, pools, has);
  return {.blocks = blocks, .parts_at = any_full_group(pools) ? kept : blocks};
}

int longest_prefix(int blocks, const BlockPools& pools,
                   base::FunctionRef<bool(int group, int block)> has) {
  return longest_whole(longest_in_full_groups(blocks, pools, has), pools, has);
}

}  // namespace pelton::kv
