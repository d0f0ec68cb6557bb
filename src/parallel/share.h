// Who has which of so many rows: each rank a run of neighbours, in the order of the ranks, whole
// units of them. 192 rows in units of 32 among four ranks: 0..32, 32..96, 96..128, 128..192. A rank
// may have none. Plain values; any thread.
#pragma once

#include <cstddef>
#include <vector>

namespace pelton::parallel {

class Share {
 public:
  // `rows` in units of `unit` (the last unit may be less), in proportion to `weights`, one for each
  // rank, the sum of which is above zero.
  static Share make(int rows, int unit, const std::vector<int>& weights);

  int ranks() const { return static_cast<int>(begins_.size()) - 1; }
  int rows() const { return begins_.back(); }
  int begin(int rank) const { return begins_[static_cast<size_t>(rank)]; }
  int count(int rank) const { return begin(rank + 1) - begin(rank); }
  int widest() const;  // the most that a rank has

  bool operator==(const Share&) const = default;

 private:
  std::vector<int> begins_;  // (ranks + 1)
};

}  // namespace pelton::parallel
