#include "kv/block_pool.h"

#include "base/check.h"

namespace pelton::kv {

BlockPool::BlockPool(const Options& options) : options_(options) {
  CHECK(options.block_count >= 0 && options.block_tokens > 0);
  holders_.resize(static_cast<size_t>(options.block_count), 0);
  free_.reserve(static_cast<size_t>(options.block_count));
  for (BlockId block = options.block_count - 1; block >= 0; --block) free_.push_back(block);
}

bool BlockPool::take(int count, std::vector<BlockId>& taken) {
  CHECK(count >= 0);
  if (count > free_count()) return false;
  for (int i = 0; i < count; ++i) {
    const BlockId block = free_.back();
    free_.pop_back();
    holders_[static_cast<size_t>(block)] = 1;
    taken.push_back(block);
  }
  return true;
}

void BlockPool::share(BlockId block) {
  CHECK(block >= 0 && block < options_.block_count && holders(block) > 0, "sharing a free block");
  ++holders_[static_cast<size_t>(block)];
}

void BlockPool::give_back(std::span<const BlockId> blocks) {
  // From the back, so that the next take finds them in their old order.
  for (size_t i = blocks.size(); i-- > 0;) {
    const BlockId block = blocks[i];
    if (block == kNoBlock) continue;
    CHECK(block >= 0 && block < options_.block_count && holders(block) > 0,
          "block given back twice");
    if (--holders_[static_cast<size_t>(block)] == 0) free_.push_back(block);
  }
}

}  // namespace pelton::kv
