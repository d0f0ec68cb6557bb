// What a model says of its KV groups, and where blocks may lie. Layers that keep keys and values of
// the same tokens form a group: a sequence has one block table in each, and each group has a pool
// in each tier (block_pools.h). Nothing here or above asks which group it is, only what its window
// is. Plain values; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/inplace_vector.h"

namespace pelton::kv {

// Groups are few: what is said of each lies side by side, without the heap.
inline constexpr int kGroupsMax = 8;

template <typename T>
using PerGroup = base::InplaceVector<T, kGroupsMax>;

// The tiers, from the nearest on. What computes reads the first only; blocks are copied from and to
// the others. Each has its own numbers of blocks. A further tier is one more name here, and blocks
// in it that an executor offers.
inline constexpr std::array<std::string_view, 3> kTierNames = {"device", "host", "disk"};
inline constexpr int kTierCount = static_cast<int>(kTierNames.size());

using Tier = int32_t;  // index into kTierNames
inline constexpr Tier kDevice = 0;
inline constexpr Tier kHost = 1;
inline constexpr Tier kDisk = 2;  // block_transfers.h

template <typename T>
using PerTier = std::array<T, kTierNames.size()>;

struct GroupSpec {
  std::string name;  // in metrics and reports: "full", "window"
  // The query at p sees the keys of p-sliding_window+1 .. p; 0: of every token.
  int sliding_window = 0;
  int64_t block_bytes = 0;  // over all layers of the group; 0: nobody asks

  bool operator==(const GroupSpec&) const = default;

  bool slides() const { return sliding_window > 0; }

  // The first position that the query at `position` sees.
  int first_seen(int position) const {
    return slides() ? std::max(0, position - sliding_window + 1) : 0;
  }

  // The most blocks that a sequence of `token_count` needs at once, computed one query after the
  // other: all of them, or those that one query's window can touch. With a window of 5 and blocks
  // of 4 the query at 8 sees 4..8 in two blocks, the one at 7 sees 3..7 in two as well: two.
  int64_t blocks_at_once(int64_t token_count, int block_tokens) const {
    const int64_t whole = (token_count + block_tokens - 1) / block_tokens;
    if (!slides()) return whole;
    const int64_t before = (int64_t{sliding_window} - 1 + block_tokens - 1) / block_tokens;
    return std::min(whole, before + 1);
  }
};

// A group, and how many blocks it has in each tier.
struct GroupCapacity {
  GroupSpec spec;
  PerTier<int> block_counts{};
};

// The group that sees furthest back: one that keeps every token, if there is any. `groups`: things
// with a `spec`, one at least.
template <typename Group>
int widest_group(const PerGroup<Group>& groups) {
  int widest = 0;
  for (int group = 1; group < groups.size(); ++group) {
    const GroupSpec& best = groups[widest].spec;
    const GroupSpec& spec = groups[group].spec;
    const bool sees_further = !spec.slides() || spec.sliding_window > best.sliding_window;
    if (best.slides() && sees_further) widest = group;
  }
  return widest;
}

// What a pool is called in metrics and reports: "full" on the device, "host_full".
inline std::string pool_name(const GroupSpec& group, Tier tier) {
  if (tier == kDevice) return group.name;
  return std::string(kTierNames[static_cast<size_t>(tier)]) + "_" + group.name;
}

}  // namespace pelton::kv
