// Which worker holds which KV block, by the blocks' names (kv/block_hash.h): how much of a prompt
// each of them would find. Bounded by bytes: what has not been used for long makes room, and losing
// an entry only hides a hit. A clash of the 64 bits kept of a name costs a wrong guess, never wrong
// keys and values: the worker looks at all 128. One thread.
//
// An open-addressing table of 16-byte slots: 64 bits of the name, up to three tags in place;
// more of them stand in a list of their own. A tag is a worker with its generation: forget()
// only begins the next generation, so that all that the worker held is void at once, and sweep()
// gives the slots back later, a bounded number at a time. Example: worker 5 of generation 2 is
// 0x2005; after forget(5) only 0x3005 counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kv/block_hash.h"

namespace pelton::gateway {

class PrefixIndex {
 public:
  static constexpr int kWorkersMax = 4095;

  explicit PrefixIndex(size_t bytes_max);

  // Both may be repeated: a worker holds a block once.
  void add(const kv::BlockHash& name, int worker);
  void remove(const kv::BlockHash& name, int worker);
  // It holds nothing any more. Constant time, but for one call of fifteen that come without a whole
  // sweep between them.
  void forget(int worker);
  // Frees what forgotten workers held, in the next so many slots; to be called now and then. True:
  // nothing is left to be freed.
  bool sweep(size_t slots_max);

  // hits[w]: of the first so many blocks worker w holds each one, here or in `beside` (null: there
  // is none). `hits` is as long as there are workers.
  void find(std::span<const kv::BlockHash> names, PrefixIndex* beside, std::span<int> hits);
  bool holds(const kv::BlockHash& name, int worker);
  // Will be looked up or written soon: tables are larger than caches.
  void prefetch(const kv::BlockHash& name) const { __builtin_prefetch(&slots_[home(name.low)]); }

  size_t size() const { return size_; }  // names, with those that are still to be swept
  int64_t evictions() const { return evictions_; }
  int64_t updates() const { return updates_; }  // what add() and remove() were asked for
  size_t held_by(int worker) const { return held_[static_cast<size_t>(worker)]; }  // names
  size_t bytes() const { return slots_.size() * sizeof(Slot); }                    // without lists

 private:
  static constexpr int kInPlace = 3;
  struct Slot {
    uint64_t key = 0;
    uint16_t tags[kInPlace] = {};  // with more: the list's number, in the first two
    uint8_t count = 0;             // of tags in place; kListed: there is a list; 0: free
    bool used = false;             // since the clock's hand came by
  };
  static constexpr uint8_t kListed = 255;
  static_assert(sizeof(Slot) == 16);

  size_t home(uint64_t key) const { return (key * 0x9E3779B97F4A7C15ull) & (slots_.size() - 1); }
  Slot* find_slot(uint64_t key);
  void erase(size_t at);
  void move(size_t from, size_t to);
  void evict_one();
  std::span<const uint16_t> tags_of(const Slot& slot) const;
  // Those that hold it, with void ones; none if nobody does. It has been used.
  std::span<const uint16_t> tags_with(const kv::BlockHash& name);
  uint16_t tag(int worker) const;
  bool is_void(uint16_t tag) const;
  // Takes such tags out, and frees the slot if there are no others; true: it did that.
  template <typename Gone>
  bool take_out(size_t at, const Gone& gone);
  bool clean(size_t at);  // of void ones
  uint32_t list_of(const Slot& slot) const;
  void make_list(Slot& slot);
  void free_list(Slot& slot);

  static constexpr int kWorkerBits = 12;
  static constexpr int kGenerations = 16;

  std::vector<Slot> slots_;           // a power of two
  std::vector<uint8_t> generations_;  // by worker
  std::vector<uint8_t> forgets_;      // by worker: since all was swept
  // Void tags stand in these slots only, round the end: so many from there on.
  size_t sweep_at_ = 0;
  size_t sweep_left_ = 0;
  size_t size_ = 0;
  size_t size_max_ = 0;
  size_t hand_ = 0;
  int64_t evictions_ = 0;
  int64_t updates_ = 0;
  std::vector<uint32_t> held_;  // by worker
  std::vector<std::vector<uint16_t>> lists_;
  std::vector<uint32_t> free_lists_;
};

}  // namespace pelton::gateway
