#include "kv/block_pools.h"

#include "base/check.h"

namespace pelton::kv {

BlockPools::BlockPools(const Options& options) {
  CHECK(!options.groups.empty(), "a model without KV groups");
  widest_ = widest_group(options.groups);
  for (const GroupCapacity& group : options.groups) specs_.push_back(group.spec);
  pools_.reserve(static_cast<size_t>(kTierCount * specs_.size()));
  for (Tier tier = kDevice; tier < kTierCount; ++tier) {
    for (int group = 0; group < specs_.size(); ++group) {
      const bool watched = group == widest_ && tier == kDevice;
      const bool has_next = tier == kDevice && options.groups[group].block_counts[kHost] > 0;
      pools_.emplace_back(BlockPool::Options{
          .block_count = options.groups[group].block_counts[static_cast<size_t>(tier)],
          .block_tokens = options.block_tokens,
          .events = options.events,
          .group = group,
          .tier = tier,
          .clock = watched ? options.clock : nullptr,
          .evictions = has_next ? &evictions_ : nullptr});
    }
  }
}

void BlockPools::check_integrity() const {
  for (const BlockPool& pool : pools_) pool.check_integrity();
}

}  // namespace pelton::kv
