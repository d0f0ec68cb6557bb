// So much a minute, a minute's worth at once: what is taken flows back evenly. May be overdrawn by
// what turned out to cost more than was thought; then nobody is let in until that has flowed back.
// Pure: the time is passed in, and never goes back. Belongs to its owner's thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace pelton::admission {

class TokenBucket {
 public:
  TokenBucket(int64_t per_minute, int64_t now_ns)
      : capacity_(static_cast<double>(per_minute)),
        level_(static_cast<double>(per_minute)),
        now_ns_(now_ns) {}

  int64_t per_minute() const { return static_cast<int64_t>(capacity_); }

  // What was used stays used.
  void change(int64_t per_minute, int64_t now_ns) {
    flow(now_ns);
    const double used = capacity_ - level_;
    capacity_ = static_cast<double>(per_minute);
    level_ = capacity_ - std::max(used, 0.0);
  }

  // Whoever wants more than the bucket holds needs a full one: his debt is what makes up for it.
  double needed(int64_t amount) const { return std::min(static_cast<double>(amount), capacity_); }

  int64_t wait_ns(int64_t amount, int64_t now_ns) const {
    return time_to_gain(needed(amount) - level_at(now_ns));
  }
  int64_t until_full_ns(int64_t now_ns) const { return time_to_gain(capacity_ - level_at(now_ns)); }
  int64_t left(int64_t now_ns) const {
    return static_cast<int64_t>(std::max(level_at(now_ns), 0.0));
  }

  void take(int64_t amount, int64_t now_ns) {
    flow(now_ns);
    level_ -= static_cast<double>(amount);
  }
  void give_back(int64_t amount, int64_t now_ns) {
    flow(now_ns);
    level_ = std::min(level_ + static_cast<double>(amount), capacity_);
  }

 private:
  static constexpr double kMinuteNs = 60e9;

  double level_at(int64_t now_ns) const {
    if (now_ns <= now_ns_) return level_;
    const double gained = static_cast<double>(now_ns - now_ns_) / kMinuteNs * capacity_;
    return std::min(level_ + gained, capacity_);
  }
  void flow(int64_t now_ns) {
    level_ = level_at(now_ns);
    now_ns_ = std::max(now_ns, now_ns_);
  }
  int64_t time_to_gain(double amount) const {
    // A billionth of a token is what rounding may miss.
    if (amount <= 1e-9) return 0;
    return static_cast<int64_t>(std::ceil(amount / capacity_ * kMinuteNs));
  }

  double capacity_;
  double level_;
  int64_t now_ns_;
};

}  // namespace pelton::admission
