#include "cluster/worker_health.h"

#include <gtest/gtest.h>

namespace pelton::cluster {
namespace {

constexpr int64_t kMs = 1'000'000;

class Health : public testing::Test {
 protected:
  void join(const std::string& incarnation) {
    health_.note_record({.incarnation = incarnation}, now_);
    report();
    health_.note_probe(true);
  }
  void report(WorkerLoad load = {}) { health_.note_load(load, now_); }
  using Outcome = WorkerHealth::Outcome;
  void serve() { health_.note_outcome(Outcome::kServed, ++dispatch_, now_); }
  void fail() { health_.note_outcome(Outcome::kFailed, ++dispatch_, now_); }
  void wait(int64_t ms) {
    for (; ms > 0; ms -= 100) {
      now_ += 100 * kMs;
      report();
    }
  }
  WorkerState state() const { return health_.state(now_); }

  WorkerHealth health_{WorkerHealth::Options{}};
  int64_t now_ = 1'000'000 * kMs;
  int64_t dispatch_ = 0;
};

TEST_F(Health, GetsWorkOnceItsProbeHasPassed) {
  EXPECT_EQ(state(), WorkerState::kJoining);
  health_.note_record({.incarnation = "a"}, now_);
  report();
  EXPECT_EQ(state(), WorkerState::kProbing);
  EXPECT_FALSE(health_.takes_requests(now_));
  health_.note_probe(true);
  EXPECT_EQ(state(), WorkerState::kReady);
  report({.ready = false});
  EXPECT_EQ(state(), WorkerState::kProbing);
}

// Its costs, and the adapters in its memory, are in its first report.
TEST_F(Health, IsNotReadyBeforeItsFirstReport) {
  health_.note_record({.incarnation = "a"}, now_);
  health_.note_probe(true);
  EXPECT_EQ(state(), WorkerState::kProbing);
  EXPECT_FALSE(health_.takes_requests(now_));
  report();
  EXPECT_EQ(state(), WorkerState::kReady);
  health_.note_record({.incarnation = "b"}, now_);
  health_.note_probe(true);
  EXPECT_EQ(state(), WorkerState::kProbing) << "what another start of it has said";
}

// GW-05: whatever else it is, what is not what its pool computes gets nothing, not even a trial.
TEST_F(Health, WhoComputesSomethingElseGetsNothing) {
  join("a");
  health_.set_unverified(true);
  EXPECT_EQ(state(), WorkerState::kUnverified);
  EXPECT_FALSE(health_.takes_requests(now_));
  health_.eject(WorkerHealth::Cause::kSlow, now_);
  EXPECT_FALSE(health_.is_worth_a_try(now_));
  wait(10'000);
  EXPECT_FALSE(health_.takes_requests(now_));
  health_.set_draining(true);
  EXPECT_EQ(state(), WorkerState::kDraining);
  health_.set_draining(false);
  health_.set_unverified(false);
  EXPECT_EQ(state(), WorkerState::kEjected);
  EXPECT_TRUE(health_.is_worth_a_try(now_));
  EXPECT_TRUE(health_.takes_requests(now_)) << "its time is over";
  EXPECT_EQ(health_.ejected_times(), 1);
  EXPECT_EQ(health_.last_cause(), WorkerHealth::Cause::kSlow);
}

TEST_F(Health, SilenceMakesItSuspectThenDown) {
  join("a");
  now_ += 900 * kMs;
  EXPECT_EQ(state(), WorkerState::kReady);
  now_ += 200 * kMs;
  EXPECT_EQ(state(), WorkerState::kSuspect);
  report();
  EXPECT_EQ(state(), WorkerState::kReady);
  now_ += 3'001 * kMs;
  EXPECT_EQ(state(), WorkerState::kDown);
}

TEST_F(Health, AResetAndARefusalMeanThatItIsGone) {
  join("a");
  health_.note_watch_lost(false, now_);
  EXPECT_EQ(state(), WorkerState::kSuspect);
  health_.note_watch_lost(true, now_);
  EXPECT_EQ(state(), WorkerState::kDown);
  EXPECT_EQ(health_.note_record({.incarnation = "b"}, now_), WorkerHealth::News::kNewIncarnation);
  EXPECT_EQ(state(), WorkerState::kProbing);
  health_.note_probe(true);
  report();
  EXPECT_EQ(state(), WorkerState::kReady);
}

TEST_F(Health, AStepThatDoesNotEndIsAHang) {
  join("a");
  const auto report_for = [&](int64_t ms, int64_t progress) {
    for (; ms > 0; ms -= 100) {
      now_ += 100 * kMs;
      report({.progress = progress, .busy_ms = 50});
    }
  };
  report_for(2'000, 1);
  EXPECT_EQ(state(), WorkerState::kReady);
  report_for(200, 1);
  EXPECT_EQ(state(), WorkerState::kDown);
  report({.progress = 2, .busy_ms = 3});
  EXPECT_EQ(state(), WorkerState::kReady);
  // Steps of two seconds have been seen here: eight may be one of them.
  report_for(7'900, 3);
  EXPECT_EQ(state(), WorkerState::kReady);
  report_for(1'000, 3);
  EXPECT_EQ(state(), WorkerState::kDown);
  report_for(100, 4);
  EXPECT_EQ(state(), WorkerState::kReady);
}

// The first prompt of a large model on a slow machine: nothing has been seen of it yet.
TEST_F(Health, AFirstStepMayTakeLong) {
  join("a");
  const auto report_for = [&](int64_t ms, const WorkerLoad& load) {
    for (; ms > 0; ms -= 100) {
      now_ += 100 * kMs;
      report(load);
    }
  };
  report_for(25'000, {.busy_ms = 50});
  EXPECT_EQ(state(), WorkerState::kReady);
  report_for(6'000, {.busy_ms = 50});
  EXPECT_EQ(state(), WorkerState::kDown) << "but not for ever";
}

TEST_F(Health, AWorkerSaysHowLongItsStepsMayTake) {
  health_.note_record({.incarnation = "a", .batch_tokens = 1'000}, now_);
  health_.note_probe(true);
  const auto report_for = [&](int64_t ms, double prefill_token_s) {
    for (; ms > 0; ms -= 100) {
      now_ += 100 * kMs;
      report({.progress = 1, .busy_ms = 50, .costs = {.prefill_token_s = prefill_token_s}});
    }
  };
  report_for(11'500, 0.003);  // four times three seconds
  EXPECT_EQ(state(), WorkerState::kReady);
  report_for(1'000, 0.003);
  EXPECT_EQ(state(), WorkerState::kDown);
  report_for(100, 1e-6);
  EXPECT_EQ(state(), WorkerState::kDown);
}

// A worker whose clock was stepped, or that was stopped for a while, says that it has been busy for
// long: that alone is no hang.
TEST_F(Health, WhatItSaysOfItsOwnClockIsNoHang) {
  join("a");
  report({.progress = 1, .busy_ms = 20});
  now_ += 100 * kMs;
  report({.progress = 1, .busy_ms = 3'600'000});
  EXPECT_EQ(state(), WorkerState::kReady);
}

TEST_F(Health, FailuresInARowEjectItForLongerEachTime) {
  join("a");
  for (int i = 0; i < 4; ++i) fail();
  serve();
  for (int i = 0; i < 4; ++i) fail();
  EXPECT_EQ(state(), WorkerState::kReady);
  fail();
  EXPECT_EQ(state(), WorkerState::kEjected);
  EXPECT_FALSE(health_.takes_requests(now_));
  wait(5'000);
  EXPECT_TRUE(health_.takes_requests(now_));
  health_.note_trial(100);
  EXPECT_FALSE(health_.takes_requests(now_)) << "one trial at a time";
  health_.note_outcome(Outcome::kFailed, 100, now_);
  wait(5'000);
  EXPECT_FALSE(health_.takes_requests(now_)) << "twice as long";
  wait(5'000);
  EXPECT_TRUE(health_.takes_requests(now_));
  health_.note_trial(101);
  health_.note_outcome(Outcome::kServed, 101, now_);
  EXPECT_EQ(state(), WorkerState::kReady);
}

// Its client left, or it was full just then: the next request is a trial, too.
TEST_F(Health, ATrialThatSaysNothingIsMadeAgain) {
  join("a");
  for (int i = 0; i < 5; ++i) fail();
  wait(5'000);
  health_.note_trial(100);
  health_.note_outcome(Outcome::kNeither, 100, now_);
  EXPECT_EQ(state(), WorkerState::kEjected);
  EXPECT_TRUE(health_.takes_requests(now_));
  health_.note_trial(101);
  health_.note_outcome(Outcome::kServed, 101, now_);
  EXPECT_EQ(state(), WorkerState::kReady);
}

// What was sent before it was ejected ends while it is: that is no trial, and no reason to forget
// why.
TEST_F(Health, WhatWasSentBeforeIsNoTrial) {
  join("a");
  for (int i = 0; i < 5; ++i) fail();
  health_.note_outcome(Outcome::kServed, 1, now_);
  EXPECT_EQ(state(), WorkerState::kEjected);
  EXPECT_EQ(health_.ejection().cause, WorkerHealth::Cause::kInARow);
  EXPECT_EQ(health_.ejection().failures, 5);
  wait(5'000);
  health_.note_trial(100);
  health_.note_outcome(Outcome::kServed, 2, now_);
  EXPECT_EQ(state(), WorkerState::kEjected) << "the trial is on its way";
  health_.note_outcome(Outcome::kFailed, 100, now_);
  wait(5'000);
  EXPECT_FALSE(health_.takes_requests(now_)) << "and doubled the time";
}

// In panic several are on their way at a time: the first that ends says how it is, whichever was
// sent first.
TEST_F(Health, TheFirstOfSeveralTrialsThatEndsCounts) {
  join("a");
  for (int i = 0; i < 5; ++i) fail();
  health_.note_trial(100);
  health_.note_trial(101);
  health_.note_trial(102);
  health_.note_outcome(Outcome::kNeither, 101, now_);
  EXPECT_EQ(state(), WorkerState::kEjected);
  health_.note_outcome(Outcome::kServed, 102, now_);
  EXPECT_EQ(state(), WorkerState::kReady) << "100 may be a long one";
  health_.note_outcome(Outcome::kFailed, 100, now_);
  EXPECT_EQ(state(), WorkerState::kReady) << "one failure, as any other";
}

TEST_F(Health, HalfOfManyRequestsFailed) {
  join("a");
  for (int i = 0; i < 9; ++i) {
    serve();
    fail();
  }
  EXPECT_EQ(state(), WorkerState::kReady) << "18 are too few";
  serve();
  fail();
  EXPECT_EQ(state(), WorkerState::kEjected);
  EXPECT_EQ(health_.ejection().cause, WorkerHealth::Cause::kShare);
  EXPECT_EQ(health_.ejection().failures, 10);
  EXPECT_EQ(health_.ejection().requests, 20);
}

TEST_F(Health, OutcomesAreForgottenAfterTenSeconds) {
  join("a");
  for (int i = 0; i < 9; ++i) {
    serve();
    fail();
  }
  EXPECT_EQ(health_.share(now_).requests, 18);
  wait(10'000);
  EXPECT_EQ(health_.share(now_).requests, 0);
  serve();
  fail();
  EXPECT_EQ(state(), WorkerState::kReady);
  EXPECT_EQ(health_.share(now_).failures, 1);
}

TEST_F(Health, AnOperatorsEjectionIsHis) {
  join("a");
  health_.eject(WorkerHealth::Cause::kOperator, now_);
  EXPECT_EQ(state(), WorkerState::kEjected);
  EXPECT_FALSE(health_.is_worth_a_try(now_));
  health_.restore();
  for (int i = 0; i < 5; ++i) fail();
  EXPECT_TRUE(health_.is_worth_a_try(now_));
}

TEST_F(Health, AnOperatorDrainsIt) {
  join("a");
  health_.set_draining(true);
  EXPECT_EQ(state(), WorkerState::kDraining);
  health_.set_draining(false);
  EXPECT_EQ(state(), WorkerState::kReady);
  report({.draining = true});
  EXPECT_EQ(state(), WorkerState::kDraining);
}

}  // namespace
}  // namespace pelton::cluster
