// How often something costly may begin: a burst at once, then so many a second. Pure: the time is
// passed in, and never goes back. Belongs to its owner's thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace pelton::admission {

class LoadRate {
 public:
  // per_second: 0: as often as one likes.
  LoadRate(double per_second, int burst, int64_t now_ns)
      : per_second_(per_second), burst_(std::max(burst, 1)), left_(burst_), at_ns_(now_ns) {}

  // Until one may begin; 0: now.
  int64_t wait_ns(int64_t now_ns) {
    if (per_second_ <= 0) return 0;
    const double passed_s = static_cast<double>(now_ns - at_ns_) * 1e-9;
    at_ns_ = now_ns;
    left_ = std::min(left_ + passed_s * per_second_, burst_);
    if (left_ >= 1) return 0;
    return static_cast<int64_t>((1 - left_) / per_second_ * 1e9) + 1;
  }
  // One begins; wait_ns() was 0.
  void take() { left_ -= per_second_ > 0 ? 1 : 0; }

 private:
  const double per_second_;
  const double burst_;
  double left_;  // that may begin at once
  int64_t at_ns_;
};

}  // namespace pelton::admission
