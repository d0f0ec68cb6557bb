// Which block holds the content of a name: a hash table of fixed size, allocated at start, so that
// caching a block never waits for memory. Owned by a BlockPool; engine thread only.
#pragma once

#include <vector>

#include "kv/block_hash.h"
#include "kv/block_id.h"

namespace pelton::kv {

class BlockIndex {
 public:
  explicit BlockIndex(int entries_max);

  BlockId find(const BlockHash& hash) const { return slots_[slot_of(hash)].block; }  // or kNoBlock
  void insert(const BlockHash& hash, BlockId block);  // which is not there yet
  void erase(const BlockHash& hash);                  // which is there
  int size() const { return size_; }
  // It will be looked for soon.
  void prefetch(const BlockHash& hash) const { __builtin_prefetch(&slots_[home(hash)]); }

 private:
  struct Slot {
    BlockHash hash;
    BlockId block = kNoBlock;
  };

  size_t home(const BlockHash& hash) const { return hash.low & mask_; }

  // Where it is, or the empty slot where it would be. Names are uniform, so steps of one will do.
  size_t slot_of(const BlockHash& hash) const {
    size_t at = home(hash);
    while (slots_[at].block != kNoBlock && slots_[at].hash != hash) at = (at + 1) & mask_;
    return at;
  }

  std::vector<Slot> slots_;  // a power of two, at most half full
  size_t mask_ = 0;
  int size_ = 0;
};

}  // namespace pelton::kv
