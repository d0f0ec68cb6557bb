// The greatest of what was noted in the last so many nanoseconds, in amortised constant time: a
// falling queue, in which a value removes the smaller ones before it. Example: 5, 3, 4 noted leave
// 5, 4; once 5 is too old the maximum is 4. Pure; one owner.
#pragma once

#include <cstdint>
#include <deque>

namespace pelton::autoscaler {

class SlidingMax {
 public:
  // Time must not fall. What is `window_ns` old is forgotten.
  int note(int value, int64_t now_ns, int64_t window_ns) {
    while (!kept_.empty() && kept_.back().value <= value) kept_.pop_back();
    kept_.push_back({value, now_ns});
    while (kept_.front().at_ns <= now_ns - window_ns && kept_.size() > 1) kept_.pop_front();
    return kept_.front().value;
  }
  void clear() { kept_.clear(); }

 private:
  struct Noted {
    int value;
    int64_t at_ns;
  };
  std::deque<Noted> kept_;
};

}  // namespace pelton::autoscaler
