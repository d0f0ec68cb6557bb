// The greatest of what was noted in the last so many nanoseconds, in amortised constant time: a
// falling queue, in which a value removes the smaller ones before it. Example: 5, 3, 4 noted leave
// 5, 4; once 5 is too old the maximum is 4. Pure; one owner.
#pragma once

#include <cstdint>
#include <deque>

#include "autoscaler/state_json.h"
#include "base/json_writer.h"

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

  void save(base::JsonWriter& w) const {
    w.begin_object().key("kept").begin_array();
    for (const Noted& one : kept_) {
      w.begin_object().key("value").integer(one.value).key("at_ns").integer(one.at_ns).end_object();
    }
    w.end_array().end_object();
  }
  void load(StateReader state) {
    constexpr size_t kMost = 10'001;  // they fall from replica to replica
    kept_.clear();
    state.each("kept", kMost, [&](StateReader one) {
      kept_.push_back({one.count("value"), one.time("at_ns")});
    });
  }

 private:
  struct Noted {
    int value;
    int64_t at_ns;
  };
  std::deque<Noted> kept_;
};

}  // namespace pelton::autoscaler
