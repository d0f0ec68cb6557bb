// The pools of all groups in all tiers: one place that says how many there are, and finds a block
// by name wherever it lies. Outlives the tables that hold its blocks. Engine thread only.
#pragma once

#include <utility>
#include <vector>

#include "base/clock.h"
#include "kv/block_pool.h"
#include "kv/event_log.h"
#include "kv/group.h"

namespace pelton::kv {

class BlockPools {
 public:
  struct Options {
    PerGroup<GroupCapacity> groups;  // one at least
    int block_tokens = 16;
    EventLog* events = nullptr;          // of every pool; outlives them
    const base::Clock* clock = nullptr;  // of times(), outlives the pools; null: nobody asks
  };

  explicit BlockPools(const Options& options);
  BlockPools(const BlockPools&) = delete;
  BlockPools& operator=(const BlockPools&) = delete;

  int group_count() const { return specs_.size(); }
  const GroupSpec& spec(int group) const { return specs_[group]; }
  int widest() const { return widest_; }  // see widest_group
  int block_tokens() const { return pools_.front().block_tokens(); }

  BlockPool& pool(int group, Tier tier) { return pools_[index_of(group, tier)]; }
  const BlockPool& pool(int group, Tier tier) const { return pools_[index_of(group, tier)]; }

  // Where the content of a name lies: the nearest such place.
  struct Place {
    Tier tier = kDevice;
    BlockId block = kNoBlock;
  };
  // In the tiers up to `furthest`.
  Place find(int group, const BlockHash& hash, Tier furthest) const {
    for (Tier tier = kDevice; tier <= furthest; ++tier) {
      const BlockId block = pool(group, tier).find(hash);
      if (block != kNoBlock) return {.tier = tier, .block = block};
    }
    return {};
  }

  // What the device's pools have evicted since the last call, in order, of groups that have blocks
  // in the host's memory: whoever wants the contents copies them before the blocks are written.
  std::vector<BlockPool::Eviction> take_evictions() { return std::exchange(evictions_, {}); }

  // Of the widest group's blocks on the device.
  const BlockTimes& times() const { return pool(widest_, kDevice).times(); }

  void check_integrity() const;  // of each. Slow.

 private:
  size_t index_of(int group, Tier tier) const {
    return static_cast<size_t>(tier * specs_.size() + group);
  }

  PerGroup<GroupSpec> specs_;
  int widest_ = 0;
  std::vector<BlockPool::Eviction> evictions_;
  std::vector<BlockPool> pools_;  // the groups of the first tier, then of the next
};

}  // namespace pelton::kv
