// Put in front of a program (LD_PRELOAD), its calendar jumps about: an hour, ten years, ahead and
// back, five times a second. The steady clock is left alone. For tests/faults_test.py.
#include <cstdint>
#include <ctime>

#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

namespace {

timespec system_time(clockid_t clock) {
  timespec now{};
  syscall(SYS_clock_gettime, clock, &now);
  return now;
}

timespec jumping_time() {
  constexpr long kHour = 3600;
  constexpr long kYear = 365 * 24 * kHour;
  constexpr long kOffsets[] = {0, kHour, -kHour, 10 * kYear, -10 * kYear};
  const timespec steady = system_time(CLOCK_MONOTONIC);
  const auto fifth = static_cast<uint64_t>(steady.tv_sec * 5 + steady.tv_nsec / 200'000'000);
  // In no order that could keep step with who asks, say, once a second.
  const uint64_t drawn = (fifth * 0x9E3779B97F4A7C15u) >> 32;
  timespec now = system_time(CLOCK_REALTIME);
  now.tv_sec += kOffsets[drawn % 5];
  return now;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  *now = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE ? jumping_time()
                                                                   : system_time(clock);
  return 0;
}

int gettimeofday(timeval* now, void*) noexcept {
  const timespec time = jumping_time();
  *now = {time.tv_sec, time.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* now) noexcept {
  const time_t seconds = jumping_time().tv_sec;
  if (now != nullptr) *now = seconds;
  return seconds;
}
}
