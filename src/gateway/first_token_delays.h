// How late a worker's first tokens came lately, beside what its own reports led to expect: the
// last twenty of them within ten seconds, and their middle. Pure: time comes with each call; one
// owner.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pelton::gateway {

class FirstTokenDelays {
 public:
  static constexpr int kRequests = 20;
  static constexpr int64_t kWindowNs = 10'000'000'000;

  void note(double measured_s, double predicted_s, int64_t now_ns) {
    if (!(measured_s > 0) || !(predicted_s > 0)) return;
    latest_[next_] = {.at_ns = now_ns, .ratio = measured_s / predicted_s, .measured_s = measured_s};
    next_ = (next_ + 1) % latest_.size();
  }
  void clear() { latest_ = {}; }

  struct Middle {
    int requests = 0;
    double ratio = 0;  // measured over predicted
    double measured_s = 0;
  };
  Middle middle(int64_t now_ns) const {
    std::vector<double> ratios;
    std::vector<double> measured;
    for (const One& one : latest_) {
      if (one.at_ns == 0 || now_ns - one.at_ns > kWindowNs) continue;
      ratios.push_back(one.ratio);
      measured.push_back(one.measured_s);
    }
    return {.requests = static_cast<int>(ratios.size()),
            .ratio = median(ratios),
            .measured_s = median(measured)};
  }
  // 0 of none.
  static double median(std::vector<double>& values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  }

 private:
  struct One {
    int64_t at_ns = 0;
    double ratio = 0;
    double measured_s = 0;
  };
  std::array<One, kRequests> latest_{};
  size_t next_ = 0;
};

}  // namespace pelton::gateway
