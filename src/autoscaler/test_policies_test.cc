// Policies of others by their published worked examples, the clairvoyant optimum by enumeration,
// and this rule beside both.
#include "autoscaler/test_policies.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "autoscaler/knative_policy.h"
#include "autoscaler/test_clairvoyant.h"
#include "autoscaler/test_loads.h"

namespace pelton::autoscaler {
namespace {

using testing::ElementsAre;

// docs.baseten.co, autoscaling: target 10, utilization 70 %, 25 requests in flight.
TEST(ReferencePolicyExample, BasetenTargetTenAtSeventyPercentAndTwentyFiveInFlightAreFour) {
  HalvingPolicy policy({.target = 10, .utilization = 0.7});
  EXPECT_EQ(policy.needed(25), 4);
  EXPECT_EQ(policy.desired({.ready = 1, .in_use = 10, .held = 15}), 4);
  // The shipped rule with the same two knobs and as many in service.
  PoolPolicy asked{.replicas_min = 1, .replicas_max = 16, .concurrency_target = 10};
  asked.target_utilization = 0.7;
  TestPool pool({.policy = asked, .slots = 10, .service_s = 1});
  pool.give(4);
  pool.seconds(1'500, 25);
  EXPECT_EQ(pool.ready(), 4);
}

TEST(ReferencePolicyExample, BasetenHalvesTheSurplusInEachDelay) {
  HalvingPolicy policy({.target = 10, .utilization = 1, .window_s = 1, .delay_s = 900});
  std::vector<int> seen = {16};
  for (int64_t second = 0; second < 4'600; ++second) {
    const int asked = policy.desired({.ready = seen.back(), .in_use = 10, .now_s = second});
    if (asked != seen.back()) seen.push_back(asked);
  }
  EXPECT_THAT(seen, ElementsAre(16, 8, 4, 2, 1));
}

// kubernetes.io, Horizontal Pod Autoscaling, "Algorithm details": 200m where 100m are desired
// doubles the pods, 50m halves them; within 10 % nothing is done.
TEST(ReferencePolicyExample, HpaDoublesAndHalves) {
  const HpaPolicy policy({.target = 100});
  EXPECT_EQ(policy.recommended({.ready = 3, .in_use = 600}), 6);
  EXPECT_EQ(policy.recommended({.ready = 4, .in_use = 200}), 2);
  EXPECT_EQ(policy.recommended({.ready = 10, .in_use = 1'090}), 10);
  EXPECT_EQ(policy.recommended({.ready = 10, .in_use = 1'110}), 12);
  EXPECT_EQ(policy.recommended({.ready = 10, .in_use = 910}), 10);
}

// The same page: pods that are not ready yet count as using nothing, upwards.
TEST(ReferencePolicyExample, HpaCountsPendingPodsAsIdle) {
  const HpaPolicy policy({.target = 100});
  // 400 at two pods ask for four; with the two that start the ratio is 1: nothing.
  EXPECT_EQ(policy.recommended({.ready = 2, .pending = 2, .in_use = 400}), 4);
  EXPECT_EQ(policy.recommended({.ready = 2, .pending = 1, .in_use = 400}), 4);
  // A ratio that they turn round does nothing either.
  EXPECT_EQ(policy.recommended({.ready = 2, .pending = 6, .in_use = 400}), 8);
  EXPECT_EQ(policy.recommended({.ready = 4, .pending = 4, .in_use = 100}), 1);
}

// The same page, "Scaling policies": of 80 pods to 10 with 10 % or 4 pods in each minute 8 go, then
// 10 % of 72, rounded up, again 8; below 40 pods 4 each.
TEST(ReferencePolicyExample, HpaGoesDownByTheLargerOfItsPolicies) {
  HpaPolicy policy({.target = 100,
                    .period_s = 60,
                    .stabilization_s = 0,
                    .down_share = 0.1,
                    .down_pods = 4,
                    .least = 10});
  std::vector<int> seen = {80};
  for (int64_t second = 0; seen.back() > 10 && second < 2'000; second += 60) {
    seen.push_back(policy.desired({.ready = seen.back(), .in_use = 1'000, .now_s = second}));
  }
  ASSERT_GE(seen.size(), 4u);
  EXPECT_EQ(seen[1], 72);
  EXPECT_EQ(seen[2], 64);
  EXPECT_THAT(std::vector<int>(seen.end() - 3, seen.end()), ElementsAre(16, 12, 10));
}

TEST(ReferencePolicyExample, HpaGoesUpByFourOrTwiceAsMany) {
  HpaPolicy policy({.target = 1});
  EXPECT_EQ(policy.desired({.ready = 1, .in_use = 100, .now_s = 0}), 5);
  EXPECT_EQ(policy.desired({.ready = 5, .in_use = 100, .now_s = 14}), 5) << "not yet";
  EXPECT_EQ(policy.desired({.ready = 5, .in_use = 100, .now_s = 15}), 10);
  EXPECT_EQ(policy.desired({.ready = 10, .in_use = 2, .now_s = 200}), 10)
      << "the greatest of five minutes";
  EXPECT_EQ(policy.desired({.ready = 10, .in_use = 2, .now_s = 501}), 2);
}

TEST(ReferencePolicyExample, OneStepATickAndNoneWhileOneIsPending) {
  OneStepPolicy policy({});
  EXPECT_EQ(policy.desired({.ready = 2, .in_use = 16, .held = 100, .slots = 8, .now_s = 0}), 3);
  EXPECT_EQ(policy.desired(
                {.ready = 2, .pending = 1, .in_use = 16, .held = 900, .slots = 8, .now_s = 30}),
            3);
  EXPECT_EQ(policy.desired({.ready = 3, .in_use = 12, .slots = 8, .now_s = 60}), 3)
      << "12 of 16 slots are more than 0.7";
  EXPECT_EQ(policy.desired({.ready = 3, .in_use = 11, .slots = 8, .now_s = 90}), 2);
}

// Each sequence of counts, played in the pool of the tests, against the dynamic program.
TestPool::Options scheduled(const std::vector<int>& counts, int64_t start_s) {
  TestPool::Options options{.policy = {.replicas_max = 8}, .slots = 2, .service_s = 1};
  options.start_s = start_s;
  options.late_s = 1;
  options.decide = [counts, start_s](const PoolFacts& facts, int64_t now_ns) {
    const auto at = [&](int64_t second) {
      return counts[static_cast<size_t>(
          std::clamp<int64_t>(second - 1, 0, std::ssize(counts) - 1))];
    };
    const int64_t now_s = now_ns / TestPool::kSecond;
    PoolDecision decision;
    decision.start = std::max(at(now_s + start_s) - at(now_s + start_s - 1), 0);
    int surplus = at(now_s) - at(now_s + 1);
    for (const ReplicaFacts& one : facts.replicas) {
      if (one.phase == ReplicaPhase::kReady && surplus-- > 0) decision.drain.push_back(one.id);
    }
    return decision;
  };
  return options;
}

TEST(Clairvoyant, IsTheBestOfAllSequences) {
  constexpr int kSeconds = 8;
  constexpr int kMost = 3;
  constexpr int64_t kStart_s = 2;
  double gap = 0;  // of the bound by prices
  double sum = 0;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    std::vector<int> requests;
    for (uint64_t i = 0; i < kSeconds; ++i)
      requests.push_back(static_cast<int>(base::random_bits(seed, i) % 7));
    std::map<int64_t, int64_t> best;  // replica-seconds by late requests
    // Counts of the seconds 2 to 8; a second below 3 has no more than there were.
    for (int code = 0; code < 1 << (2 * (kSeconds - 1)); ++code) {
      std::vector<int> counts = {1};
      for (int i = 0; i + 1 < kSeconds; ++i) counts.push_back((code >> (2 * i)) & kMost);
      if (counts[1] > 1) continue;
      const Played played = play(scheduled(counts, kStart_s), 1, requests);
      const auto cost = static_cast<int64_t>(std::lround(played.replica_s));
      const auto [at, is_new] = best.emplace(played.late, cost);
      if (!is_new) at->second = std::min(at->second, cost);
    }
    const Clairvoyant clairvoyant(
        {.slots = 2, .start_s = kStart_s, .late_s = 1, .least = 0, .most = kMost}, requests);
    int64_t fewest = std::numeric_limits<int64_t>::max();
    for (int64_t late = 0; late <= 20; ++late) {
      if (best.contains(late)) fewest = std::min(fewest, best[late]);
      const auto found = clairvoyant.fewest(late);
      EXPECT_EQ(found.value_or(std::numeric_limits<int64_t>::max()), fewest)
          << "seed " << seed << ", late " << late;
      if (!found) continue;
      EXPECT_LE(clairvoyant.fewest_at_least(late), static_cast<double>(*found) + 1e-3);
      gap += static_cast<double>(*found) - clairvoyant.fewest_at_least(late);
      sum += static_cast<double>(*found);
    }
  }
  EXPECT_LT(gap, 0.15 * sum);
}

TestPool::Options plant(int64_t start_s) {
  TestPool::Options options{
      .policy = {.replicas_min = 1, .replicas_max = 40}, .slots = kTestSlots, .service_s = 1};
  options.start_s = start_s;
  return options;
}

// Loads of the tests' own, five minutes of each: no policy beats who knows the load.
TEST(Clairvoyant, NoneIsBetter) {
  constexpr int64_t kStart_s = 5;
  constexpr int64_t kFew = 60;  // late requests: beyond that this takes long
  int compared = 0;
  for (const int load : {1, 2, 4}) {
    const std::vector<int> requests = test_load(load, 300, 3);
    TestPool::Options options = plant(kStart_s);
    for (int policy = 0; policy < 3; ++policy) {
      if (policy == 1) options.decide = decide_by<HpaPolicy>({.target = 0.7 * kTestSlots});
      if (policy == 2)
        options.decide = decide_by<HalvingPolicy>({.target = kTestSlots, .least = 1});
      const Played played = play(options, 12, requests);
      if (played.late > kFew) continue;
      const auto fewest =
          Clairvoyant({.slots = kTestSlots, .start_s = kStart_s, .most = 14, .at_first = 12},
                      requests)
              .fewest(played.late);
      ASSERT_TRUE(fewest);
      EXPECT_LE(static_cast<double>(*fewest), played.replica_s + 1e-6)
          << kTestLoads[load] << ", policy " << policy;
      ++compared;
    }
  }
  EXPECT_GE(compared, 3);
}

// One replica a tick is no answer to a load that jumps, and a ratio of what there is none to starts
// that take minutes.
TEST(ReferencePolicies, WhatTheyMakeLateInAStep) {
  for (const int64_t start_s : {5, 30, 300}) {
    const std::vector<int> requests = test_load(0, 3'600, 1);
    TestPool::Options options = plant(start_s);
    const Played own = play(options, 2, requests);
    options.decide = decide_by<OneStepPolicy>({});
    const Played one_step = play(options, 2, requests);
    options.decide = decide_by<HpaPolicy>({.target = 0.7 * kTestSlots, .most = 40});
    const Played hpa = play(options, 2, requests);
    EXPECT_LT(own.late_share() + 0.02, one_step.late_share()) << start_s;
    EXPECT_LE(own.late_share(), hpa.late_share() + 0.01) << start_s;
    // Where starts take minutes, whoever counts what has piled up as flow has as much too late; the
    // HPA, whose pending pods hold it back, then costs less.
    if (start_s < 300) {
      EXPECT_LT(own.replica_s, 0.85 * hpa.replica_s) << start_s;
    }
  }
}

}  // namespace
}  // namespace pelton::autoscaler
