// Which blocks hold one sequence's keys and values, in one group, by position / block_tokens. Owned
// by its sequence; gives everything back to the pool when it goes. Engine thread only.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "kv/block_pool.h"

namespace pelton::kv {

class BlockTable {
 public:
  BlockTable() = default;                                 // of no pool: to be assigned to
  explicit BlockTable(BlockPool& pool) : pool_(&pool) {}  // which outlives the table
  ~BlockTable() { clear(); }
  BlockTable(BlockTable&& other) noexcept { *this = std::move(other); }
  BlockTable& operator=(BlockTable&& other) noexcept;

  // Positions [0, reach()) are covered, or can be with the blocks that are free now.
  int reach() const {
    return (static_cast<int>(blocks_.size()) + pool_->free_count()) * pool_->block_tokens();
  }

  // Takes the blocks that positions [0, token_count) still lack: all of them or none.
  [[nodiscard]] bool cover(int token_count);

  // Starts an empty table with blocks that were found: `blocks` from entry `first` on, none before.
  void adopt(int first, std::span<const BlockId> blocks);

  // The same with blocks that were taken or shared for this table already.
  void take_over(int first, std::span<const BlockId> blocks);

  // Gives back what positions [0, token_count) do not need: the last entries.
  void shrink(int token_count);

  // Gives back every block that lies wholly before `position`: its entry becomes kNoBlock.
  void drop_before(int position);

  void clear();

  const std::vector<BlockId>& blocks() const { return blocks_; }
  int dropped_count() const { return dropped_; }  // entries before it are kNoBlock
  int held_count() const { return static_cast<int>(blocks_.size()) - dropped_; }

 private:
  BlockPool* pool_ = nullptr;
  std::vector<BlockId> blocks_;
  int dropped_ = 0;  // leading entries that are kNoBlock
};

}  // namespace pelton::kv
