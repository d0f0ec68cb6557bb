// Allocates the KV blocks of one group in one tier, by number, with reference counts. A block whose
// content has a hash can be cached: without references it can still be found, until it is evicted
// (LRU within its priority). Knows nothing of devices: a block is an index into storage that the
// executor owns. Engine thread only.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "kv/block_hash.h"
#include "kv/block_id.h"
#include "kv/block_index.h"
#include "kv/block_lifetimes.h"
#include "kv/event_log.h"
#include "kv/group.h"

namespace pelton::kv {

class BlockPool {
 public:
  // In which order cached blocks without references are evicted: every kFirst one before any kLast
  // one; within a priority the least recently used.
  enum class EvictionPriority { kFirst, kLast };

  // A cached block that made room: its content stands until whoever took the block writes it.
  struct Eviction {
    int group = 0;
    BlockId block = kNoBlock;
    BlockHash hash;
    EvictionPriority priority = EvictionPriority::kFirst;
    uint64_t owner = 0;
  };

  struct Options {
    int block_count = 0;
    int block_tokens = 16;
    EventLog* events = nullptr;  // gets what is cached and evicted; outlives the pool
    int group = 0;               // what events say of it
    Tier tier = kDevice;
    const base::Clock* clock = nullptr;  // of times(), outlives the pool; null: nobody asks
    // Gets what take() evicts, in order; outlives the pool; null: nobody asks.
    std::vector<Eviction>* evictions = nullptr;
  };

  explicit BlockPool(const Options& options);

  // Takes `count` blocks, each with one reference, and appends them to `taken`; or none: half a
  // take would be the caller's mess to undo. Evicts cached blocks where no empty one is left.
  [[nodiscard]] bool take(int count, std::vector<BlockId>& taken);

  // One more reference to a block that has some, or that was found. A block with several, or a
  // cached one, is read-only.
  void share(BlockId block);

  // One reference less; without any the block is free, but can be found until it is evicted if it
  // is cached. Entries that are kNoBlock are skipped.
  void give_back(std::span<const BlockId> blocks);

  // A cached block was of use: without references it is from now on the last of its priority to be
  // evicted.
  void touch(BlockId block);

  // From now on a referenced block is found under `hash`; unless another one is already, which
  // stays.
  void cache(BlockId block, const BlockHash& hash, EvictionPriority priority);
  void set_eviction_priority(BlockId block, EvictionPriority priority);    // of a referenced block
  BlockId find(const BlockHash& hash) const { return index_.find(hash); }  // or kNoBlock
  void prefetch(const BlockHash& hash) const { index_.prefetch(hash); }    // of what is soon asked

  // It is not found any more; references stay as they are.
  void uncache(BlockId block);
  void evict_all();  // likewise, every cached block

  // Whose content it is, for whoever asks; a number of the caller's. 0 until it is said.
  void set_owner(BlockId block, uint64_t owner) { metadata(block).owner = owner; }
  uint64_t owner(BlockId block) const { return metadata_[static_cast<size_t>(block)].owner; }
  const BlockHash& name(BlockId block) const { return metadata_[static_cast<size_t>(block)].hash; }

  int ref_count(BlockId block) const { return ref_counts_[static_cast<size_t>(block)]; }
  bool cached(BlockId block) const { return metadata_[static_cast<size_t>(block)].cached; }
  int free_count() const {
    return static_cast<int>(free_.size()) + unreferenced_count_;
  }                                                               // to be taken
  int unreferenced_count() const { return unreferenced_count_; }  // cached, without references
  int cached_count() const { return index_.size(); }
  int empty_count() const { return static_cast<int>(free_.size()); }  // of these, without content
  int used_count() const { return options_.block_count - free_count(); }
  int block_count() const { return options_.block_count; }
  const BlockTimes& times() const { return watch_.times(); }
  int block_tokens() const { return options_.block_tokens; }

  // Blocks that hold `token_count` tokens, the first of them at a block's start.
  int blocks_for(int token_count) const {
    return (token_count + options_.block_tokens - 1) / options_.block_tokens;
  }

  // CHECKs that every block is referenced, cached or free, and in one of these ways only. Slow.
  void check_integrity() const;

 private:
  // A block's metadata besides its references. While it can be evicted, it is in its priority's
  // list.
  struct Metadata {
    BlockHash hash;
    uint64_t owner = 0;
    EvictionPriority priority = EvictionPriority::kFirst;
    bool cached = false;
    int32_t before = -1;
    int32_t after = -1;
  };

  Metadata& metadata(BlockId block) { return metadata_[static_cast<size_t>(block)]; }
  int32_t list_end(EvictionPriority priority) const {
    return options_.block_count + static_cast<int32_t>(priority);
  }
  void link(BlockId block);
  void unlink(BlockId block);
  void evict(BlockId block);
  void log_event(Event::Kind kind, BlockId block);
  BlockId take_one();

  const Options options_;
  std::vector<BlockId> free_;       // Last freed, first taken: it is the warmest.
  std::vector<int> ref_counts_;     // by block; 0: free, or cached only
  std::vector<Metadata> metadata_;  // by block; then each priority's list end: `after` goes first
  BlockIndex index_;
  int unreferenced_count_ = 0;
  BlockLifetimes watch_;
};

}  // namespace pelton::kv
