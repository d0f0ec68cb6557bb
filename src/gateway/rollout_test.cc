#include "gateway/rollout.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pelton::gateway {
namespace {

// With PELTON_FULL the counts that the guarantees are stated for.
bool is_full() {
  return std::getenv("PELTON_FULL") != nullptr;
}

uint64_t seed_of_run() {
  const char* given = std::getenv("PELTON_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("PELTON_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

// How an arm behaves: times and lengths are lognormal.
struct Behaviour {
  double failing = 0.01;
  double ttft_s = 0.3;
  double tokens = 120;
};

struct Play {
  RolloutPlan plan;
  Behaviour others = {};
  Behaviour candidate = {};
  int64_t candidate_max = 5000;  // requests of it, after which the run ends undecided
  // In some tenths of the requests something that both arms depend on fails: so many fail then.
  double failing_in_bad_hours = 0;
};

struct End {
  RolloutPhase phase = RolloutPhase::kRunning;
  std::string reason;
  int64_t candidate = 0;  // requests of it
  double share_most = 0;
};

RolloutOutcome outcome_of(const Behaviour& of, double failing, std::mt19937_64& random) {
  std::uniform_real_distribution<double> unit;
  std::normal_distribution<double> normal;
  RolloutOutcome outcome{.failed = unit(random) < failing};
  if (outcome.failed) return outcome;
  outcome.ttft_s = of.ttft_s * std::exp(0.6 * normal(random));
  outcome.output_tokens = 1 + static_cast<int64_t>(of.tokens * std::exp(0.7 * normal(random)));
  return outcome;
}

End play(const Play& of, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> unit;
  Rollout rollout(of.plan, RankTest::Grid::kNone);
  End end;
  for (int64_t i = 0; end.candidate < of.candidate_max; ++i) {
    const RolloutPhase phase = rollout.state().phase;
    if (phase != RolloutPhase::kRunning) break;
    const double share = rollout.share(true);
    end.share_most = std::max(end.share_most, share);
    const bool is_candidate = unit(random) < share;
    const Behaviour& behaviour = is_candidate ? of.candidate : of.others;
    const bool is_bad_hour = of.failing_in_bad_hours > 0 && i / 500 % 10 == 3;
    RolloutOutcome outcome =
        outcome_of(behaviour, is_bad_hour ? of.failing_in_bad_hours : behaviour.failing, random);
    outcome.side = is_candidate ? ArmSide::kCandidate : ArmSide::kOthers;
    outcome.step = rollout.step();
    rollout.note(outcome);
    rollout.pass(1, true);
    end.candidate += is_candidate ? 1 : 0;
  }
  end.phase = rollout.state().phase;
  end.reason = rollout.state().reason;
  return end;
}

// Nothing is tolerated, which is the hardest to keep the promise for.
RolloutPlan strict() {
  return {
      .name = "v2", .arm = "new", .error_tolerance = 0, .ttft_tolerance = 0, .length_tolerance = 0};
}

struct Runs {
  int taken_back = 0;
  int promoted = 0;
  std::map<std::string, int> reasons;
  int64_t median = 0;  // of the candidate's requests
};
Runs play_all(const Play& of, int runs, uint64_t seed) {
  Runs all;
  std::vector<int64_t> requests;
  for (int i = 0; i < runs; ++i) {
    const End end = play(of, seed + static_cast<uint64_t>(i) * 7919);
    all.taken_back += end.phase == RolloutPhase::kTakenBack ? 1 : 0;
    all.promoted += end.phase == RolloutPhase::kPromoted ? 1 : 0;
    ++all.reasons[end.reason];
    requests.push_back(end.candidate);
  }
  const auto middle = requests.begin() + static_cast<std::ptrdiff_t>(requests.size() / 2);
  std::ranges::nth_element(requests, middle);
  all.median = *middle;
  return all;
}

// The promise: 1 % of 10^4 at most.
TEST(Rollout, AGoodVersionIsSeldomTakenBack) {
  const int runs = is_full() ? 10'000 : 400;
  const uint64_t seed = seed_of_run();
  const Runs alike = play_all({.plan = strict()}, runs, seed);
  std::printf("A/A: %d of %d taken back\n", alike.taken_back, runs);
  EXPECT_LE(alike.taken_back, is_full() ? runs / 100 : 9);
  EXPECT_EQ(alike.promoted + alike.taken_back, runs);
}

// What fails for both is nobody's fault, however much and whenever it does.
TEST(Rollout, ABadHourOfBothArmsIsNotHeldAgainstOne) {
  const int runs = is_full() ? 2000 : 100;
  const Runs alike = play_all({.plan = strict(), .failing_in_bad_hours = 0.5}, runs, seed_of_run());
  std::printf("A/A with bad hours: %d of %d taken back\n", alike.taken_back, runs);
  EXPECT_LE(alike.taken_back, is_full() ? runs / 100 : 5);
}

// Of 5 % errors beside 1 %: by every step's share, with all tests at once.
TEST(Rollout, FivePerCentErrorsAreFoundWithinSomeHundredRequests) {
  const int runs = is_full() ? 2000 : 100;
  for (const double share : {0.01, 0.05, 0.25}) {
    RolloutPlan plan = strict();
    plan.shares = {share, 1};
    plan.requests_min = {100'000};
    plan.seconds_min = {0};
    Runs bad = play_all({.plan = plan, .candidate = {.failing = 0.05}}, runs, seed_of_run());
    std::printf("at %g %%: median %lld requests of the candidate\n", share * 100,
                static_cast<long long>(bad.median));
    EXPECT_LE(bad.median, 800) << share;
    EXPECT_GE(bad.taken_back, runs * 98 / 100) << share;
    EXPECT_GE(bad.reasons["errors"], runs * 95 / 100) << share;
  }
}

TEST(Rollout, EachKindOfBadnessIsFoundByItsReason) {
  const int runs = is_full() ? 1000 : 40;
  RolloutPlan plan{.name = "v2", .arm = "new"};
  plan.requests_min = {400, 400, 400};
  plan.seconds_min = {0, 0, 0};
  const std::pair<Behaviour, const char*> all[] = {{{.failing = 0.1}, "errors"},
                                                   {{.ttft_s = 0.3 * 1.6}, "ttft"},
                                                   {{.tokens = 240}, "longer"},
                                                   {{.tokens = 60}, "shorter"}};
  for (const auto& [candidate, reason] : all) {
    Runs bad = play_all({.plan = plan, .candidate = candidate}, runs, seed_of_run());
    std::printf("%s: median %lld requests\n", reason, static_cast<long long>(bad.median));
    EXPECT_GE(bad.reasons[reason], runs * 95 / 100) << reason;
  }
}

TEST(Rollout, ABadVersionNeverTakesMoreThanItsFirstSteps) {
  RolloutPlan plan{.name = "v2", .arm = "new"};
  const Play of{.plan = plan, .candidate = {.failing = 0.5}};
  for (uint64_t i = 0; i < 20; ++i) EXPECT_LE(play(of, i).share_most, 0.01);
}

Rollout small() {
  RolloutPlan plan{.name = "v2", .arm = "new"};
  plan.shares = {0.1, 0.5, 1};
  plan.requests_min = {2, 2};
  plan.seconds_min = {10, 20};
  return {plan, RankTest::Grid::kKept};
}

RolloutOutcome good(ArmSide side, size_t step) {
  return {.side = side, .step = step, .failed = false, .ttft_s = 0.5, .output_tokens = 10};
}

TEST(Rollout, AStepTakesBothItsGates) {
  Rollout rollout = small();
  EXPECT_EQ(rollout.share(true), 0.1);
  rollout.pass(30, true);
  EXPECT_EQ(rollout.share(true), 0.1) << "no request yet";
  rollout.note(good(ArmSide::kCandidate, 0));
  rollout.note(good(ArmSide::kCandidate, 0));
  rollout.note(good(ArmSide::kOthers, 0));
  rollout.pass(0, true);
  EXPECT_EQ(rollout.share(true), 0.5);
  rollout.note(good(ArmSide::kCandidate, 0));
  rollout.note(good(ArmSide::kCandidate, 0));
  EXPECT_EQ(rollout.state().step_requests, 0) << "they were drawn in the step before";
  rollout.note(good(ArmSide::kCandidate, 1));
  rollout.note(good(ArmSide::kCandidate, 1));
  rollout.pass(19, true);
  EXPECT_EQ(rollout.share(true), 0.5);
  rollout.pass(1, true);
  EXPECT_EQ(rollout.share(true), 1);
  EXPECT_EQ(rollout.state().phase, RolloutPhase::kPromoted);
  EXPECT_EQ(rollout.state().reason, "gates");
}

TEST(Rollout, WithoutWorkersItHasNoShareAndNoTimePasses) {
  Rollout rollout = small();
  EXPECT_EQ(rollout.share(false), 0);
  rollout.pass(100, false);
  EXPECT_EQ(rollout.state().step_s, 0);
  EXPECT_EQ(rollout.share(true), 0.1);
}

TEST(Rollout, AnOperatorPausesResumesPromotesAndTakesBack) {
  Rollout rollout = small();
  EXPECT_TRUE(rollout.command(RolloutCommand::kPause).ok());
  for (int i = 0; i < 3; ++i) rollout.note(good(ArmSide::kCandidate, 0));
  rollout.pass(100, true);
  EXPECT_EQ(rollout.share(true), 0.1);
  EXPECT_TRUE(rollout.command(RolloutCommand::kResume).ok());
  rollout.pass(0, true);
  EXPECT_EQ(rollout.share(true), 0.5);
  EXPECT_TRUE(rollout.command(RolloutCommand::kPromote).ok());
  EXPECT_EQ(rollout.state().phase, RolloutPhase::kPromoted);
  EXPECT_FALSE(rollout.command(RolloutCommand::kPause).ok());
  EXPECT_TRUE(rollout.command(RolloutCommand::kRollback).ok());
  EXPECT_EQ(rollout.share(true), 0);
  EXPECT_EQ(rollout.state().reason, "operator");
  for (const RolloutCommand command : {RolloutCommand::kPause, RolloutCommand::kResume,
                                       RolloutCommand::kRollback, RolloutCommand::kPromote}) {
    EXPECT_FALSE(rollout.command(command).ok()) << "what was taken back stays so";
  }
}

TEST(Rollout, APausedOneIsTakenBackAllTheSame) {
  Rollout rollout = small();
  EXPECT_TRUE(rollout.command(RolloutCommand::kPause).ok());
  for (int i = 0; i < 2000; ++i) {
    rollout.note(good(ArmSide::kOthers, 0));
    if (i % 9 != 0) continue;
    rollout.note({.side = ArmSide::kCandidate, .step = 0, .failed = true});
  }
  EXPECT_EQ(rollout.state().phase, RolloutPhase::kTakenBack);
  EXPECT_EQ(rollout.state().reason, "errors");
  EXPECT_NE(rollout.state().why.find("requests failed (100 %"), std::string::npos)
      << rollout.state().why;
}

TEST(Rollout, GoesOnFromWhatItWas) {
  Rollout rollout = small();
  for (int i = 0; i < 200; ++i) {
    rollout.note(good(i % 5 == 0 ? ArmSide::kCandidate : ArmSide::kOthers, 0));
  }
  rollout.pass(11, true);
  ASSERT_EQ(rollout.state().step, 1u);
  Rollout again = small();
  again.restore(rollout.state(), rollout.evidence());
  EXPECT_EQ(again.state(), rollout.state());
  EXPECT_EQ(again.evidence(), rollout.evidence());
  // Of a plan with fewer steps it is at the last one before all.
  RolloutPlan plan = small().plan();
  plan.shares = {0.2, 1};
  plan.requests_min = {2};
  plan.seconds_min = {10};
  Rollout shorter(plan, RankTest::Grid::kKept);
  shorter.restore(rollout.state(), rollout.evidence());
  EXPECT_EQ(shorter.share(true), 0.2);
}

// Two gateways that each see half decide on the whole, and the strictest of them counts.
TEST(Rollout, WhatSeveralGatewaysHaveSeenAddsUp) {
  const auto feed = [](Rollout& rollout, int from, int to) {
    for (int i = from; i < to; ++i) {
      rollout.note({.side = i % 10 == 0 ? ArmSide::kCandidate : ArmSide::kOthers,
                    .step = 0,
                    .failed = i % 70 == 0 || i % 331 == 0});
    }
  };
  Rollout one = small();
  Rollout other = small();
  // As much as none of them takes back for alone.
  int end = 0;
  while (other.tests().front().log_evidence < 0.7 * other.tests().front().log_needed) {
    feed(one, end, end + 70);
    feed(other, end, end + 70);
    end += 70;
    ASSERT_LT(end, 100'000);
  }
  ASSERT_EQ(one.state().phase, RolloutPhase::kRunning);
  one.set_others(
      {.evidence = other.evidence(), .step_requests = other.state().step_requests, .step_min = 0});
  EXPECT_EQ(one.state().phase, RolloutPhase::kTakenBack);
  EXPECT_EQ(one.report().evidence.errors.requests.candidate,
            2 * other.evidence().errors.requests.candidate);
  Rollout third = small();
  third.set_others({.step_min = 0, .taken_back = one.state()});
  EXPECT_EQ(third.share(true), 0);
  EXPECT_EQ(third.state().reason, "errors");
  // One that is behind holds the share back, and gates count for all.
  Rollout ahead = small();
  ahead.note(good(ArmSide::kCandidate, 0));
  ahead.set_others({.step_requests = 1, .step_min = 0});
  ahead.pass(11, true);
  EXPECT_EQ(ahead.state().step, 1u);
  EXPECT_EQ(ahead.share(true), 0.1);
  ahead.set_others({.step_min = 1});
  EXPECT_EQ(ahead.share(true), 0.5);
}

}  // namespace
}  // namespace pelton::gateway
