#include "parallel/share.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "base/check.h"

namespace pelton::parallel {

Share Share::make(int rows, int unit, const std::vector<int>& weights) {
  const int64_t total = std::accumulate(weights.begin(), weights.end(), int64_t{0});
  CHECK(total > 0 && unit > 0);
  const int64_t units = (int64_t{rows} + unit - 1) / unit;
  Share share;
  share.begins_.push_back(0);
  int64_t so_far = 0;
  for (const int weight : weights) {
    so_far += weight;
    const int64_t end = units * so_far / total * unit;
    share.begins_.push_back(static_cast<int>(std::min<int64_t>(end, rows)));
  }
  return share;
}

int Share::widest() const {
  int widest = 0;
  for (int rank = 0; rank < ranks(); ++rank) widest = std::max(widest, count(rank));
  return widest;
}

}  // namespace pelton::parallel
