// Hands out KV blocks of one group by number and counts who holds each. Knows nothing of devices: a
// block is an index into storage that the executor owns. Engine thread only.
#pragma once

#include <span>
#include <vector>

#include "kv/block_id.h"

namespace pelton::kv {

class BlockPool {
 public:
  struct Options {
    int block_count = 0;
    int block_tokens = 16;
  };

  explicit BlockPool(const Options& options);

  // Takes `count` blocks, each with one holder, and appends them to `taken`; or none: half a take
  // would be the caller's mess to undo.
  [[nodiscard]] bool take(int count, std::vector<BlockId>& taken);

  // One more holder of a block that somebody holds. A block with several is read-only.
  void share(BlockId block);

  // One holder less; the last one frees the block. Entries that are kNoBlock are skipped.
  void give_back(std::span<const BlockId> blocks);

  int holders(BlockId block) const { return holders_[static_cast<size_t>(block)]; }
  int free_count() const { return static_cast<int>(free_.size()); }
  int used_count() const { return options_.block_count - free_count(); }
  int block_count() const { return options_.block_count; }
  int block_tokens() const { return options_.block_tokens; }

  // Blocks that hold `token_count` tokens, the first of them at a block's start.
  int blocks_for(int token_count) const {
    return (token_count + options_.block_tokens - 1) / options_.block_tokens;
  }

 private:
  const Options options_;
  std::vector<BlockId> free_;  // Last freed, first taken: it is the warmest.
  std::vector<int> holders_;   // by block; 0: free
};

}  // namespace pelton::kv
