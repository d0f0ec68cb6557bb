#include "launch/child_program.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/sanitized.h"

namespace pelton::launch {
namespace {

using testing::HasSubstr;

Result<ProgramRun> shell(const std::string& script, std::string_view input = {},
                         const ProgramBounds& bounds = {}) {
  return run_program({"sh", "-c", script}, input, bounds);
}

TEST(ChildProgram, SaysWhatWasPrintedAndHowItEnded) {
  const auto run = shell("cat; echo trouble >&2; exit 7", "a b\n");
  ASSERT_TRUE(run.ok()) << run.error().message;
  EXPECT_EQ(run->code, 7);
  EXPECT_EQ(run->out, "a b\n");
  EXPECT_EQ(run->err, "trouble\n");
  EXPECT_EQ(shell("kill -KILL $$")->code, 128 + 9);
}

TEST(ChildProgram, OneThatIsNotThereIsAnError) {
  EXPECT_EQ(run_program({"pelton-no-such-program"}, {}, {}).error().code, ErrorCode::kNotFound);
}

TEST(ChildProgram, WhoDoesNotEndIsEndedWithWhatItHasStarted) {
  const auto run = shell("sleep 600 & sleep 600", {}, {.time_max = std::chrono::milliseconds(100)});
  EXPECT_EQ(run.error().code, ErrorCode::kDeadline);
  EXPECT_THAT(run.error().message, HasSubstr("has not ended within 100 ms"));
}

TEST(ChildProgram, WhoClosesItsEndsAndStaysIsEnded) {
  const auto run = shell("exec </dev/null >/dev/null 2>&1; sleep 600", {},
                         {.time_max = std::chrono::milliseconds(100)});
  EXPECT_EQ(run.error().code, ErrorCode::kDeadline);
}

// A daemon that keeps the ends that it was given.
TEST(ChildProgram, WhatItHasStartedIsNotWaitedFor) {
  const auto run = shell("echo one; sleep 2 & exit 4", {}, {.time_max = std::chrono::minutes(1)});
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run->code, 4);
  EXPECT_EQ(run->out, "one\n");
}

TEST(ChildProgram, VariablesThatAreLeftOutAreNotInherited) {
  ::setenv("SQUEUE_STATES", "PENDING", 1);
  ::setenv("SLURM_CONF", "/etc/x", 1);
  constexpr std::array<std::string_view, 1> kLeftOut = {"SQUEUE_"};
  const auto run = run_program({"sh", "-c", "echo $SQUEUE_STATES.$SLURM_CONF"}, {}, {}, kLeftOut);
  EXPECT_EQ(run->out, "./etc/x\n");
  ::unsetenv("SQUEUE_STATES");
  ::unsetenv("SLURM_CONF");
}

TEST(ChildProgram, WhoPrintsWithoutEndIsEnded) {
  EXPECT_THAT(shell("yes", {}, {.bytes_max = 100'000}).error().message,
              HasSubstr("more than 100000 bytes"));
  const auto run = shell("yes x | head -c 1000000 >&2; echo done");
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run->out, "done\n");
  EXPECT_LE(run->err.size(), size_t{16} << 10) << "what is more is passed over";
}

TEST(ChildProgram, WhoDoesNotReadItsInputIsNotWaitedFor) {
  const std::string much(size_t{4} << 20, 'x');
  EXPECT_EQ(shell("exit 3", much)->code, 3);
  EXPECT_EQ(shell("wc -c", much)->out, std::to_string(much.size()) + "\n");
}

TEST(ChildProgram, WhoeverNobodyWaitsForIsEnded) {
  std::atomic<bool> is_given_up = false;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    is_given_up = true;
  });
  const auto run =
      shell("sleep 600", {}, {.time_max = std::chrono::minutes(10), .is_given_up = &is_given_up});
  later.join();
  EXPECT_EQ(run.error().code, ErrorCode::kCancelled);
}

TEST(ChildProgram, ItsMemoryAndItsProcessorTimeAreBounded) {
  if (base::kSanitized) GTEST_SKIP() << "shadow memory is data, too";
  const ProgramBounds bounds{
      .time_max = std::chrono::seconds(120), .memory_bytes_max = int64_t{64} << 20, .nice = 19};
  // A moment after it has begun.
  const auto said = shell("sleep 0.2; ulimit -d; ulimit -t; nice", {}, bounds);
  ASSERT_TRUE(said.ok());
  EXPECT_EQ(said->out, "65536\n120\n19\n");
  const auto much =
      shell("sleep 0.2; exec python3 -c 'x = bytearray(200 << 20); print(len(x))'", {}, bounds);
  ASSERT_TRUE(much.ok());
  EXPECT_NE(much->code, 0);
  EXPECT_EQ(much->out, "");
}

}  // namespace
}  // namespace pelton::launch
