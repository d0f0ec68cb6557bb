#include "checkpoint/load_choice.h"

#include <cstdint>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"

namespace pelton::checkpoint {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kMiB = int64_t{1} << 20;

// gpt-oss-20b packed, beside 5 GiB, on a machine of 24 GiB that lets it lock all it wants.
constexpr LoadFacts kUsual = {.weight_bytes = 12 * kGiB + 600 * kMiB,
                              .beside_bytes = 5 * kGiB,
                              .memory_bytes = 24 * kGiB,
                              .lock_limit_bytes = INT64_MAX};

LoadChoice choose(LoadMode asked, const LoadFacts& facts) {
  const Result<LoadChoice> choice = choose_load_mode(asked, facts);
  EXPECT_TRUE(choice.ok()) << choice.error().message;
  return choice.ok() ? *choice : LoadChoice{.reason = "no choice"};
}

TEST(LoadChoice, AutoLocksWhereItMayAndOthersHaveEnough) {
  const LoadChoice choice = choose(LoadMode::kAuto, kUsual);
  EXPECT_EQ(choice.mode, LoadMode::kLock);
  EXPECT_TRUE(choice.ahead);
  // Half of what is left to others may be gone when we come.
  EXPECT_EQ(choice.keep_available, 7 * kGiB);
  EXPECT_EQ(choice.floor_bytes, 1 * kGiB);
  EXPECT_THAT(choice.text(), HasSubstr("lock: "));
}

TEST(LoadChoice, AutoMapsWhatMayNotBeLocked) {
  LoadFacts facts = kUsual;
  facts.lock_limit_bytes = facts.weight_bytes;
  EXPECT_EQ(choose(LoadMode::kAuto, facts).mode, LoadMode::kLock);
  facts.lock_limit_bytes = 8 * kMiB;
  const LoadChoice choice = choose(LoadMode::kAuto, facts);
  EXPECT_EQ(choice.mode, LoadMode::kMap);
  EXPECT_FALSE(choice.keep_available);
  EXPECT_THAT(choice.text(), HasSubstr("mmap: 12.6 GiB of weights may not be locked into memory, "
                                       "only 8.0 MiB; raise `ulimit -l`"));
}

TEST(LoadChoice, AutoLeavesOthersAFifthOrFourGiB) {
  LoadFacts facts = kUsual;
  facts.beside_bytes = 20 * kGiB - facts.weight_bytes;
  EXPECT_EQ(choose(LoadMode::kAuto, facts).mode, LoadMode::kLock);
  facts.beside_bytes += 1;
  const LoadChoice choice = choose(LoadMode::kAuto, facts);
  EXPECT_EQ(choice.mode, LoadMode::kMap);
  EXPECT_TRUE(choice.ahead);
  EXPECT_THAT(choice.reason, HasSubstr("leave less than 4.0 GiB to others"));

  facts = {.weight_bytes = 600 * kMiB,
           .beside_bytes = 200 * kMiB,
           .memory_bytes = 1000 * kMiB,
           .lock_limit_bytes = INT64_MAX};
  EXPECT_EQ(choose(LoadMode::kAuto, facts).mode, LoadMode::kLock);
  facts.beside_bytes += 1;
  EXPECT_THAT(choose(LoadMode::kAuto, facts).reason, HasSubstr("less than 200.0 MiB"));
}

// A lock that was asked for is taken, or the start ends: nothing is given up on the way.
TEST(LoadChoice, WhatWasAskedForIsDone) {
  LoadFacts facts = kUsual;
  facts.lock_limit_bytes = 0;  // the system will say so
  facts.beside_bytes = 30 * kGiB;
  for (const LoadMode asked : {LoadMode::kMap, LoadMode::kLock, LoadMode::kRead}) {
    const LoadChoice choice = choose(asked, facts);
    EXPECT_EQ(choice.mode, asked);
    EXPECT_TRUE(choice.ahead);
    EXPECT_FALSE(choice.keep_available);
    EXPECT_EQ(choice.text(), load_mode_name(asked));
  }
}

TEST(LoadChoice, WeightsThatMemoryCannotHoldAreNotReadAhead) {
  LoadFacts facts = kUsual;
  facts.memory_bytes = facts.weight_bytes + kMiB;
  for (const LoadMode asked : {LoadMode::kAuto, LoadMode::kMap, LoadMode::kRead}) {
    const LoadChoice choice = choose(asked, facts);
    EXPECT_EQ(choice.mode, LoadMode::kMap);
    EXPECT_FALSE(choice.ahead);
    EXPECT_THAT(choice.reason, HasSubstr("again and again"));
  }
  EXPECT_EQ(choose(LoadMode::kLock, facts).mode, LoadMode::kLock);
  facts.memory_bytes = facts.weight_bytes - 1;
  const Result<LoadChoice> locked = choose_load_mode(LoadMode::kLock, facts);
  ASSERT_FALSE(locked.ok());
  EXPECT_EQ(locked.error().code, ErrorCode::kDoesNotFit);
}

// Whatever the machine: auto never locks more than it may or more than leaves others a share, and
// gives a reason for whatever it does.
TEST(LoadChoice, AutoStaysWithinBoundsOnAnyMachine) {
  constexpr uint64_t kSeed = 20261121;
  int locked = 0;
  for (uint64_t turn = 0; turn < 2000; ++turn) {
    const auto draw = [&](uint64_t which, int64_t below) {
      return static_cast<int64_t>(base::random_bits(kSeed, 4 * turn + which) %
                                  static_cast<uint64_t>(below));
    };
    const LoadFacts facts = {.weight_bytes = draw(0, 80 * kGiB),
                             .beside_bytes = draw(1, 40 * kGiB),
                             .memory_bytes = 1 + draw(2, 200 * kGiB),
                             .lock_limit_bytes = draw(3, 100 * kGiB)};
    const LoadChoice choice = choose(LoadMode::kAuto, facts);
    SCOPED_TRACE(::testing::Message() << "seed " << kSeed << ", turn " << turn);
    EXPECT_FALSE(choice.reason.empty());
    if (choice.mode != LoadMode::kLock) continue;
    ++locked;
    EXPECT_LE(facts.weight_bytes, facts.lock_limit_bytes);
    const int64_t left = facts.memory_bytes - facts.weight_bytes - facts.beside_bytes;
    EXPECT_TRUE(left >= 4 * kGiB || left >= facts.memory_bytes / 5) << left;
    EXPECT_GE(*choice.keep_available, facts.beside_bytes);
  }
  EXPECT_GT(locked, 100) << "else nothing was tested";
}

TEST(LoadChoice, NamesAreReadAndWritten) {
  for (const LoadMode mode : {LoadMode::kAuto, LoadMode::kMap, LoadMode::kLock, LoadMode::kRead}) {
    EXPECT_EQ(*parse_load_mode(load_mode_name(mode)), mode);
  }
  EXPECT_EQ(parse_load_mode("Auto").error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace pelton::checkpoint
