// The two roles of one pool, as PoolScaler decides on them.
#include "autoscaler/paired_pools.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "autoscaler/facts_log.h"
#include "autoscaler/pool_scaler.h"
#include "base/random.h"

namespace pelton::autoscaler {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr ReplicaModel kModel = {
    .fixed_s = 0.005, .prefill_token_s = 20e-6, .row_s = 0.1e-3, .slots = 16, .step_tokens = 4096};

PoolPolicy roles_policy() {
  return {.rule = PoolPolicy::Rule::kSlo,
          .slo = {.first_token_s = 0.5, .gap_s = 0.05, .percentile = 0.95},
          .replicas_max = 50,
          .window_s = 20,
          .scale_down_delay_s = 30,
          .idle_to_zero_s = 60,
          .prefill = {{.replicas_min = 1, .replicas_max = 50}}};
}

// A pool whose replicas are ready as soon as they are ordered, and gone as soon as they drain, of
// both roles; requests come and are answered.
class RolesPool {
 public:
  explicit RolesPool(const PoolPolicy& policy) : policy_(policy), scaler_(policy) {}

  // For so long: so many requests a second, of prompts of so many tokens and answers of 100.
  PairCounts play(int rate, int prompt, int seconds) {
    for (int i = 0; i < seconds; ++i) {
      now_ns_ += kSecond;
      report_.requests += rate;
      report_.finished += rate;
      report_.in_service = rate;
      report_.in_service_s += rate;
      for (int one = 0; one < rate; ++one) {
        report_.served.add({.input = prompt,
                            .computed = prompt,
                            .output = 100,
                            .first_token_s = 0.1,
                            .further_s = 1});
      }
      decide();
    }
    return counts_;
  }
  const PoolDecision& decide() {
    if (reports_) {
      ++report_.sequence;
      report_.at_ns = now_ns_;
    }
    report_.holds_for = decision_.retirement;
    decision_ = scaler_.decide(facts(), now_ns_);
    counts_ = {.prefill = decision_.desired == 0 ? 0 : decision_.terms.roles.pair.counts.prefill,
               .decode = decision_.desired};
    return decision_;
  }
  PoolFacts facts() const {
    PoolFacts facts{.gateways = {report_}, .replicas = replicas(counts_.decode, 'd')};
    facts.prefill = replicas(counts_.prefill, 'p');
    return facts;
  }
  std::vector<ReplicaFacts> replicas(int count, char name) const {
    std::vector<ReplicaFacts> all;
    for (int i = 0; i < count; ++i) {
      all.push_back({.id = name + std::to_string(i),
                     .phase = ReplicaPhase::kReady,
                     .slots = kModel.slots,
                     .model = kModel});
    }
    return all;
  }

