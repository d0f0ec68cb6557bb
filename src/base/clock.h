// Time is passed in. SystemClock is the machine's; VirtualClock is turned by hand, in tests and in
// the simulator.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace pelton::base {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now_ns() const = 0;   // monotonic, from an arbitrary start
  virtual int64_t unix_ms() const = 0;  // calendar time, milliseconds since 1970 UTC
};

// Any thread.
class SystemClock final : public Clock {
 public:
  int64_t now_ns() const override;
  int64_t unix_ms() const override;
};

// Any thread may read; whoever owns it advances it.
class VirtualClock final : public Clock {
 public:
  explicit VirtualClock(int64_t unix_ms_at_start = 0) : unix_ms_at_start_(unix_ms_at_start) {}
  int64_t now_ns() const override { return now_ns_.load(std::memory_order_relaxed); }
  int64_t unix_ms() const override { return unix_ms_at_start_ + now_ns() / 1'000'000; }
  void advance_ns(int64_t by) { now_ns_.fetch_add(by, std::memory_order_relaxed); }

 private:
  const int64_t unix_ms_at_start_;
  std::atomic<int64_t> now_ns_{0};
};

// "2025-06-28", the local date of a calendar time.
std::string local_date(int64_t unix_ms);

}  // namespace pelton::base
