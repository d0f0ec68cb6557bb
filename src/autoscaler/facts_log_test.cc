#include "autoscaler/facts_log.h"

#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "autoscaler/state_json.h"
#include "autoscaler/test_pool.h"

namespace pelton::autoscaler {
namespace {

using testing::HasSubstr;

PoolPolicy policy() {
  return {.replicas_min = 0,
          .replicas_max = 20,
          .target_utilization = 0.7,
          .gpus_each = 2,
          .gpus_max = 30,
          .price_each = 2.5,
          .price_max = 40,
          .schedules = {{.days = 0x1f, .from_minute = 480, .to_minute = 60, .replicas_min = 2}}};
}

// A pool that climbs, rests and goes to nothing, as it was recorded.
std::vector<std::string> recorded(int from_s, std::string* state_there = nullptr) {
  TestPool pool({.policy = policy(), .service_s = 7.3, .start_s = 5});
  std::vector<std::string> lines = {begin_line("p", policy(), "")};
  PoolScaler scaler(policy());
  for (int second = 0; second < 1'500; ++second) {
    if (second == from_s) {
      lines = {begin_line("p", policy(), scaler.state())};
      if (state_there != nullptr) *state_there = scaler.state();
    }
    pool.second(second < 300 ? 4 : second < 400 ? 12 : 0);
    PoolFacts facts = pool.facts();
    facts.gateways[0].in_service_s *= 1.0 / 3;
    facts.gateways[0].held_s *= 0.1;
    facts.unix_s = 1'700'000'000 + second;
    const int64_t now_ns = pool.now_s() * TestPool::kSecond;
    lines.push_back(decision_line("p", now_ns, facts, scaler.decide(facts, now_ns)));
  }
  return lines;
}

void expect_same(const std::vector<std::string>& lines) {
  FactsReplay replay;
  size_t decisions = 0;
  for (const std::string& line : lines) {
    const Result<FactsReplay::Outcome> outcome = replay.feed(line);
    ASSERT_TRUE(outcome.ok()) << outcome.error().message << line;
    ASSERT_TRUE(outcome->is_equal) << line << "\n" << outcome->line;
    decisions += outcome->is_decision ? 1 : 0;
  }
  EXPECT_EQ(decisions, lines.size() - 1);
}

TEST(FactsLogTest, RecordedFactsGiveTheSameDecisionsByteForByte) {
  expect_same(recorded(-1));
}

// As after a file has become too long, or another has taken over.
TEST(FactsLogTest, AStateThatIsHandedOverDecidesAsTheOldOneWouldHave) {
  for (const int from_s : {1, 45, 302, 320, 410, 700, 1'200}) {
    SCOPED_TRACE(from_s);
    std::string state;
    expect_same(recorded(from_s, &state));
    PoolScaler scaler(policy());
    ASSERT_TRUE(scaler.restore(state).ok());
    EXPECT_EQ(scaler.state(), state);
    // Over one that has a past of its own, too.
    EXPECT_TRUE(scaler.restore(PoolScaler(policy()).state()).ok());
    EXPECT_EQ(scaler.state(), PoolScaler(policy()).state());
  }
}

// A schedule by a place's clock, which is set amid what was recorded.
TEST(FactsLogTest, AZonesClockIsRecordedAsItWas) {
  constexpr int64_t kBegin_s = 1'800'000'000;
  PoolPolicy asked = policy();
  asked.schedules[0].zone = {
      .name = "Europe/Berlin", .offset_s = 3600, .changes = {{kBegin_s + 600, 7200}}};
  TestPool pool({.policy = asked, .service_s = 7.3, .start_s = 5});
  PoolScaler scaler(asked);
  std::vector<std::string> lines = {begin_line("p", asked, "")};
  for (int second = 0; second < 1'200; ++second) {
    pool.second(2);
    PoolFacts facts = pool.facts();
    facts.unix_s = kBegin_s + second;
    const int64_t now_ns = pool.now_s() * TestPool::kSecond;
    lines.push_back(decision_line("p", now_ns, facts, scaler.decide(facts, now_ns)));
  }
  EXPECT_THAT(lines[0], HasSubstr("Europe/Berlin"));
  expect_same(lines);
  std::string backwards = lines[0];
  const std::string last = R"({"at":1800000600,"offset_s":7200})";
  const size_t at = backwards.find(last);
  ASSERT_NE(at, std::string::npos) << backwards;
  backwards.insert(at, last + ",");
  EXPECT_FALSE(FactsReplay().feed(backwards).ok());
}

TEST(FactsLogTest, ObjectivesAreRecordedToo) {
  const TestPool::Options options{
      .policy = {.rule = PoolPolicy::Rule::kSlo,
                 .slo = {.first_token_s = 1.0 / 3, .gap_s = 0.031, .percentile = 0.9},
                 .replicas_max = 20},
      .slots = 64,
      .service_s = 3,
      .start_s = 5,
      .model = {.fixed_s = 0.01 / 3,
                .prefill_token_s = 2e-5,
                .row_s = 1e-4,
                .context_token_s = 1e-8,
                .slots = 64,
                .step_tokens = 512},
      .request = ServedSums::Request{.input = 700,
                                     .computed = 300,
                                     .output = 90,
                                     .first_token_s = 0.1 / 3,
                                     .further_s = 89 * 0.013}};
  for (const int from_s : {0, 90}) {
    TestPool pool(options);
    pool.give(1);
    PoolScaler scaler(options.policy);
    std::vector<std::string> lines = {begin_line("p", options.policy, "")};
    for (int second = 0; second < 300; ++second) {
      if (second == from_s) lines = {begin_line("p", options.policy, scaler.state())};
      pool.second(second < 150 ? 30 : 8);
      const int64_t now_ns = pool.now_s() * TestPool::kSecond;
      const PoolDecision decision = scaler.decide(pool.facts(), now_ns);
      EXPECT_EQ(decision.terms.slo.is_known, second > 2) << second;
      lines.push_back(decision_line("p", now_ns, pool.facts(), decision));
    }
    expect_same(lines);
  }
}

TEST(FactsLogTest, AnotherDecisionIsSeen) {
  std::vector<std::string> lines = recorded(-1);
  FactsReplay replay;
  ASSERT_TRUE(replay.feed(lines[0]).ok());
  std::string changed = lines[1];
  const size_t at = changed.find("\"desired\":");
  ASSERT_NE(at, std::string::npos);
  changed[at + 10] = '9';
  const Result<FactsReplay::Outcome> outcome = replay.feed(changed);
  ASSERT_TRUE(outcome.ok());
  EXPECT_FALSE(outcome->is_equal);
  EXPECT_EQ(outcome->line, lines[1]);
}

TEST(FactsLogTest, WhatIsNoNumberStaysNone) {
  PoolFacts facts;
  facts.gateways = {{.gateway = "g", .incarnation = ~uint64_t{0}, .sequence = 1}};
  facts.gateways[0].held_s = std::nan("");
  facts.replicas = {{.id = "r", .phase = ReplicaPhase::kReady, .kv_used = std::nan("")}};
  PoolScaler scaler(policy());
  const std::string line = decision_line("p", 5, facts, scaler.decide(facts, 5));
  EXPECT_THAT(line, HasSubstr("\"held_s\":null"));
  expect_same({begin_line("p", policy(), ""), line});
}

// Numbers of every size and kind, to the last bit.
TEST(FactsLogTest, NumbersAreReadToTheLastBit) {
  uint64_t bits = 1;
  for (int i = 0; i < 2'000; ++i) {
    bits = bits * 6364136223846793005u + 1442695040888963407u;
    const double value =
        std::ldexp(static_cast<double>(bits >> 11), static_cast<int>(bits % 120) - 90);
    std::string text;
    base::JsonWriter w(text);
    write_exact(w, value);
    const Result<Json> json = Json::parse("[" + text + "]");
    ASSERT_TRUE(json.ok());
    bool ok = true;
    ASSERT_EQ(read_exact(json->as_array()[0], ok), value) << text;
    ASSERT_TRUE(ok);
  }
}

TEST(FactsLogTest, WhatIsNoLineIsRefused) {
  const std::string begin = begin_line("p", policy(), "");
  const std::string line = decision_line("p", 5, {}, PoolScaler(policy()).decide(PoolFacts{}, 5));
  const auto refusal = [&](const std::string& first, const std::string& second) {
    FactsReplay replay;
    if (!first.empty()) {
      EXPECT_TRUE(replay.feed(first).ok());
    }
    const Result<FactsReplay::Outcome> outcome = replay.feed(second);
    return outcome.ok() ? std::string("none") : outcome.error().message;
  };
  EXPECT_EQ(refusal(begin, ""), "none");
  EXPECT_THAT(refusal("", line), HasSubstr("under which policy 'p'"));
  EXPECT_THAT(refusal(begin, line.substr(0, line.size() - 2)), HasSubstr("JSON"));
  EXPECT_THAT(refusal(begin, "{}"), HasSubstr("no pool"));
  EXPECT_THAT(refusal(begin, R"({"pool":"p"})"), HasSubstr("no facts"));
  EXPECT_THAT(refusal(begin, R"({"pool":"p","now_ns":1,"facts":{}})"), HasSubstr("facts are none"));
  EXPECT_THAT(refusal("", R"({"pool":"p","policy":{}})"), HasSubstr("policy is none"));
  EXPECT_THAT(refusal("", begin_line("p", PoolPolicy{.window_s = 1}, "")), HasSubstr("window_s"));
  EXPECT_THAT(refusal("", begin_line("p", policy(), R"({"demand":3})")), HasSubstr("no state"));
}

}  // namespace
}  // namespace pelton::autoscaler
