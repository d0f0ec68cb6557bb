#include "kv/block_pool.h"

#include "base/check.h"

namespace pelton::kv {

BlockPool::BlockPool(const Options& options)
    : options_(options), index_(options.block_count), watch_(options.block_count, options.clock) {
  CHECK(options.block_count >= 0 && options.block_tokens > 0);
  ref_counts_.resize(static_cast<size_t>(options.block_count), 0);
  metadata_.resize(static_cast<size_t>(options.block_count) + 2);
  for (const EvictionPriority priority : {EvictionPriority::kFirst, EvictionPriority::kLast}) {
    metadata(list_end(priority)).before = metadata(list_end(priority)).after = list_end(priority);
  }
  free_.reserve(static_cast<size_t>(options.block_count));
  for (BlockId block = options.block_count - 1; block >= 0; --block) free_.push_back(block);
}

bool BlockPool::take(int count, std::vector<BlockId>& taken) {
  CHECK(count >= 0);
  if (count > free_count()) return false;
  for (int i = 0; i < count; ++i) {
    const BlockId block = take_one();
    ref_counts_[static_cast<size_t>(block)] = 1;
    watch_.taken(block);
    taken.push_back(block);
  }
  return true;
}

BlockId BlockPool::take_one() {
  if (!free_.empty()) {
    const BlockId block = free_.back();
    free_.pop_back();
    return block;
  }
  BlockId block = metadata(list_end(EvictionPriority::kFirst)).after;
  if (block == list_end(EvictionPriority::kFirst))
    block = metadata(list_end(EvictionPriority::kLast)).after;
  // One that makes room soon.
  index_.prefetch(metadata(metadata(metadata(block).after).after).hash);
  unlink(block);
  evict(block);
  watch_.evicted(block);
  if (options_.evictions != nullptr) {
    options_.evictions->push_back({.group = options_.group,
                                   .block = block,
                                   .hash = metadata(block).hash,
                                   .priority = metadata(block).priority,
                                   .owner = metadata(block).owner});
  }
  return block;
}

void BlockPool::share(BlockId block) {
  CHECK(block >= 0 && block < options_.block_count, "no such block");
  if (ref_count(block) == 0) {
    CHECK(metadata(block).cached, "sharing a free block");
    unlink(block);
  }
  ++ref_counts_[static_cast<size_t>(block)];
  watch_.found(block);
}

void BlockPool::give_back(std::span<const BlockId> blocks) {
  // From the back, so that the next take finds them in their old order, and a sequence's last
  // blocks, which are of no use without its first, are evicted first.
  for (size_t i = blocks.size(); i-- > 0;) {
    const BlockId block = blocks[i];
    if (block == kNoBlock) continue;
    CHECK(block >= 0 && block < options_.block_count && ref_count(block) > 0,
          "block given back twice");
    if (--ref_counts_[static_cast<size_t>(block)] > 0) continue;
    if (metadata(block).cached) {
      link(block);
    } else {
      free_.push_back(block);
    }
  }
}

void BlockPool::touch(BlockId block) {
  CHECK(cached(block), "a block of use that holds nothing");
  if (ref_count(block) > 0) return;
  unlink(block);
  link(block);
}

void BlockPool::cache(BlockId block, const BlockHash& hash, EvictionPriority priority) {
  CHECK(ref_count(block) > 0, "caching a block without references");
  if (metadata(block).cached || find(hash) != kNoBlock) return;
  index_.insert(hash, block);
  metadata(block).hash = hash;
  metadata(block).cached = true;
  metadata(block).priority = priority;
  metadata(block).owner = 0;
  log_event(Event::Kind::kStored, block);
}

void BlockPool::set_eviction_priority(BlockId block, EvictionPriority priority) {
  CHECK(ref_count(block) > 0, "prioritizing a block without references");
  metadata(block).priority = priority;
}

void BlockPool::uncache(BlockId block) {
  CHECK(cached(block), "nothing is cached there");
  const bool evictable = ref_count(block) == 0;
  if (evictable) unlink(block);
  evict(block);
  if (evictable) free_.push_back(block);
}

void BlockPool::evict_all() {
  for (BlockId block = options_.block_count - 1; block >= 0; --block) {
    if (cached(block)) uncache(block);
  }
}

void BlockPool::link(BlockId block) {
  const int32_t end = list_end(metadata(block).priority);
  metadata(block).after = end;
  metadata(block).before = metadata(end).before;
  metadata(metadata(block).before).after = block;
  metadata(end).before = block;
  ++unreferenced_count_;
}

void BlockPool::unlink(BlockId block) {
  metadata(metadata(block).before).after = metadata(block).after;
  metadata(metadata(block).after).before = metadata(block).before;
  --unreferenced_count_;
}

void BlockPool::evict(BlockId block) {
  index_.erase(metadata(block).hash);
  metadata(block).cached = false;
  log_event(Event::Kind::kRemoved, block);
}

void BlockPool::log_event(Event::Kind kind, BlockId block) {
  if (options_.events == nullptr) return;
  options_.events->add({.kind = kind,
                        .group = options_.group,
                        .tier = options_.tier,
                        .block = metadata(block).hash});
}

void BlockPool::check_integrity() const {
  std::vector<int> seen(static_cast<size_t>(options_.block_count), 0);
  for (const BlockId block : free_) {
    CHECK(ref_count(block) == 0 && !cached(block), "a free block has references or is cached");
    ++seen[static_cast<size_t>(block)];
  }
  int evictable = 0;
  for (const EvictionPriority priority : {EvictionPriority::kFirst, EvictionPriority::kLast}) {
    for (int32_t block = metadata_[static_cast<size_t>(list_end(priority))].after;
         block != list_end(priority); block = metadata_[static_cast<size_t>(block)].after) {
      CHECK(ref_count(block) == 0 && cached(block),
            "an evictable block has references or is not cached");
      CHECK(metadata_[static_cast<size_t>(block)].priority == priority,
            "an evictable block in the wrong list");
      ++seen[static_cast<size_t>(block)];
      ++evictable;
    }
  }
  CHECK(evictable == unreferenced_count_);
  int found = 0;
  for (BlockId block = 0; block < options_.block_count; ++block) {
    if (ref_count(block) > 0) ++seen[static_cast<size_t>(block)];
    CHECK(seen[static_cast<size_t>(block)] == 1, "a block is lost or in two places");
    if (!cached(block)) continue;
    ++found;
    CHECK(find(metadata_[static_cast<size_t>(block)].hash) == block,
          "a hash leads to another block");
  }
  CHECK(found == index_.size());
}

}  // namespace pelton::kv
