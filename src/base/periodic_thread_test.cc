#include "base/periodic_thread.h"

#include <atomic>
#include <string>

#include <gtest/gtest.h>
#include <pthread.h>

namespace pelton::base {
namespace {

using std::chrono::steady_clock;

TEST(PeriodicThread, TakesItsTurnsUnderItsName) {
  std::atomic<int> turns{0};
  std::string name(16, '\0');
  {
    const PeriodicThread thread({.name = "pelton-test", .interval = std::chrono::milliseconds(1)},
                                [&] {
                                  pthread_getname_np(pthread_self(), name.data(), name.size());
                                  ++turns;
                                });
    const auto late = steady_clock::now() + std::chrono::seconds(20);
    while (turns.load() < 5 && steady_clock::now() < late) std::this_thread::yield();
  }
  EXPECT_GE(turns.load(), 5);
  EXPECT_STREQ(name.c_str(), "pelton-test");
  const int at_its_end = turns.load();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(turns.load(), at_its_end);
}

TEST(PeriodicThread, EndsAtOnceHoweverLongItWouldRest) {
  const auto begun = steady_clock::now();
  bool ran = false;
  {
    const PeriodicThread thread({.name = "pelton-test", .interval = std::chrono::hours(1)},
                                [&] { ran = true; });
  }
  EXPECT_FALSE(ran);
  EXPECT_LT(steady_clock::now() - begun, std::chrono::seconds(20));
}

}  // namespace
}  // namespace pelton::base
