#include "kv/block_pool.h"

#include "base/check.h"

namespace pelton::kv {

BlockPool::BlockPool(const Options& options)
    : options_(options), index_(options.block_count), watch_(options.block_count, options.clock) {
  CHECK(options.block_count >= 0 && options.block_tokens > 0);
  holders_.resize(static_cast<size_t>(options.block_count), 0);
  notes_.resize(static_cast<size_t>(options.block_count) + 2);
  for (const Rank rank : {Rank::kPassing, Rank::kLasting}) {
    note(list_end(rank)).before = note(list_end(rank)).after = list_end(rank);
  }
  free_.reserve(static_cast<size_t>(options.block_count));
  for (BlockId block = options.block_count - 1; block >= 0; --block) free_.push_back(block);
}

bool BlockPool::take(int count, std::vector<BlockId>& taken) {
  CHECK(count >= 0);
  if (count > free_count()) return false;
  for (int i = 0; i < count; ++i) {
    const BlockId block = take_one();
    holders_[static_cast<size_t>(block)] = 1;
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
  BlockId block = note(list_end(Rank::kPassing)).after;
  if (block == list_end(Rank::kPassing)) block = note(list_end(Rank::kLasting)).after;
  unlink(block);
  forget(block);
  watch_.evicted(block);
  return block;
}

void BlockPool::share(BlockId block) {
  CHECK(block >= 0 && block < options_.block_count, "no such block");
  if (holders(block) == 0) {
    CHECK(note(block).named, "sharing a free block");
    unlink(block);
  }
  ++holders_[static_cast<size_t>(block)];
  watch_.found(block);
}

void BlockPool::give_back(std::span<const BlockId> blocks) {
  // From the back, so that the next take finds them in their old order, and a sequence's last
  // blocks, which are of no use without its first, are forgotten first.
  for (size_t i = blocks.size(); i-- > 0;) {
    const BlockId block = blocks[i];
    if (block == kNoBlock) continue;
    CHECK(block >= 0 && block < options_.block_count && holders(block) > 0,
          "block given back twice");
    if (--holders_[static_cast<size_t>(block)] > 0) continue;
    if (note(block).named) {
      link(block);
    } else {
      free_.push_back(block);
    }
  }
}

void BlockPool::remember(BlockId block, const BlockHash& hash, Rank rank) {
  CHECK(holders(block) > 0, "remembering a block that nobody holds");
  if (note(block).named || find(hash) != kNoBlock) return;
  index_.insert(hash, block);
  note(block).hash = hash;
  note(block).named = true;
  note(block).rank = rank;
  tell(Event::Kind::kStored, block);
}

void BlockPool::set_rank(BlockId block, Rank rank) {
  CHECK(holders(block) > 0, "ranking a block that nobody holds");
  note(block).rank = rank;
}

void BlockPool::forget_all() {
  for (BlockId block = options_.block_count - 1; block >= 0; --block) {
    if (!note(block).named) continue;
    const bool kept = holders(block) == 0;
    if (kept) unlink(block);
    forget(block);
    if (kept) free_.push_back(block);
  }
}

void BlockPool::link(BlockId block) {
  const int32_t end = list_end(note(block).rank);
  note(block).after = end;
  note(block).before = note(end).before;
  note(note(block).before).after = block;
  note(end).before = block;
  ++kept_count_;
}

void BlockPool::unlink(BlockId block) {
  note(note(block).before).after = note(block).after;
  note(note(block).after).before = note(block).before;
  --kept_count_;
}

void BlockPool::forget(BlockId block) {
  index_.erase(note(block).hash);
  note(block).named = false;
  tell(Event::Kind::kRemoved, block);
}

void BlockPool::tell(Event::Kind kind, BlockId block) {
  if (options_.events == nullptr) return;
  options_.events->add(
      {.kind = kind, .group = options_.group, .tier = options_.tier, .block = note(block).hash});
}

void BlockPool::check_integrity() const {
  std::vector<int> seen(static_cast<size_t>(options_.block_count), 0);
  for (const BlockId block : free_) {
    CHECK(holders(block) == 0 && !remembered(block), "a free block is held or remembered");
    ++seen[static_cast<size_t>(block)];
  }
  int kept = 0;
  for (const Rank rank : {Rank::kPassing, Rank::kLasting}) {
    for (int32_t block = notes_[static_cast<size_t>(list_end(rank))].after; block != list_end(rank);
         block = notes_[static_cast<size_t>(block)].after) {
      CHECK(holders(block) == 0 && remembered(block), "a kept block is held or has no name");
      CHECK(notes_[static_cast<size_t>(block)].rank == rank, "a kept block in the wrong list");
      ++seen[static_cast<size_t>(block)];
      ++kept;
    }
  }
  CHECK(kept == kept_count_);
  int named = 0;
  for (BlockId block = 0; block < options_.block_count; ++block) {
    if (holders(block) > 0) ++seen[static_cast<size_t>(block)];
    CHECK(seen[static_cast<size_t>(block)] == 1, "a block is lost or in two places");
    if (!remembered(block)) continue;
    ++named;
    CHECK(find(notes_[static_cast<size_t>(block)].hash) == block, "a name leads elsewhere");
  }
  CHECK(named == index_.size());
}

}  // namespace pelton::kv
