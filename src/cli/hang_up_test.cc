#include "cli/hang_up.h"

#include <csignal>

#include <gtest/gtest.h>

#include "cli/interrupt.h"

namespace pelton::cli {
namespace {

TEST(HangUpTest, EachIsTakenOnceAndEndsNothing) {
  const Interrupt interrupt(Interrupt::HangUp::kReported);
  EXPECT_FALSE(take_hang_up());
  std::raise(SIGHUP);
  EXPECT_TRUE(take_hang_up());
  EXPECT_FALSE(take_hang_up());
  EXPECT_FALSE(interrupt.pending());
}

}  // namespace
}  // namespace pelton::cli
