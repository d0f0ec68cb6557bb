// Hands out KV blocks of one group in one tier by number and counts who holds each. A block whose
// content has a name can be remembered: once nobody holds it, it stays findable until its room is
// needed. Knows nothing of devices: a block is an index into storage that the executor owns. Engine
// thread only.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "kv/block_hash.h"
#include "kv/block_id.h"
#include "kv/block_index.h"
#include "kv/block_watch.h"
#include "kv/event_log.h"
#include "kv/group.h"

namespace pelton::kv {

class BlockPool {
 public:
  struct Options {
    int block_count = 0;
    int block_tokens = 16;
    EventLog* events = nullptr;  // hears what is remembered and forgotten; outlives the pool
    int group = 0;               // what events say of it
    Tier tier = kDevice;
    const base::Clock* clock = nullptr;  // of times(), outlives the pool; null: nobody asks
  };

  // How long a remembered block that nobody holds is kept: every kPassing one goes before the first
  // kLasting one; within a rank the one that was left longest ago goes first.
  enum class Rank { kPassing, kLasting };

  explicit BlockPool(const Options& options);

  // Takes `count` blocks, each with one holder, and appends them to `taken`; or none: half a take
  // would be the caller's mess to undo. Forgets remembered blocks where nothing else is left.
  [[nodiscard]] bool take(int count, std::vector<BlockId>& taken);

  // One more holder of a block that somebody holds, or that was found. A block with several, or
  // with a name, is read-only.
  void share(BlockId block);

  // One holder less; without any the block is free, or kept as long as there is room if it is
  // remembered. Entries that are kNoBlock are skipped.
  void give_back(std::span<const BlockId> blocks);

  // From now on a held block is found under `hash`; unless another one is already, which stays.
  void remember(BlockId block, const BlockHash& hash, Rank rank);
  void set_rank(BlockId block, Rank rank);                                 // of a held block
  BlockId find(const BlockHash& hash) const { return index_.find(hash); }  // or kNoBlock

  // Forgets every remembered block; those held stay held.
  void forget_all();

  int holders(BlockId block) const { return holders_[static_cast<size_t>(block)]; }
  bool remembered(BlockId block) const { return notes_[static_cast<size_t>(block)].named; }
  int free_count() const { return static_cast<int>(free_.size()) + kept_count_; }  // to be taken
  int kept_count() const { return kept_count_; }  // remembered and held by nobody
  int remembered_count() const { return index_.size(); }
  int empty_count() const {
    return static_cast<int>(free_.size());
  }  // of these, remembering nothing
  int used_count() const { return options_.block_count - free_count(); }
  int block_count() const { return options_.block_count; }
  const BlockTimes& times() const { return watch_.times(); }
  int block_tokens() const { return options_.block_tokens; }

  // Blocks that hold `token_count` tokens, the first of them at a block's start.
  int blocks_for(int token_count) const {
    return (token_count + options_.block_tokens - 1) / options_.block_tokens;
  }

  // CHECKs that every block is held, kept or free, and in one of these ways only. Slow.
  void check_integrity() const;

 private:
  // What the pool knows of a block besides its holders. While it is kept, it is in its rank's list.
  struct Note {
    BlockHash hash;
    Rank rank = Rank::kPassing;
    bool named = false;
    int32_t before = -1;
    int32_t after = -1;
  };

  Note& note(BlockId block) { return notes_[static_cast<size_t>(block)]; }
  int32_t list_end(Rank rank) const { return options_.block_count + static_cast<int32_t>(rank); }
  void link(BlockId block);
  void unlink(BlockId block);
  void forget(BlockId block);
  void tell(Event::Kind kind, BlockId block);
  BlockId take_one();

  const Options options_;
  std::vector<BlockId> free_;  // Last freed, first taken: it is the warmest.
  std::vector<int> holders_;   // by block; 0: free or kept
  std::vector<Note> notes_;    // by block; then each rank's list end, whose `after` goes first
  BlockIndex index_;
  int kept_count_ = 0;
  BlockWatch watch_;
};

}  // namespace pelton::kv
