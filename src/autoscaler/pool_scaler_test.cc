#include "autoscaler/pool_scaler.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "autoscaler/test_pool.h"
#include "base/random.h"

namespace pelton::autoscaler {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kSecond = 1'000'000'000;

PoolPolicy policy(int most) {
  return {.replicas_min = 1, .replicas_max = most};
}

TEST(PoolScalerExample, FlowIsRateTimesServiceOverTarget) {
  PoolPolicy asked = policy(64);
  asked.target_utilization = 0.7;
  TestPool pool({.policy = asked, .start_s = 5});
  pool.give(2);
  pool.seconds(400, 2);  // 16 in service / (16 x 70 %) = 1.43
  EXPECT_EQ(pool.ready(), 2);
  EXPECT_NEAR(pool.decision().terms.flow, 16 / 11.2, 0.05);
  EXPECT_THAT(pool.decision().text(), HasSubstr("2 replicas: "));
}

TEST(PoolScalerExample, SmallPoolsKeepALargerShareFree) {
  TestPool one({.policy = policy(64), .start_s = 5});
  one.give(1);
  one.seconds(400, 1);  // 8 + 1.3 sqrt(8) = 11.7 slots of 16
  EXPECT_EQ(one.decision().terms.by_flow, 1);
  TestPool many({.policy = policy(64), .start_s = 5});
  many.give(21);
  many.seconds(400, 40);  // 320 + 1.3 sqrt(320) = 343 slots: 21.5
  EXPECT_EQ(many.decision().terms.by_flow, 22);
}

// Ratio rules cascade while replicas start: 2, 4, 8, 16 on a load that does not change.
TEST(PoolScalerTest, ReplicasThatStartDoNotMakeTheNumberGrow) {
  PoolPolicy asked = policy(64);
  asked.backlog_s = 300;
  TestPool pool({.policy = asked, .start_s = 300});
  pool.give(2);
  pool.seconds(700, 2);
  const int before = pool.ready();
  ASSERT_LE(before, 3);
  pool.seconds(60, 8);
  // 64 in service are 75 slots, 5 replicas; at most 1 200 requests will have piled up: 2 in 300 s.
  // The step looks like a climb for a while: as many again, by the forecast.
  ASSERT_GE(pool.coming(), 1);
  EXPECT_LE(before + pool.coming(), 8);
  pool.seconds(230, 8);
  EXPECT_LE(before + pool.coming(), 14);
  pool.seconds(400, 8);
  EXPECT_EQ(pool.held(), 0);
}

TEST(PoolScalerExample, WhatWillWaitWhenAReplicaIsReady) {
  TestPool pool({.policy = policy(64), .start_s = 300});
  pool.second(2);
  // 2 a second for 300 s, within 75 s, at 2 a second each: 4 replicas, and the flow's 1.3.
  EXPECT_NEAR(pool.decision().terms.backlog_ahead, 2.0 / 15 * 300, 50);
  pool.seconds(20, 2);
  EXPECT_LE(pool.coming(), 6);
  const int ordered = pool.coming();
  pool.seconds(278, 2);
  EXPECT_EQ(pool.coming(), ordered);
}

TEST(PoolScalerTest, WhatHasPiledUpIsWorkedOffWithinBacklogSeconds) {
  PoolPolicy patient = policy(64);
  patient.backlog_s = 300;
  PoolPolicy eager = policy(64);
  eager.backlog_s = 15;
  int most[2] = {};
  for (const bool is_eager : {false, true}) {
    TestPool pool({.policy = is_eager ? eager : patient, .start_s = 30});
    pool.seconds(300, 2);
    for (int i = 0; i < 300; ++i)
      most[is_eager] = std::max(most[is_eager], pool.second(20).desired);
  }
  EXPECT_LT(most[0], most[1]);
}

TEST(PoolScalerTest, DownInStepsAfterTheDelay) {
  PoolPolicy asked = policy(64);
  asked.scale_down_delay_s = 100;
  TestPool pool({.policy = asked, .start_s = 5});
  pool.give(13);
  pool.seconds(2000, 20);
  const int64_t late = pool.late();
  ASSERT_GE(pool.ready(), 12);
  pool.seconds(100, 2);
  EXPECT_EQ(pool.ready(), 12) << "within the delay as many as the load before needs";
  std::vector<int> seen = {12};
  for (int i = 0; i < 900; ++i) {
    pool.second(2);
    if (pool.ready() != seen.back()) seen.push_back(pool.ready());
  }
  ASSERT_GE(seen.size(), 3u);
  // Half of the surplus in each delay.
  EXPECT_GE(seen[1], 6);
  EXPECT_LE(seen.back(), 3);
  EXPECT_EQ(pool.late(), late) << "nobody waited";
}

TEST(PoolScalerTest, NoneGoesThatTheOthersCouldNotDoWithout) {
  PoolPolicy asked = policy(8);
  asked.target_utilization = 1;
  asked.scale_down_delay_s = 0;
  PoolScaler scaler(asked);
  PoolFacts facts{.service_s_assumed = 1, .start_s_assumed = 5};
  for (int i = 0; i < 4; ++i) {
    facts.replicas.push_back({.id = "r" + std::to_string(i),
                              .phase = ReplicaPhase::kReady,
                              .slots = 10,
                              .running = 2,
                              .kv_used = 0.75});
  }
  PoolDecision decision;
  for (int64_t second = 1; second < 200; ++second) {
    facts.gateways = {{.gateway = "g",
                       .incarnation = 1,
                       .sequence = static_cast<uint64_t>(second),
                       .requests = second,
                       .finished = second,
                       .in_service_s = static_cast<double>(second),
                       .in_service = 8,
                       .at_ns = second * kSecond}};
    decision = scaler.decide(facts, second * kSecond);
    EXPECT_THAT(decision.drain, IsEmpty()) << second;
  }
  EXPECT_EQ(decision.reason, Reason::kSurvivors);  // the KV cache of three would be full
  for (ReplicaFacts& one : facts.replicas) one.kv_used = 0.2;
  facts.gateways[0].sequence = 1000;
  decision = scaler.decide(facts, 300 * kSecond);
  EXPECT_FALSE(decision.drain.empty());
}

TEST(PoolScalerTest, TheLastOneGoesWhenAllGatewaysHold) {
  PoolPolicy asked{.replicas_min = 0, .replicas_max = 4, .idle_to_zero_s = 60};
  asked.scale_down_delay_s = 0;
  PoolScaler scaler(asked);
  PoolFacts facts{.service_s_assumed = 1, .start_s_assumed = 5};
  facts.replicas = {{.id = "r", .phase = ReplicaPhase::kReady, .slots = 4}};
  facts.gateways = {{.gateway = "a", .incarnation = 1}, {.gateway = "b", .incarnation = 1}};
  const auto at = [&](int64_t second) {
    for (GatewayReport& one : facts.gateways) {
      one.sequence = static_cast<uint64_t>(second);
      one.at_ns = second * kSecond;
    }
    return scaler.decide(facts, second * kSecond);
  };
  at(1);
  facts.gateways[0].requests = facts.gateways[0].finished = 1;
  EXPECT_EQ(at(2).retirement, 0u);
  PoolDecision decision;
  for (int64_t second = 3; second < 62; ++second) {
    decision = at(second);
    ASSERT_EQ(decision.retirement, 0u) << second;
    ASSERT_EQ(decision.desired, 1) << second;
  }
  decision = at(62);
  const uint64_t retirement = decision.retirement;
  ASSERT_NE(retirement, 0u);
  EXPECT_THAT(decision.drain, IsEmpty());

  facts.gateways[0].holds_for = retirement;
  EXPECT_THAT(at(63).drain, IsEmpty()) << "b has not said so";
  // A request comes meanwhile: all is as before.
  facts.gateways[1].requests = 1;
  facts.gateways[1].held = 1;
  decision = at(64);
  EXPECT_EQ(decision.retirement, 0u);
  EXPECT_EQ(decision.desired, 1);
  EXPECT_THAT(decision.drain, IsEmpty());
  facts.gateways[1].held = 0;
  facts.gateways[1].finished = 1;
  for (int64_t second = 65; second < 124; ++second) ASSERT_EQ(at(second).retirement, 0u);
  decision = at(124);
  ASSERT_NE(decision.retirement, 0u);
  ASSERT_NE(decision.retirement, retirement) << "an old promise does not count";
  for (GatewayReport& one : facts.gateways) one.holds_for = retirement;
  EXPECT_THAT(at(125).drain, IsEmpty());
  for (GatewayReport& one : facts.gateways) one.holds_for = decision.retirement;
  decision = at(126);
  EXPECT_EQ(decision.desired, 0);
  EXPECT_EQ(decision.reason, Reason::kIdle);
  EXPECT_THAT(decision.drain, ElementsAre("r"));
}

TEST(PoolScalerTest, OneHeldRequestWakesAnEmptyPool) {
  PoolPolicy asked{.replicas_min = 0, .replicas_max = 4, .concurrency_target = 10};
  TestPool pool({.policy = asked, .start_s = 5});
  pool.seconds(100, 0);
  EXPECT_EQ(pool.replicas(), 0);
  pool.second(1);
  EXPECT_EQ(pool.coming(), 1);
  pool.seconds(60, 0.2);
  EXPECT_EQ(pool.started(), 1);
  EXPECT_EQ(pool.held(), 0);
}

TEST(PoolScalerTest, ManyHeldRequestsStartAsManyAsWorkThemOff) {
  PoolPolicy asked{.replicas_min = 0, .replicas_max = 100};
  asked.concurrency_target = 16;
  TestPool pool({.policy = asked, .start_s = 30});
  pool.seconds(5, 0);
  pool.second(600);  // 600 x 8 / (16 x 30) = 10
  EXPECT_EQ(pool.coming(), 10);
}

TEST(PoolScalerTest, AStartThatNeverComesIsReplaced) {
  PoolScaler scaler(policy(4));
  PoolFacts facts{.service_s_assumed = 1, .start_s_assumed = 30};
  facts.gateways = {{.gateway = "g", .incarnation = 1}};
  facts.replicas = {{.id = "stuck", .phase = ReplicaPhase::kStarting, .ordered_ns = 1 * kSecond}};
  const auto at = [&](int64_t second) {
    facts.gateways[0].sequence = static_cast<uint64_t>(second);
    return scaler.decide(facts, second * kSecond);
  };
  EXPECT_EQ(at(2).start, 0);
  EXPECT_EQ(at(61).start, 0);
  const PoolDecision late = at(62);
  EXPECT_EQ(late.start, 1);
  EXPECT_TRUE(late.alarm);
  // One that makes progress is slow, not lost.
  facts.replicas[0].progress_ns = 60 * kSecond;
  EXPECT_EQ(at(63).start, 0);
}

TEST(PoolScalerTest, AfterAFailedStartNoneBeforeItsTime) {
  PoolScaler scaler(policy(4));
  PoolFacts facts{.start_again_ns = 100 * kSecond};
  facts.gateways = {{.gateway = "g", .incarnation = 1}};
  const auto at = [&](int64_t second) {
    facts.gateways[0].sequence = static_cast<uint64_t>(second);
    return scaler.decide(facts, second * kSecond);
  };
  EXPECT_EQ(at(99).start, 0);
  EXPECT_EQ(at(99).desired, 1);
  EXPECT_EQ(at(100).start, 1);
}

TEST(PoolScalerTest, OldFactsNeverLeadDown) {
  PoolPolicy asked = policy(8);
  asked.scale_down_delay_s = 0;
  TestPool pool({.policy = asked, .start_s = 5});
  pool.seconds(300, 8);
  const int before = pool.ready();
  ASSERT_GE(before, 4);
  PoolFacts facts = pool.facts();  // the gateway is silent from now on
  for (int64_t second = pool.now_s() + 11; second < pool.now_s() + 2000; second += 2) {
    const PoolDecision decision = pool.scaler().decide(facts, second * kSecond);
    ASSERT_THAT(decision.drain, IsEmpty());
    ASSERT_TRUE(decision.alarm);
    ASSERT_GE(decision.desired, before);
  }
  facts.gateways.clear();
  EXPECT_EQ(pool.scaler().decide(facts, 10'000 * kSecond).reason, Reason::kHold);
}

// What one gateway of two held when it was killed is not demand for ever, and the last replica
// stays for it: it may send requests all the same.
TEST(PoolScalerTest, WhatASilentGatewayHeldIsNoDemandAndTheLastReplicaStays) {
  PoolPolicy asked{.replicas_max = 4, .idle_to_zero_s = 30};
  TestPool pool({.policy = asked, .start_s = 5});
  pool.seconds(100, 4);
  ASSERT_GE(pool.ready(), 1);
  const GatewayReport silent{.gateway = "dead",
                             .incarnation = 1,
                             .sequence = 9,
                             .requests = 60,
                             .in_service = 10,
                             .held = 60,
                             .at_ns = pool.now_s() * kSecond};
  PoolScaler& scaler = pool.scaler();
  PoolDecision decision;
  GatewayReport speaks = pool.report();
  PoolFacts facts = pool.facts();
  facts.replicas.resize(1);
  facts.replicas[0].running = 0;
  speaks.in_service = 0;
  speaks.held = 0;
  const auto second = [&](int64_t now_s) {
    ++speaks.sequence;
    speaks.at_ns = now_s * kSecond;
    facts.gateways = {speaks, silent};
    decision = scaler.decide(facts, now_s * kSecond);
  };
  second(pool.now_s() + 5);
  EXPECT_EQ(decision.terms.held, 60) << "it may have said so a moment ago";
  EXPECT_FALSE(decision.alarm);
  for (int64_t now_s = pool.now_s() + 11; now_s < pool.now_s() + 600; ++now_s) {
    second(now_s);
    ASSERT_EQ(decision.terms.held, 0);
    ASSERT_EQ(decision.terms.waiting, 0);
    ASSERT_TRUE(decision.alarm);
    ASSERT_EQ(decision.retirement, 0u) << "the others are not to hold for nothing";
  }
  EXPECT_EQ(decision.desired, 1);
  EXPECT_THAT(decision.text(), HasSubstr("a gateway does not answer"));
}

// Knative's own delay is none, and it asks for no age.
TEST(PoolScalerTest, ByKnativesArithmeticThoseTooManyGoWithTheWindow) {
  PoolPolicy asked = policy(8);
  asked.rule = PoolPolicy::Rule::kKnative;
  asked.concurrency_target = 10;
  asked.target_utilization = 1;
  asked.window_s = 6;
  TestPool pool({.policy = asked, .start_s = 1});
  pool.seconds(40, 7.5);  // 60 in service
  ASSERT_EQ(pool.ready(), 6);
  pool.seconds(8, 2.5);  // the last of those before have ended
  pool.seconds(7, 2.5);  // and the window is of 20
  EXPECT_EQ(pool.decision().desired, 2);
  EXPECT_EQ(pool.ready(), 2);
}

TEST(PoolScalerTest, ASquareWaveTurnsOnceAWindowAtMost) {
  PoolPolicy asked = policy(32);
  asked.scale_down_delay_s = 30;
  TestPool pool({.policy = asked, .start_s = 5});
  for (int wave = 0; wave < 30; ++wave) pool.seconds(60, wave % 2 == 0 ? 12 : 2);
  EXPECT_LE(pool.direction_changes(), 30);
}

// Found by random fleets in the simulator.
TEST(PoolScalerTest, ALostReplicaIsReplacedUpToTheMinimumWithinAWindow) {
  TestPool pool({.policy = {.replicas_min = 3,
                            .replicas_max = 6,
                            .panic_threshold = 10,
                            .concurrency_target = 16,
                            .target_utilization = 0.2}});
  pool.give(4);
  for (int i = 0; i < 600 && pool.decision().drain.empty(); ++i) pool.second(0.5);
  ASSERT_EQ(pool.ready(), 3);
  pool.seconds(20, 1.4);  // four would be better, but one has just gone
  ASSERT_EQ(pool.decision().reason, Reason::kOneDirection);
  EXPECT_EQ(pool.decision().desired, 3);
  pool.replica_facts().pop_back();
  pool.second(1.4);
  EXPECT_EQ(pool.decision().desired, 3);
  EXPECT_EQ(pool.decision().start, 1);
}

TEST(PoolScalerTest, StandbyReplicasAreWokenBeforeOthersAreStarted) {
  PoolScaler scaler(policy(8));
  PoolFacts facts{.service_s_assumed = 1, .start_s_assumed = 5};
  facts.gateways = {{.gateway = "g", .incarnation = 1, .sequence = 1, .held = 3}};
  facts.replicas = {{.id = "draining", .phase = ReplicaPhase::kDraining},
                    {.id = "standby", .phase = ReplicaPhase::kStandby}};
  PoolDecision decision = scaler.decide(facts, kSecond);
  EXPECT_THAT(decision.recall, ElementsAre("draining"));
  EXPECT_THAT(decision.wake, IsEmpty());
  EXPECT_EQ(decision.start, 0);
  facts.replicas.erase(facts.replicas.begin());
  facts.gateways[0].sequence = 2;
  decision = scaler.decide(facts, 2 * kSecond);
  EXPECT_THAT(decision.wake, ElementsAre("standby"));
}

TEST(PoolScalerTest, SomeStandByAlsoWhileNoneIsNeeded) {
  PoolPolicy asked = policy(4);
  asked.replicas_min = 0;
  asked.standby = 1;
  asked.idle_to_zero_s = 60;
  asked.scale_down_delay_s = 10;
  TestPool pool({.policy = asked, .slots = 4, .service_s = 1, .start_s = 20});
  pool.seconds(40, 0);
  EXPECT_EQ(pool.standby(), 1);
  EXPECT_EQ(pool.ready(), 0);
  pool.second(1);
  EXPECT_EQ(pool.ready(), 1) << "woken at the first request";
  EXPECT_EQ(pool.coming(), 1) << "and another one is to take its place";
  EXPECT_EQ(pool.held(), 1);
  pool.second(0);
  EXPECT_EQ(pool.held(), 0);
  EXPECT_EQ(pool.late(), 0);
  pool.seconds(60, 1);
  EXPECT_EQ(pool.standby(), 1);
  EXPECT_EQ(pool.ready(), 1);
  EXPECT_EQ(pool.decision().terms.start_s_p90, 20) << "a wake is no start";
}

TEST(PoolScalerTest, OneThatStartsToStandByIsTakenWhenItIsNeeded) {
  PoolPolicy asked = policy(4);
  asked.replicas_min = 0;
  asked.standby = 1;
  TestPool pool({.policy = asked, .slots = 4, .service_s = 1, .start_s = 20});
  pool.seconds(10, 0);
  EXPECT_EQ(pool.coming(), 1);
  pool.second(1);
  EXPECT_EQ(pool.decision().wake.size(), 1u);
  pool.seconds(10, 0);
  EXPECT_EQ(pool.ready(), 1) << "it has had ten seconds already";
}

TEST(PoolScalerTest, OneThatIsTooLateOrTakenBackIsNotWoken) {
  PoolPolicy asked = policy(4);
  asked.replicas_min = 0;
  asked.standby = 1;
  for (const bool reclaimed : {false, true}) {
    TestPool pool({.policy = asked, .slots = 4, .service_s = 1, .start_s = 5});
    pool.second(0);
    PoolFacts facts = pool.facts();
    const int64_t now_ns = 100 * TestPool::kSecond;
    facts.replicas = {
        {.id = "late", .phase = ReplicaPhase::kOrdered, .slots = 4, .stands_by = true}};
    if (reclaimed) facts.replicas[0].phase = ReplicaPhase::kStandby;
    facts.replicas[0].reclaimed = reclaimed;
    ++facts.gateways[0].sequence;
    ++facts.gateways[0].requests;
    facts.gateways[0].held = 1;
    facts.gateways[0].at_ns = now_ns;
    const PoolDecision decision = pool.scaler().decide(facts, now_ns);
    EXPECT_TRUE(decision.wake.empty());
    EXPECT_GE(decision.start, 1);
  }
}

TEST(PoolScalerTest, TheOnlyReplicaMayStandBy) {
  PoolPolicy asked = policy(1);
  asked.standby = 1;
  asked.replicas_min = 0;
  TestPool pool({.policy = asked, .slots = 4, .service_s = 1, .start_s = 5});
  pool.seconds(10, 0);
  EXPECT_EQ(pool.standby(), 1);
  pool.seconds(5, 1);
  EXPECT_EQ(pool.ready(), 1);
  EXPECT_EQ(pool.replicas(), 1) << "there is room for no other";
  asked.replicas_max = 2;
  asked.replicas_min = 2;
  EXPECT_EQ(asked.check().error().field, "standby");
}

// A maximum that a schedule lowers is kept by those that stand by first.
TEST(PoolScalerTest, ThoseThatAreTooManyAreDismissed) {
  PoolPolicy asked = policy(4);
  asked.standby = 2;
  asked.schedules = {{.from_minute = 60, .to_minute = 120, .replicas_max = 1}};
  PoolScaler scaler(asked);
  PoolFacts facts{.service_s_assumed = 1, .start_s_assumed = 5};
  facts.gateways = {{.gateway = "g", .incarnation = 1, .sequence = 1, .in_service = 1}};
  facts.replicas = {{.id = "a", .phase = ReplicaPhase::kStandby},
                    {.id = "b", .phase = ReplicaPhase::kStandby},
                    {.id = "c", .phase = ReplicaPhase::kReady, .slots = 4, .running = 1}};
  EXPECT_THAT(scaler.decide(facts, kSecond).dismiss, IsEmpty());
  facts.unix_s = 61 * 60;
  facts.gateways[0].sequence = 2;
  const PoolDecision decision = scaler.decide(facts, 2 * kSecond);
  EXPECT_THAT(decision.dismiss, ElementsAre("a", "b"));
  EXPECT_THAT(decision.drain, IsEmpty());
}

TEST(PoolScalerTest, WhoGoesFirst) {
  PoolPolicy asked = policy(8);
  asked.scale_down_delay_s = 0;
  asked.scale_down_rate_max = 1;
  PoolScaler scaler(asked);
  PoolFacts facts{.service_s_assumed = 1, .start_s_assumed = 5};
  const auto replica = [](const char* id, double price, double kept, int64_t ready_s) {
    return ReplicaFacts{.id = id,
                        .phase = ReplicaPhase::kReady,
                        .ready_ns = ready_s * kSecond,
                        .slots = 4,
                        .price = price,
                        .kept_value = kept};
  };
  facts.replicas = {replica("kept", 1, 9, 1), replica("old", 1, 0, 1), replica("young", 1, 0, 5),
                    replica("dear", 2, 5, 1), replica("taken", 0, 9, 999)};
  facts.replicas.back().reclaimed = true;
  PoolDecision decision;
  for (int64_t second = 900; second <= 1000 && decision.drain.empty(); ++second) {
    facts.gateways = {
        {.gateway = "g", .incarnation = 1, .sequence = static_cast<uint64_t>(second)}};
    decision = scaler.decide(facts, second * kSecond);
  }
  EXPECT_THAT(decision.drain, ElementsAre("taken", "dear", "young", "old"));
}

// A working day that is known: replicas are there when it begins, and go after it.
TEST(PoolScalerExample, AScheduleHoldsReplicasThroughItsHours) {
  PoolPolicy asked{.replicas_min = 0, .replicas_max = 8, .idle_to_zero_s = 60};
  asked.scale_down_delay_s = 0;
  asked.schedules = {{.from_minute = 1, .to_minute = 10, .replicas_min = 3}};
  PoolScaler scaler(asked);
  PoolFacts facts{.service_s_assumed = 1, .start_s_assumed = 5};
  facts.gateways = {{.gateway = "g", .incarnation = 1}};
  const auto at = [&](int64_t second) {
    facts.unix_s = second;
    facts.gateways[0].sequence = static_cast<uint64_t>(second);
    facts.gateways[0].holds_for = 1;
    facts.gateways[0].at_ns = second * kSecond;
    return scaler.decide(facts, second * kSecond);
  };
  EXPECT_EQ(at(58).desired, 0);
  const PoolDecision begins = at(60);
  EXPECT_EQ(begins.start, 3);
  EXPECT_EQ(begins.reason, Reason::kSchedule);
  for (int i = 0; i < 3; ++i) {
    facts.replicas.push_back({.id = "r" + std::to_string(i),
                              .phase = ReplicaPhase::kReady,
                              .ready_ns = 65 * kSecond,
                              .slots = 4});
  }
  for (int64_t second = 70; second < 600; second += 2) {
    ASSERT_THAT(at(second).drain, IsEmpty()) << second;
  }
  size_t gone = 0;
  for (int64_t second = 600; second < 1'000 && gone < 3; second += 2) {
    const PoolDecision decision = at(second);
    for (const std::string& id : decision.drain) {
      std::erase_if(facts.replicas, [&](const auto& one) { return one.id == id; });
      ++gone;
    }
  }
  EXPECT_EQ(gone, 3u) << "to nothing, once it is over";
}

// Steps of 10 ms + 0.1 ms a row + 20 us a prompt token; 1000 tokens in, 100 out.
TestPool::Options with_objective(double measured_gap_s) {
  return {.policy = {.rule = PoolPolicy::Rule::kSlo,
                     .slo = {.first_token_s = 0.5, .gap_s = 0.038},
                     .replicas_max = 50},
          .slots = 128,
          .service_s = 3,
          .start_s = 5,
          .model = {.fixed_s = 0.010,
                    .prefill_token_s = 20e-6,
                    .row_s = 0.1e-3,
                    .slots = 128,
                    .step_tokens = 2048},
          .request = ServedSums::Request{.input = 1000,
                                         .computed = 1000,
                                         .output = 100,
                                         .first_token_s = 0.05,
                                         .further_s = 99 * measured_gap_s}};
}

TEST(PoolScalerExample, AnObjectiveBuysWhatKeepsIt) {
  TestPool pool(with_objective(0));  // nothing is measured, nothing corrected
  pool.give(1);
  pool.seconds(2, 60);
  EXPECT_FALSE(pool.decision().terms.slo.is_known) << "20 requests have to finish first";
  pool.seconds(1200, 60);
  const PoolDecision& decision = pool.decision();
  ASSERT_TRUE(decision.terms.slo.is_known);
  EXPECT_TRUE(decision.reason == Reason::kObjective || decision.reason == Reason::kDelay);
  EXPECT_LE(decision.terms.slo.gap_s, 0.038);
  // 60 / 0.85 a second over 5 are 14.1 each, with 30 ms of work: steps of 17.3 ms, 24 rows, 33 at
  // the percentile, and gaps of 10 + 34 x 0.1 + 20 ms with a prompt; over 4 more than a twentieth
  // of the steps have two prompts. Before one of six goes, 60 / 0.7 would have to fit.
  EXPECT_EQ(pool.ready(), decision.desired);
  EXPECT_GE(decision.desired, 5);
  EXPECT_LE(decision.desired, 6);
  EXPECT_EQ(decision.text().find("too few"), std::string::npos) << decision.text();
}

TEST(PoolScalerTest, GapsThatAreLongerThanTheyShouldBeBuyMore) {
  TestPool as_computed(with_objective(0));
  TestPool slower(with_objective(0.040));
  for (TestPool* pool : {&as_computed, &slower}) {
    pool->give(1);
    pool->seconds(600, 60);
  }
  EXPECT_GT(slower.decision().terms.slo.correction.gap, 1.3);
  EXPECT_LE(slower.decision().terms.slo.correction.gap, 3);
  EXPECT_GT(slower.decision().desired, as_computed.decision().desired);
}

TEST(PoolScalerTest, WhatNoNumberKeepsIsSaid) {
  TestPool::Options options = with_objective(0);
  options.policy.slo = {.gap_s = 0.005};
  TestPool pool(options);
  pool.give(1);
  pool.seconds(300, 20);
  EXPECT_TRUE(pool.decision().terms.slo.gap_unattainable);
  EXPECT_TRUE(pool.decision().terms.slo.is_missed);
  EXPECT_LT(pool.decision().desired, 10) << "what keeps 1.2 times a request alone";
  EXPECT_NE(pool.decision().text().find("a gap is longer than asked for"), std::string::npos);
}

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* const given = std::getenv(name);
  return given == nullptr ? otherwise : std::strtoull(given, nullptr, 10);
}

// Some of them impossible.
template <typename Draw>
void draw_facts(Draw& draw, int64_t now_ns, PoolFacts& facts) {
  facts.replicas.clear();
  const auto count = draw(12);
  for (int64_t i = 0; i < count; ++i) {
    facts.replicas.push_back(
        {.id = "r" + std::to_string(draw(20)) + "." + std::to_string(i),
         .phase = static_cast<ReplicaPhase>(draw(5)),
         .ordered_ns = draw(now_ns),
         .ready_ns = draw(now_ns),
         .slots = 1 + static_cast<int>(draw(16)),
         .running = static_cast<int>(draw(20)) - 1,
         .waiting = static_cast<int>(draw(8)) - 1,
         .kv_used = draw(20) == 0 ? std::nan("") : static_cast<double>(draw(12)) / 10});
  }
  for (GatewayReport& one : facts.gateways) {
    if (draw(5) == 0) continue;
    ++one.sequence;
    one.at_ns = now_ns;
    one.requests += draw(50);
    one.finished += draw(50);
    one.in_service_s += static_cast<double>(draw(100));
    one.held = static_cast<int>(draw(20));
    one.holds_for = static_cast<uint64_t>(draw(3));
    if (draw(50) == 0) one.requests = -1;
    if (draw(50) == 0) one.in_service_s = draw(2) == 0 ? std::nan("") : 1e300;
    if (draw(30) == 0) one = {.gateway = one.gateway, .incarnation = one.incarnation + 1};
  }
}

// What must hold whatever comes.
void check_bounds_and_one_direction(uint64_t seed) {
  SCOPED_TRACE("PELTON_SEED=" + std::to_string(seed));
  const auto streams = static_cast<int>(from_environment("PELTON_SEEDS", 300));
  for (int stream = 0; stream < streams; ++stream) {
    uint64_t draws = 0;
    const auto draw = [&](int64_t below) {
      return static_cast<int64_t>(base::random_bits(seed + static_cast<uint64_t>(stream), draws++) %
                                  static_cast<uint64_t>(below));
    };
    PoolPolicy asked{.replicas_min = static_cast<int>(draw(3)),
                     .replicas_max = 3 + static_cast<int>(draw(20)),
                     .window_s = 6.0 + static_cast<double>(draw(60)),
                     .scale_down_delay_s = static_cast<double>(draw(100)),
                     .standby = static_cast<int>(draw(2))};
    if (draw(2) == 0) asked.rule = PoolPolicy::Rule::kKnative;
    if (draw(3) == 0) {
      asked.gpus_each = 2;
      asked.gpus_max = 2 * (3 + static_cast<int>(draw(8)));
    }
    if (draw(3) == 0) {
      const int begin = static_cast<int>(draw(Schedule::kDayMinutes));
      asked.schedules = {{.from_minute = begin,
                          .to_minute = (begin + 1) % Schedule::kDayMinutes,
                          .replicas_min = static_cast<int>(draw(3)),
                          .replicas_max = 3 + static_cast<int>(draw(4))}};
    }
    ASSERT_TRUE(asked.check().ok());
    PoolScaler scaler(asked);
    PoolScaler reversed(asked);
    PoolFacts facts;
    for (int i = 0; i < 3; ++i) {
      facts.gateways.push_back({.gateway = std::string(1, static_cast<char>('a' + i))});
    }
    int64_t now_ns = kSecond;
    for (int tick = 0; tick < 100; ++tick) {
      now_ns += draw(3 * kSecond);
      draw_facts(draw, now_ns, facts);
      facts.unix_s = now_ns / kSecond + draw(2) * 43'200;
      const PoolPolicy::Bounds bounds = asked.bounds(facts.unix_s);
      if (draw(10) == 0) {
        // Another one takes over, from the bytes that the first has left.
        PoolScaler next(asked);
        ASSERT_TRUE(next.restore(reversed.state()).ok());
        ASSERT_EQ(next.decide(facts, now_ns).text(),
                  PoolScaler(reversed).decide(facts, now_ns).text());
      }
      const PoolDecision decision = scaler.decide(facts, now_ns);
      ASSERT_GE(decision.desired, bounds.least);
      ASSERT_LE(decision.desired,
                std::max(bounds.most, decision.terms.ready + decision.terms.coming));
      ASSERT_GE(decision.start, 0);
      if (!decision.drain.empty()) {
        ASSERT_EQ(decision.start, 0);
        ASSERT_THAT(decision.recall, IsEmpty());
        ASSERT_LE(static_cast<int>(decision.drain.size()),
                  decision.terms.ready + decision.terms.coming - decision.desired);
      }
      ASSERT_LE(decision.terms.ready + decision.terms.coming + decision.start,
                std::max(bounds.most, decision.terms.ready + decision.terms.coming));
      // Whichever gateway reports first.
      PoolFacts reordered = facts;
      std::reverse(reordered.gateways.begin(), reordered.gateways.end());
      std::reverse(reordered.replicas.begin(), reordered.replicas.end());
      ASSERT_EQ(reversed.decide(reordered, now_ns).text(), decision.text());
    }
  }
}

TEST(PoolScalerProperty, BoundsAndOneDirection) {
  check_bounds_and_one_direction(from_environment("PELTON_SEED", std::random_device{}()));
}

// A schedule's maximum is lower than what the delay still keeps.
TEST(PoolScalerProperty, BoundsHoldWhenAScheduleBegins) {
  check_bounds_and_one_direction(2427737547);
}

}  // namespace
}  // namespace pelton::autoscaler
