#include "autoscaler/paired_pools.h"

#include <string>

#include <gtest/gtest.h>

namespace pelton::autoscaler {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr ReplicaModel kModel = {
    .fixed_s = 0.005, .prefill_token_s = 20e-6, .row_s = 0.1e-3, .slots = 16, .step_tokens = 4096};

class Paired : public testing::Test {
 protected:
  static PairPolicy policy() {
    return {.objective = {.first_token_s = 0.5, .gap_s = 0.05, .percentile = 0.95},
            .prefill_max = 50,
            .decode_max = 50,
            .gpus_max = 100,
            .scale_down_delay_s = 30};
  }
  static PoolFacts replicas(int count) {
    PoolFacts facts;
    for (int i = 0; i < count; ++i) {
      facts.replicas.push_back({.id = std::to_string(i),
                                .phase = ReplicaPhase::kReady,
                                .slots = kModel.slots,
                                .model = kModel});
    }
    return facts;
  }
  // For so long: so many requests a second, of prompts of so many tokens and answers of 100.
  PairCounts play(int rate, int prompt, int seconds, int decode_min = 0) {
    PairCounts counts;
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
      ++report_.sequence;
      report_.at_ns = now_ns_;
      PoolFacts decode = replicas(1);
      decode.gateways = {report_};
      counts = pools_.decide(replicas(1), decode, decode_min, now_ns_).counts;
    }
    return counts;
  }

  PairedPools pools_{policy(), 20};
  GatewayReport report_{.gateway = "g", .incarnation = 1};
  int64_t now_ns_ = kSecond;
};

TEST_F(Paired, NoneOfBothBeforeAnybodyAsks) {
  PoolFacts decode;
  decode.gateways = {report_};
  EXPECT_EQ(pools_.decide({}, decode, 0, now_ns_).counts, PairCounts{});
  decode.gateways[0].held = 1;
  EXPECT_EQ(pools_.decide({}, decode, 0, now_ns_).counts, (PairCounts{.prefill = 1, .decode = 1}));
  decode.gateways[0].held = 0;
  EXPECT_EQ(pools_.decide({}, decode, 3, now_ns_).counts, (PairCounts{.prefill = 1, .decode = 3}));
}

TEST_F(Paired, LongerPromptsNeedMoreOfOneRoleAlone) {
  const PairCounts shorter = play(40, 500, 30);
  EXPECT_GE(shorter.prefill, 1);
  EXPECT_GE(shorter.decode, 1);
  const PairCounts longer = play(40, 4000, 30);
  EXPECT_GT(longer.prefill, shorter.prefill);
  EXPECT_EQ(longer.decode, shorter.decode);
  const PairCounts more = play(160, 4000, 30);
  EXPECT_GT(more.prefill, longer.prefill);
  EXPECT_GT(more.decode, longer.decode);
}

TEST_F(Paired, OneOfEachIsKeptWhileAnyIsThere) {
  play(40, 4000, 30);
  EXPECT_EQ(play(0, 0, 120), (PairCounts{.prefill = 1, .decode = 1}));
}

}  // namespace
}  // namespace pelton::autoscaler
