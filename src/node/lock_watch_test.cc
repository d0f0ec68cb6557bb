#include "node/lock_watch.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/clock.h"
#include "checkpoint/golden_checkpoint.h"
#include "checkpoint/residency.h"

namespace pelton::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

int64_t locked_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmLck:")) return std::stoll(line.substr(6)) * 1024;
  }
  return -1;
}

// The lock stays while there is enough, and the system's silence is no alarm; the first look that
// finds too little ends it, and some in turn that find enough for all weights begin it again.
TEST(LockWatch, GivesTheLockUpWhenLittleIsLeftAndTakesItAgain) {
  const std::string folder = ::testing::TempDir() + "pelton_lock_" + std::to_string(::getpid());
  ASSERT_TRUE(write_golden_checkpoint(checkpoint::GoldenCase::kTiny, folder).ok());
  {
    const auto checkpoint = checkpoint::Checkpoint::open(folder);
    ASSERT_TRUE(checkpoint.ok());
    const checkpoint::WeightPieces pieces = checkpoint::weight_pieces(*checkpoint);
    const int64_t bytes = checkpoint::mapped_bytes(pieces);
    if (checkpoint::load_facts(bytes, 0).lock_limit_bytes < bytes) {
      GTEST_SKIP() << bytes << " bytes may not be locked here";
    }
    const auto go_on = [](int64_t, int64_t) { return true; };
    ASSERT_TRUE(read_weights(pieces, {.mode = checkpoint::LoadMode::kLock}, go_on).ok());
    ASSERT_GE(locked_bytes(), bytes);

    const base::SystemClock clock;
    base::Log log(clock, {});
    std::atomic<int64_t> left{1000};
    std::atomic<int> looks{0};
    const LockWatch watch({.floor_bytes = 1000,
                           .calm_looks = 3,
                           .moves_pages = true,
                           .looks_before_moving = 1,
                           .available = [&]() -> std::optional<int64_t> {
                             if (++looks == 2) return std::nullopt;
                             return left.load();
                           }},
                          *checkpoint, pieces, log);
    const auto end = steady_clock::now() + std::chrono::seconds(20);
    while (looks < 4 && steady_clock::now() < end) std::this_thread::sleep_for(milliseconds(5));
    ASSERT_GE(looks, 4);
    EXPECT_GE(locked_bytes(), bytes);
    EXPECT_TRUE(watch.locked());
    EXPECT_FALSE(watch.settled());  // there was no room to move anything
    const auto until = [&](const auto& done) {
      while (!done() && steady_clock::now() < end) std::this_thread::sleep_for(milliseconds(5));
    };
    left = int64_t{1} << 40;
    until([&] { return watch.settled(); });
    EXPECT_TRUE(watch.settled());
    EXPECT_GE(locked_bytes(), bytes);

    left = 999;
    until([] { return locked_bytes() == 0; });
    EXPECT_EQ(locked_bytes(), 0);
    EXPECT_FALSE(watch.locked());
    EXPECT_FALSE(watch.settled());

    left = bytes + 1999;  // not quite enough, for as long as one likes
    const int before = looks;
    until([&] { return looks >= before + 6; });
    EXPECT_EQ(locked_bytes(), 0);
    left = bytes + 2000;
    until([&] { return watch.locked(); });
    EXPECT_TRUE(watch.locked());
    EXPECT_GE(locked_bytes(), bytes);

    left = 999;
    until([&] { return !watch.locked(); });
    until([] { return locked_bytes() == 0; });
    EXPECT_EQ(locked_bytes(), 0);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace pelton::node