  const PoolPolicy policy_;
  PoolScaler scaler_;
  GatewayReport report_{.gateway = "g", .incarnation = 1};
  PairCounts counts_;
  PoolDecision decision_;
  bool reports_ = true;
  int64_t now_ns_ = kSecond;
};

TEST(PairedPools, BothFromNothingAndBothAway) {
  RolesPool pool(roles_policy());
  EXPECT_EQ(pool.decide().desired, 0) << "nobody has asked";
  EXPECT_EQ(pool.counts_, PairCounts{});
  pool.report_.held = 1;
  pool.decide();
  EXPECT_EQ(pool.counts_, (PairCounts{.prefill = 1, .decode = 1})) << "as one";
  pool.report_.held = 0;
  const PairCounts busy = pool.play(300, 2000, 30);
  EXPECT_GT(busy.prefill, 1);
  EXPECT_GT(busy.decode, 1);
  pool.report_.in_service = 0;
  pool.play(0, 1, 120);
  EXPECT_EQ(pool.counts_, PairCounts{}) << pool.decision_.text();
}

TEST(PairedPools, LongerPromptsNeedMoreOfOneRoleAlone) {
  RolesPool pool(roles_policy());
  const PairCounts shorter = pool.play(40, 500, 30);
  EXPECT_GE(shorter.prefill, 1);
  EXPECT_GE(shorter.decode, 1);
  const PairCounts longer = pool.play(40, 4000, 30);
  EXPECT_GT(longer.prefill, shorter.prefill);
  EXPECT_EQ(longer.decode, shorter.decode);
  const PairCounts more = pool.play(160, 4000, 30);
  EXPECT_GT(more.prefill, longer.prefill);
  EXPECT_GT(more.decode, longer.decode);
}

TEST(PairedPools, NoMoreOfBothThanTheGpusAllow) {
  PoolPolicy policy = roles_policy();
  policy.gpus_each = 2;
  policy.gpus_max = 12;
  ASSERT_TRUE(policy.check().ok());
  RolesPool pool(policy);
  const PairCounts counts = pool.play(160, 4000, 40);
  EXPECT_EQ(counts.prefill + counts.decode, 6) << pool.decision_.text();
  EXPECT_TRUE(pool.decision_.terms.roles.pair.at_ceiling);
  EXPECT_EQ(pool.decision_.reason, Reason::kGpus);
  EXPECT_GT(pool.decision_.terms.roles.pair.needed.prefill, counts.prefill);
}

TEST(PairedPools, NoneToComputePromptsWhereTheOthersDoAsWell) {
  PoolPolicy policy = roles_policy();
  policy.prefill->replicas_min = 0;
  policy.slo.gap_s = 0.02;  // a step with a long prompt takes longer
  policy.slo.percentile = 0.99;
  RolesPool pool(policy);
  EXPECT_EQ(pool.play(1, 100, 60), (PairCounts{.prefill = 0, .decode = 1}));
  EXPECT_GT(pool.play(160, 4000, 30).prefill, 2) << pool.decision_.text();
  EXPECT_EQ(pool.play(1, 100, 120), (PairCounts{.prefill = 0, .decode = 1}));
}

TEST(PairedPools, WithoutFactsNeitherGoes) {
  RolesPool pool(roles_policy());
  const PairCounts busy = pool.play(160, 4000, 30);
  pool.reports_ = false;
  pool.now_ns_ += 300 * kSecond;
  pool.decide();
  EXPECT_EQ(pool.counts_, busy);
  EXPECT_TRUE(pool.decision_.alarm);
}

// Those that compute prompts follow, and have no demand, guard or way to nothing of their own.
TEST(PairedPools, ThoseThatFollowAreAsManyAsTheyAreToldAndHaveRoomFor) {
  PoolPolicy policy = roles_policy();
  policy.prefill.reset();
  PoolScaler scaler(policy);
  PoolFacts facts{.gateways = {{.gateway = "g", .incarnation = 1, .sequence = 1, .at_ns = kSecond}},
                  .replicas = {}};
  facts.wanted = 5;
  facts.room = 3;
  EXPECT_EQ(scaler.decide(facts, kSecond).start, 3);
  facts.room = 8;
  EXPECT_EQ(scaler.decide(facts, kSecond).start, 5);
  facts.wanted = 0;
  for (int i = 0; i < 3; ++i) {
    facts.replicas.push_back(
        {.id = std::to_string(i), .phase = ReplicaPhase::kReady, .slots = 16, .running = 1});
  }
  const PoolDecision none = scaler.decide(facts, 2 * kSecond);
  EXPECT_EQ(none.drain.size(), 3u) << "the other role goes too";
  EXPECT_EQ(none.retirement, 0u);
}

// One that takes over with what the other one remembers decides as that one would, to the byte, and
// so does whoever replays it.
TEST(PairedPools, ANewLeaderDecidesAsTheOldOneWould) {
  for (const int until : {1, 15, 31, 34, 50, 75}) {
    RolesPool pool(roles_policy());
    pool.play(120, 3000, std::min(until, 30));
    if (until > 30) pool.play(4, 200, until - 30);
    RolesPool next(roles_policy());
    ASSERT_TRUE(next.scaler_.restore(pool.scaler_.state()).ok());
    EXPECT_EQ(next.scaler_.state(), pool.scaler_.state());
    FactsReplay replay;
    ASSERT_TRUE(replay.feed(begin_line("box", pool.policy_, pool.scaler_.state())).ok());
    next.report_ = pool.report_;
    next.counts_ = pool.counts_;
    next.decision_ = pool.decision_;
    next.now_ns_ = pool.now_ns_;
    for (int i = 0; i < 80; ++i) {
      pool.reports_ = next.reports_ = i > 20;  // it comes without any
      pool.play(4, 200, 1);
      next.play(4, 200, 1);
      const std::string line = decision_line("box", pool.now_ns_, pool.facts(), pool.decision_);
      EXPECT_EQ(decision_line("box", next.now_ns_, next.facts(), next.decision_), line);
    }
    // What it was given, and not what came of it.
    RolesPool recorded(roles_policy());
    ASSERT_TRUE(recorded.scaler_.restore(pool.scaler_.state()).ok());
    ASSERT_TRUE(replay.feed(begin_line("box", pool.policy_, pool.scaler_.state())).ok());
    recorded.report_ = pool.report_;
    recorded.now_ns_ = pool.now_ns_;
    recorded.counts_ = pool.counts_;
    for (int i = 0; i < 40; ++i) {
      recorded.now_ns_ += kSecond;
      ++recorded.report_.sequence;
      recorded.report_.requests += 2 * i;
      recorded.report_.at_ns = recorded.now_ns_;
      const PoolFacts facts = recorded.facts();
      const PoolDecision decision = recorded.scaler_.decide(facts, recorded.now_ns_);
      const auto outcome = replay.feed(decision_line("box", recorded.now_ns_, facts, decision));
      ASSERT_TRUE(outcome.ok()) << outcome.error().message;
      EXPECT_TRUE(outcome->is_equal) << outcome->line;
    }
  }
}

// Whatever gateways and replicas say: both within their bounds and together within what is
// affordable, none of one role without the other one.
TEST(PairedPools, WhateverIsSaidNoBoundIsBroken) {
  uint64_t draws = 0;
  const auto drawn = [&](double most) { return base::random_unit(7, draws++) * most; };
  for (int round = 0; round < 40; ++round) {
    PoolPolicy policy = roles_policy();
    policy.replicas_min = static_cast<int>(drawn(3));
    policy.replicas_max = policy.replicas_min + 1 + static_cast<int>(drawn(20));
    policy.prefill = {{.replicas_min = static_cast<int>(drawn(3)), .replicas_max = 3}};
    policy.prefill->replicas_max += static_cast<int>(drawn(20));
    policy.gpus_each = 1;
    policy.gpus_max = std::max(policy.replicas_min, 1) + policy.prefill->replicas_min +
                      static_cast<int>(drawn(20));
    ASSERT_TRUE(policy.check().ok());
    RolesPool pool(policy);
    for (int i = 0; i < 150; ++i) {
      pool.now_ns_ += static_cast<int64_t>(drawn(15) * kSecond);
      const auto rate = static_cast<int>(drawn(1) < 0.5 ? drawn(3) : drawn(400));
      pool.report_.requests += rate;
      pool.report_.finished += static_cast<int>(drawn(rate));
      pool.report_.held = static_cast<int>(drawn(1) < 0.7 ? 0 : drawn(500));
      pool.report_.in_service = static_cast<int>(drawn(1) < 0.3 ? 0 : drawn(100));
      pool.report_.in_service_s += drawn(1e3);
      if (rate > 0) {
        pool.report_.served.add({.input = 1 + static_cast<int64_t>(drawn(1e5)),
                                 .computed = 1 + static_cast<int64_t>(drawn(1e5)),
                                 .output = 1 + static_cast<int64_t>(drawn(1e4)),
                                 .first_token_s = drawn(100),
                                 .further_s = drawn(1e3)},
                                rate);
      }
      pool.reports_ = drawn(1) < 0.9;
      pool.decide();
      const PairCounts counts = pool.counts_;
      ASSERT_LE(counts.decode, policy.replicas_max) << pool.decision_.text();
      ASSERT_LE(counts.prefill, policy.prefill->replicas_max) << pool.decision_.text();
      ASSERT_LE(counts.prefill + counts.decode, *policy.gpus_max) << pool.decision_.text();
      ASSERT_GE(counts.decode, policy.replicas_min);
      ASSERT_TRUE(counts.decode > 0 || counts.prefill == 0);
      ASSERT_TRUE(counts.decode == 0 || counts.prefill >= policy.prefill->replicas_min)
          << pool.decision_.text();
    }
  }
}

TEST(PairedPools, AStateThatIsNoneIsRefused) {
  RolesPool pool(roles_policy());
  pool.play(40, 500, 30);
  std::string state = pool.scaler_.state();
  const size_t at = state.find("\"prefill_count\":");
  ASSERT_NE(at, std::string::npos);
  state.replace(at, 16, "\"prefill_count\":-");
  EXPECT_FALSE(RolesPool(roles_policy()).scaler_.restore(state).ok());
}

TEST(PairedPools, APolicyOfTwoRolesWantsBothTimesAndRoomForBoth) {
  const auto refused = [](const PoolPolicy& policy) { return policy.check().error().field; };
  PoolPolicy policy = roles_policy();
  EXPECT_TRUE(policy.check().ok());
  policy.slo.gap_s.reset();
  EXPECT_EQ(refused(policy), "prefill");
  policy = roles_policy();
  policy.prefill = {{.replicas_min = 3, .replicas_max = 2}};
  EXPECT_EQ(refused(policy), "prefill_min");
  policy = roles_policy();
  policy.standby = 1;
  EXPECT_EQ(refused(policy), "standby");
  policy = roles_policy();
  policy.gpus_each = 1;
  policy.gpus_max = 1;
  EXPECT_EQ(refused(policy), "gpus_max") << "one of each are two";
}

}  // namespace
}  // namespace pelton::autoscaler
