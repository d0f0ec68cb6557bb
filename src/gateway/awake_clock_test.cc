#include "gateway/awake_clock.h"

#include <gtest/gtest.h>

#include "cluster/worker_health.h"

namespace pelton::gateway {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST(AwakeClock, LeavesOutWhatNobodyWasAwakeFor) {
  base::VirtualClock clock;
  const AwakeClock awake(clock, std::chrono::milliseconds(200));
  clock.advance_ns(100 * kMs);
  EXPECT_EQ(awake.now_ns(), 100 * kMs);
  clock.advance_ns(50 * kMs);
  EXPECT_EQ(awake.now_ns(), 150 * kMs);
  clock.advance_ns(10'000 * kMs);
  EXPECT_EQ(awake.now_ns(), 350 * kMs);
  clock.advance_ns(1 * kMs);
  EXPECT_EQ(awake.now_ns(), 351 * kMs);
  clock.advance_ns(-500 * kMs);
  EXPECT_EQ(awake.now_ns(), 351 * kMs) << "it never goes back";
}

// FT-50, FT-51: a step of two seconds, or a pause of ten, makes nobody suspect.
TEST(AwakeClock, APauseOfEverythingMakesNobodySuspect) {
  base::VirtualClock clock;
  const AwakeClock awake(clock, std::chrono::milliseconds(200));
  cluster::WorkerHealth health{cluster::WorkerHealth::Options{}};
  health.note_record({.incarnation = "a"}, awake.now_ns());
  health.note_load({.progress = 7, .busy_ms = 5}, awake.now_ns());
  health.note_probe(true);
  for (const int64_t pause_ms : {2'000, 10'000}) {
    clock.advance_ns(pause_ms * kMs);
    EXPECT_EQ(health.state(awake.now_ns()), cluster::WorkerState::kReady);
    // The worker's step has been stopped as long, and has not ended yet.
    health.note_load({.progress = 7, .busy_ms = pause_ms}, awake.now_ns());
    EXPECT_EQ(health.state(awake.now_ns()), cluster::WorkerState::kReady);
  }
}

}  // namespace
}  // namespace pelton::gateway
