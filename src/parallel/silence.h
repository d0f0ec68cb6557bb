// How long another rank has been silent, as one that looks from time to time has seen it: time in
// which the looker itself did not run (stopped, starved, asleep with the machine) counts as one
// look at most, so that who is woken does not blame the others. Pure; its owner's thread.
//
// Looks at 0, 0.5, 1.0 and 9.0 s, nothing heard: 0.5 + 0.5 + 1.0 = 2.0 s of silence.
#pragma once

#include <algorithm>
#include <cstdint>

namespace pelton::parallel {

class Silence {
 public:
  static constexpr int64_t kLookMaxNs = 1'000'000'000;

  explicit Silence(int64_t now_ns) : looked_ns_(now_ns) {}

  // Something came since the last look, or nothing.
  void look(int64_t now_ns, bool heard) {
    silent_ns_ += std::min(now_ns - looked_ns_, kLookMaxNs);
    if (heard) silent_ns_ = 0;
    looked_ns_ = now_ns;
  }
  int64_t ns() const { return silent_ns_; }

 private:
  int64_t looked_ns_;
  int64_t silent_ns_ = 0;
};

}  // namespace pelton::parallel
