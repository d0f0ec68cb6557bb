// What a ceiling does to those that run: the policy's, a schedule's, what GPUs and price allow.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "autoscaler/pool_scaler.h"
#include "autoscaler/test_pool.h"

namespace pelton::autoscaler {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int64_t kSecond = 1'000'000'000;

PoolPolicy policy(int most) {
  return {.replicas_min = 1, .replicas_max = most};
}

// What is late still runs, and takes its place until the launcher says that it is gone.
TEST(PoolCeilingTest, ALateStartIsNeverReplacedBeyondTheCeiling) {
  for (const int most : {1, 3}) {
    PoolScaler scaler(policy(most));
    PoolFacts facts{.service_s_assumed = 1, .start_s_assumed = 0.3};
    facts.gateways = {{.gateway = "g", .incarnation = 1}};
    int running = 0;
    for (int64_t second = 1; second <= 300; ++second) {
      facts.gateways[0].sequence = static_cast<uint64_t>(second);
      const PoolDecision decision = scaler.decide(facts, second * kSecond);
      for (int i = 0; i < decision.start; ++i) {
        facts.replicas.push_back({.id = std::to_string(++running),
                                  .phase = ReplicaPhase::kStarting,
                                  .ordered_ns = second * kSecond});
      }
      ASSERT_LE(running, most) << second;
    }
    EXPECT_EQ(running, most) << "up to the ceiling they are replaced";
    // One that is gone makes room.
    facts.replicas.erase(facts.replicas.begin());
    facts.gateways[0].sequence = 301;
    EXPECT_EQ(scaler.decide(facts, 301 * kSecond).start, 1);
  }
}

// Twelve replicas are busy when four become the most there may be, young ones among them.
TEST(PoolCeilingTest, WhatIsBeyondACeilingThatFallsGoesAtOnce) {
  PoolPolicy asked = policy(12);
  asked.schedules = {{.from_minute = 60, .replicas_max = 4}};
  TestPool pool({.policy = asked, .start_s = 5});
  pool.seconds(300, 24);
  PoolFacts facts = pool.facts();
  ASSERT_EQ(facts.replicas.size(), 12u);
  facts.replicas[0].ready_ns = pool.now_s() * kSecond;
  facts.unix_s = 3600;
  const int64_t now_ns = (pool.now_s() + 1) * kSecond;
  const PoolDecision decision = pool.scaler().decide(facts, now_ns);
  EXPECT_EQ(decision.desired, 4);
  EXPECT_EQ(decision.drain.size(), 8u);
  EXPECT_EQ(decision.reason, Reason::kSchedule);
  // The number does not leap about while they drain.
  for (ReplicaFacts& one : facts.replicas) {
    const bool drains = std::ranges::find(decision.drain, one.id) != decision.drain.end();
    if (drains) one.phase = ReplicaPhase::kDraining;
  }
  for (int second = 2; second < 20; ++second) {
    const PoolDecision later = pool.scaler().decide(facts, (pool.now_s() + second) * kSecond);
    ASSERT_EQ(later.desired, 4);
    ASSERT_THAT(later.drain, IsEmpty());
    ASSERT_EQ(later.start, 0);
  }
}

// Those that start serve nobody: the one that does is not drained for them.
TEST(PoolCeilingTest, ACeilingThatFallsLeavesWhoServes) {
  PoolScaler scaler(policy(1));
  PoolFacts facts;
  facts.gateways = {{.gateway = "g", .incarnation = 1, .sequence = 1, .at_ns = 100 * kSecond}};
  facts.replicas = {{.id = "a", .phase = ReplicaPhase::kReady, .ready_ns = kSecond, .running = 1},
                    {.id = "b", .phase = ReplicaPhase::kStarting, .ordered_ns = 99 * kSecond},
                    {.id = "c", .phase = ReplicaPhase::kStarting, .ordered_ns = 99 * kSecond}};
  EXPECT_THAT(scaler.decide(facts, 100 * kSecond).drain, IsEmpty());
  facts.replicas[1].phase = ReplicaPhase::kReady;
  facts.replicas[1].ready_ns = 101 * kSecond;
  EXPECT_THAT(scaler.decide(facts, 101 * kSecond).drain, ElementsAre("b"));
}

TEST(PoolCeilingTest, NoMoreThanGpusAndPriceAllow) {
  for (const bool by_price : {false, true}) {
    PoolPolicy asked = policy(64);
    asked.gpus_each = 8;
    asked.gpus_max = by_price ? 800 : 47;
    asked.price_each = 10;
    asked.price_max = by_price ? 45 : 4'500;
    TestPool pool({.policy = asked, .start_s = 5});
    pool.seconds(300, 40);
    EXPECT_EQ(pool.replicas(), by_price ? 4 : 5);
    EXPECT_EQ(pool.decision().reason, by_price ? Reason::kPrice : Reason::kGpus);
  }
}

// A moment ago a second one was needed, then nobody asks any more and the ceiling falls to one: it
// goes at once, and the last one once it has been announced.
TEST(PoolCeilingTest, ACeilingThatFallsOnAnIdlePoolDoesNotTakeTheLastOne) {
  PoolPolicy asked = policy(3);
  asked.replicas_min = 0;
  asked.idle_to_zero_s = 1;
  asked.schedules = {{.from_minute = 60, .replicas_max = 1}};
  PoolScaler scaler(asked);
  PoolFacts facts;
  facts.gateways = {{.gateway = "g", .incarnation = 1, .sequence = 1, .at_ns = 10 * kSecond}};
  facts.replicas = {{.id = "a", .phase = ReplicaPhase::kReady, .ready_ns = kSecond},
                    {.id = "b", .phase = ReplicaPhase::kReady, .ready_ns = 9 * kSecond},
                    {.id = "c", .phase = ReplicaPhase::kReady, .ready_ns = 9 * kSecond}};
  scaler.decide(facts, 10 * kSecond);
  facts.unix_s = 3600;
  const auto at = [&](int64_t second) {
    ++facts.gateways[0].sequence;
    facts.gateways[0].at_ns = second * kSecond;
    const PoolDecision decision = scaler.decide(facts, second * kSecond);
    facts.gateways[0].holds_for = decision.retirement;
    for (ReplicaFacts& one : facts.replicas) {
      const bool drains = std::ranges::find(decision.drain, one.id) != decision.drain.end();
      if (drains) one.phase = ReplicaPhase::kDraining;
    }
    return decision;
  };
  const PoolDecision fallen = at(100);
  EXPECT_EQ(fallen.desired, 1);
  EXPECT_EQ(fallen.drain.size(), 2u);
  EXPECT_EQ(fallen.retirement, 0u);
  const PoolDecision announced = at(102);
  EXPECT_EQ(announced.desired, 1);
  EXPECT_NE(announced.retirement, 0u);
  EXPECT_THAT(announced.drain, IsEmpty());
  const PoolDecision over = at(104);
  EXPECT_EQ(over.desired, 0);
  EXPECT_EQ(over.drain.size(), 1u);
}

// Other pools take all GPUs: the last one goes though it is asked, once gateways hold what comes.
TEST(PoolCeilingTest, WhereOthersTakeAllGpusTheLastOneIsRetiredAmidItsRequests) {
  PoolPolicy asked = policy(3);
  asked.replicas_min = 0;
  PoolScaler scaler(asked);
  PoolFacts facts;
  facts.gateways = {{.gateway = "g", .incarnation = 1, .sequence = 1, .at_ns = kSecond}};
  scaler.decide(facts, kSecond);
  facts.replicas = {{.id = "a", .phase = ReplicaPhase::kReady, .ready_ns = kSecond, .running = 1}};
  const auto at = [&](int64_t second) {
    ++facts.gateways[0].sequence;
    ++facts.gateways[0].requests;
    facts.gateways[0].at_ns = second * kSecond;
    facts.gateways[0].in_service = 1;
    return scaler.decide(facts, second * kSecond);
  };
  EXPECT_EQ(at(100).desired, 1);
  facts.most = 0;
  const PoolDecision announced = at(102);
  EXPECT_EQ(announced.desired, 1);
  EXPECT_NE(announced.retirement, 0u);
  EXPECT_EQ(announced.reason, Reason::kGpus);
  facts.gateways[0].holds_for = announced.retirement;
  facts.gateways[0].held = 5;
  const PoolDecision gone = at(104);
  EXPECT_EQ(gone.desired, 0);
  EXPECT_THAT(gone.drain, ElementsAre("a"));
  facts.replicas.clear();
  EXPECT_EQ(at(106).start, 0) << "what is held waits for GPUs";
  facts.most = 1;
  EXPECT_EQ(at(108).start, 1);
}

}  // namespace
}  // namespace pelton::autoscaler
