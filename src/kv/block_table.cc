#include "kv/block_table.h"

#include <algorithm>

#include "base/check.h"

namespace pelton::kv {

BlockTable& BlockTable::operator=(BlockTable&& other) noexcept {
  clear();
  pool_ = other.pool_;
  blocks_ = std::exchange(other.blocks_, {});
  dropped_ = std::exchange(other.dropped_, 0);
  return *this;
}

bool BlockTable::cover(int token_count) {
  const int missing = pool_->blocks_for(token_count) - static_cast<int>(blocks_.size());
  return missing <= 0 || pool_->take(missing, blocks_);
}

void BlockTable::adopt(int first, std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) pool_->share(block);
  take_over(first, blocks);
}

void BlockTable::take_over(int first, std::span<const BlockId> blocks) {
  CHECK(blocks_.empty(), "adopting into a table in use");
  blocks_.assign(static_cast<size_t>(first), kNoBlock);
  blocks_.insert(blocks_.end(), blocks.begin(), blocks.end());
  dropped_ = first;
}

void BlockTable::shrink(int token_count) {
  const auto kept = static_cast<size_t>(std::max(pool_->blocks_for(token_count), dropped_));
  if (kept >= blocks_.size()) return;
  pool_->give_back(std::span(blocks_).subspan(kept));
  blocks_.resize(kept);
}

void BlockTable::drop_before(int position) {
  const int end = std::min(position / pool_->block_tokens(), static_cast<int>(blocks_.size()));
  if (end <= dropped_) return;
  const std::span<BlockId> leaving(blocks_.data() + dropped_, static_cast<size_t>(end - dropped_));
  pool_->give_back(leaving);
  std::fill(leaving.begin(), leaving.end(), kNoBlock);
  dropped_ = end;
}

void BlockTable::clear() {
  if (!blocks_.empty()) pool_->give_back(blocks_);
  blocks_.clear();
  dropped_ = 0;
}

}  // namespace pelton::kv
