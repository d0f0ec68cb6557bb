#include "gateway/staged_change.h"

#include <gtest/gtest.h>

namespace pelton::gateway {
namespace {

using Verdict = StagedChange::Verdict;

constexpr int64_t kS = 1'000'000'000;

StagedFigures figures(int64_t requests, int64_t failed) {
  return {.requests = requests,
          .failed = failed,
          .pools_ready = {"chat", "small"},
          .etag = "\"a\"",
          .error = {}};
}

StagedChange change() {
  return {{.watch_ns = 60 * kS, .grace_ns = 10 * kS, .failed_max = 0.02, .etag = "\"a\""},
          figures(1000, 100),
          0};
}

TEST(StagedChange, GoesOnWhenAllWasWellForTheTimeItIsWatched) {
  StagedChange staged = change();
  for (int s = 1; s < 60; ++s) {
    ASSERT_EQ(staged.note(figures(1000 + s * 10, 100), s * kS), Verdict::kWait) << s;
  }
  EXPECT_EQ(staged.note(figures(1600, 100), 60 * kS), Verdict::kGood);
}

TEST(StagedChange, IsTakenBackForWhatFailedSinceAndNotForWhatFailedBefore) {
  StagedChange staged = change();
  EXPECT_EQ(staged.note(figures(1020, 104), 1 * kS), Verdict::kWait) << "so few happen by chance";
  EXPECT_EQ(staged.note(figures(1040, 106), 2 * kS), Verdict::kBad);
  EXPECT_EQ(staged.reason(), "6 of 40 requests failed (15.0 %; at most 2 %)");
  // As many, of many more.
  EXPECT_EQ(change().note(figures(1000 + 300, 106), 2 * kS), Verdict::kWait);
}

TEST(StagedChange, IsTakenBackWhereAPoolHasLostItsWorkersAndNotAtOnce) {
  StagedChange staged = change();
  StagedFigures now = figures(1000, 100);
  now.pools_ready = {"chat", "new"};
  EXPECT_EQ(staged.note(figures(1000, 100), 5 * kS), Verdict::kWait);
  EXPECT_EQ(staged.note(now, 6 * kS), Verdict::kWait);
  EXPECT_EQ(staged.note(now, 15 * kS), Verdict::kWait);
  EXPECT_EQ(staged.note(now, 16 * kS), Verdict::kBad);
  EXPECT_EQ(staged.reason(), "no worker of small takes requests any more, for 11 s");
}

TEST(StagedChange, IsNotGoodWhileAPoolLacksItsWorkers) {
  StagedChange staged = change();
  StagedFigures now = figures(1000, 100);
  EXPECT_EQ(staged.note(now, 55 * kS), Verdict::kWait);
  now.pools_ready = {"chat"};
  EXPECT_EQ(staged.note(now, 61 * kS), Verdict::kWait);
  EXPECT_EQ(staged.note(figures(1000, 100), 62 * kS), Verdict::kGood);
}

TEST(StagedChange, IsTakenBackWhereTheGatewayHasNotTakenIt) {
  StagedChange staged = change();
  StagedFigures now = figures(1000, 100);
  now.error = "line 3: 'retries' is 0 to 10";
  EXPECT_EQ(staged.note(now, kS), Verdict::kBad);
  EXPECT_EQ(staged.reason(), "it is not in force: line 3: 'retries' is 0 to 10");
}

TEST(StagedChange, LeavesWhatSomebodyElseHasWritten) {
  StagedChange staged = change();
  StagedFigures now = figures(1100, 200);
  now.etag = "\"b\"";
  EXPECT_EQ(staged.note(now, kS), Verdict::kOthers);
  EXPECT_FALSE(staged.reason().empty());
}

TEST(StagedChange, AGatewayThatSaysNothingHasAWhileForIt) {
  StagedChange staged = change();
  EXPECT_EQ(staged.note(figures(1000, 100), 5 * kS), Verdict::kWait);
  EXPECT_EQ(staged.note_silent("connection refused", 15 * kS), Verdict::kWait);
  EXPECT_EQ(staged.note_silent("connection refused", 16 * kS), Verdict::kBad);
  EXPECT_EQ(staged.reason(), "the gateway does not answer: connection refused");
}

TEST(StagedChange, AGatewayThatBeganAnewCountsAnew) {
  EXPECT_EQ(change().note(figures(10, 0), kS), Verdict::kWait);
  EXPECT_EQ(change().note(figures(20, 10), kS), Verdict::kBad);
}

TEST(StagedChange, WhoseAnswerWasLostIsFoundByTheETag) {
  EXPECT_EQ(lost_answer("b", "a", "b", false), LostAnswer::kThere);
  EXPECT_EQ(lost_answer("b", "a", "b", true), LostAnswer::kThere);
  EXPECT_EQ(lost_answer("c", "a", "b", false), LostAnswer::kAway);
  for (const char* now : {"a", ""}) {
    EXPECT_EQ(lost_answer(now, "a", "b", false), LostAnswer::kWait);
    EXPECT_EQ(lost_answer(now, "a", "b", true), LostAnswer::kUnsure);
  }
}

}  // namespace
}  // namespace pelton::gateway
