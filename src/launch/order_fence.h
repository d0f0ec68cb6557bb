// Which of several autoscalers a gateway obeys: the one whose epoch is the newest of those that
// speak. An epoch of one that does not lead is the time at which it began, and a clock may have
// been ahead then; so one of those that has not been heard for ten seconds (it speaks five times a
// second) keeps nobody out. One that leads is fenced for ever: its lease says who is newer. A
// value; one owner.
#pragma once

#include <cstdint>

namespace pelton::launch {

class OrderFence {
 public:
  static constexpr int64_t kSilent_ns = 10'000'000'000;
  // Epochs from here on are of autoscalers that lead.
  static constexpr uint64_t kLed = uint64_t{1} << 52;

  static constexpr uint64_t kAhead_ms = 86'400'000;

  // Whether nobody can have begun with it, or led so often (once in a millisecond), by that clock:
  // it would keep all others out.
  static bool is_ahead(uint64_t epoch, int64_t unix_ms) {
    return (epoch >= kLed ? epoch - kLed : epoch) > static_cast<uint64_t>(unix_ms) + kAhead_ms;
  }

  // Whether an order of this epoch is to be obeyed; then it is the newest.
  bool takes(uint64_t epoch, int64_t now_ns) {
    const bool keeps_others_out = newest_ >= kLed || now_ns - heard_ns_ <= kSilent_ns;
    if (epoch < newest_ && keeps_others_out) return false;
    newest_ = epoch;
    heard_ns_ = now_ns;
    return true;
  }
  uint64_t newest() const { return newest_; }

 private:
  uint64_t newest_ = 0;
  int64_t heard_ns_ = 0;
};

}  // namespace pelton::launch
