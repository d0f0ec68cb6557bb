#include "kv/block_index.h"

#include <bit>

#include "base/check.h"

namespace pelton::kv {

BlockIndex::BlockIndex(int entries_max) {
  slots_.resize(std::bit_ceil(2 * static_cast<size_t>(entries_max) + 2));
  mask_ = slots_.size() - 1;
}

void BlockIndex::insert(const BlockHash& hash, BlockId block) {
  Slot& slot = slots_[slot_of(hash)];
  CHECK(slot.block == kNoBlock && 2 * static_cast<size_t>(size_) < slots_.size());
  slot = {.hash = hash, .block = block};
  ++size_;
}

// Closes the gap: later entries of the run move up unless they stand at home already.
void BlockIndex::erase(const BlockHash& hash) {
  size_t gap = slot_of(hash);
  CHECK(slots_[gap].block != kNoBlock, "erasing what is not there");
  for (size_t at = (gap + 1) & mask_; slots_[at].block != kNoBlock; at = (at + 1) & mask_) {
    const size_t distance_from_home = (at - home(slots_[at].hash)) & mask_;
    if (distance_from_home < ((at - gap) & mask_)) continue;
    slots_[gap] = slots_[at];
    gap = at;
  }
  slots_[gap].block = kNoBlock;
  --size_;
}

}  // namespace pelton::kv
