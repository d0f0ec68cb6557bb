#include "gateway/awake_clock.h"

#include <algorithm>

namespace pelton::gateway {

int64_t AwakeClock::now_ns() const {
  std::lock_guard lock(mutex_);
  const int64_t now_ns = clock_.now_ns();
  left_out_ns_ += std::max<int64_t>(now_ns - last_ns_ - gap_max_ns_, 0);
  last_ns_ = std::max(last_ns_, now_ns);
  return last_ns_ - left_out_ns_;
}

}  // namespace pelton::gateway
