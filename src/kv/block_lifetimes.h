// How old blocks become, how long they had not been asked for when their room was needed, and how
// soon they are asked for again: of some blocks of one pool, so that it costs the others one test.
// Engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "kv/block_id.h"

namespace pelton::kv {

// What it has seen; plain values.
struct BlockTimes {
  // vLLM's, in seconds.
  static constexpr std::array<double, 21> kBounds = {.001, .002, .005, .01, .02, .05,  .1,
                                                     .2,   .5,   1,    2,   5,   10,   20,
                                                     30,   60,   120,  300, 600, 1200, 1800};

  struct Histogram {
    std::array<int64_t, kBounds.size() + 1> counts{};  // at most as long as the bound; longer
    double sum_s = 0;

    void add(int64_t ns);
  };

  Histogram lifetime;   // from being taken until what it held made room
  Histogram idle;       // from being taken or found the last time until then
  Histogram reuse_gap;  // from being found to being found again
};

class BlockLifetimes {
 public:
  // `clock` outlives it; null: nothing is watched.
  BlockLifetimes(int block_count, const base::Clock* clock);

  void taken(BlockId block) {
    if (watches(block)) begin(block);
  }
  void found(BlockId block) {
    if (watches(block)) note_found(block);
  }
  void evicted(BlockId block) {
    if (watches(block)) end(block);
  }

  const BlockTimes& times() const { return times_; }

 private:
  // So many of a pool, evenly spread over its numbers, or all of a smaller one.
  static constexpr int kWatchedLeast = 1024;

  struct Life {
    int64_t taken_ns = 0;
    int64_t found_ns = 0;  // the last time; 0: never
  };

  bool watches(BlockId block) const { return (block & mask_) == 0 && clock_ != nullptr; }
  Life& life(BlockId block) { return lives_[static_cast<size_t>(block >> shift_)]; }
  void begin(BlockId block);
  void note_found(BlockId block);
  void end(BlockId block);

  const base::Clock* const clock_;
  int shift_ = 0;
  BlockId mask_ = 0;
  std::vector<Life> lives_;
  BlockTimes times_;
};

}  // namespace pelton::kv
