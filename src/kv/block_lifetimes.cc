#include "kv/block_lifetimes.h"

#include <algorithm>

namespace pelton::kv {

void BlockTimes::Histogram::add(int64_t ns) {
  const double seconds = static_cast<double>(ns) * 1e-9;
  const auto range = std::lower_bound(kBounds.begin(), kBounds.end(), seconds) - kBounds.begin();
  ++counts[static_cast<size_t>(range)];
  sum_s += seconds;
}

BlockLifetimes::BlockLifetimes(int block_count, const base::Clock* clock) : clock_(clock) {
  if (clock == nullptr) return;
  while (block_count >> (shift_ + 1) >= kWatchedLeast) ++shift_;
  mask_ = (BlockId{1} << shift_) - 1;
  lives_.resize(static_cast<size_t>((block_count >> shift_) + 1));
}

void BlockLifetimes::begin(BlockId block) {
  life(block) = {.taken_ns = clock_->now_ns()};
}

void BlockLifetimes::note_found(BlockId block) {
  Life& one = life(block);
  const int64_t now_ns = clock_->now_ns();
  if (one.found_ns != 0) times_.reuse_gap.add(now_ns - one.found_ns);
  one.found_ns = now_ns;
}

void BlockLifetimes::end(BlockId block) {
  const Life& one = life(block);
  const int64_t now_ns = clock_->now_ns();
  times_.lifetime.add(now_ns - one.taken_ns);
  times_.idle.add(now_ns - std::max(one.taken_ns, one.found_ns));
}

}  // namespace pelton::kv
