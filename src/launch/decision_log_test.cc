#include "launch/decision_log.h"

#include <vector>

#include <gtest/gtest.h>

#include "base/json.h"
#include "launch/scaler_pages.h"

namespace pelton::launch {
namespace {

FleetScaler::PoolState state(std::string pool, int desired, autoscaler::Reason reason) {
  FleetScaler::PoolState one{.pool = std::move(pool)};
  one.decision.desired = desired;
  one.decision.reason = reason;
  return one;
}

std::vector<std::string> lines(const DecisionLog& log) {
  std::vector<std::string> all;
  for (const auto& [key, row] : log.rows()) {
    const Result<Json> json = Json::parse(row);
    EXPECT_TRUE(json.ok()) << row;
    all.push_back(json->string("pool").value() + " " + json->find("before")->dump() + " " +
                  json->find("desired")->dump() + " " + json->string("reason").value());
  }
  return all;
}

TEST(DecisionLog, HasALineForEachChange) {
  using autoscaler::Reason;
  DecisionLog log;
  const auto note = [&](int desired, Reason reason) {
    log.note(std::vector{state("a", desired, reason)}, 1);
  };
  note(2, Reason::kDemand);
  note(2, Reason::kDemand);
  note(3, Reason::kDemand);
  note(3, Reason::kPanic);
  EXPECT_EQ(lines(log), (std::vector<std::string>{"a 0 2 demand", "a 2 3 demand", "a 3 3 panic"}));
  std::vector<FleetScaler::PoolState> fails = {state("a", 3, Reason::kPanic)};
  fails[0].announcement.failure = "no such model";
  log.note(fails, 2);
  EXPECT_NE(log.rows().rbegin()->second.find("\"text\":\"no such model\""), std::string::npos);
}

TEST(DecisionLog, KeepsTheLast) {
  DecisionLog log;
  for (int i = 0; i < 1000; ++i) {
    log.note(std::vector{state("a", i, autoscaler::Reason::kDemand)}, i);
  }
  EXPECT_EQ(log.rows().size(), DecisionLog::kLines);
  EXPECT_NE(log.rows().rbegin()->second.find("\"desired\":999,\"before\":998"), std::string::npos);
}

TEST(ScalerPages, RowsAreTheStatesOfTheBody) {
  FleetScaler::PoolState one = state("a", 3, autoscaler::Reason::kDemand);
  one.ready = 2;
  one.draining = 1;
  one.stopping = 1;
  const std::vector states = {one};
  EXPECT_EQ(replicas_sample(states),
            R"("replicas":{"a":{"desired":3,"ready":2,"starting":0,"leaving":2}})");
  EXPECT_EQ("{\"pools\":[" + state_rows(states).at("a") + "]}", states_body(states));
  const std::vector many(100, state("pool", 1, autoscaler::Reason::kDemand));
  EXPECT_LT(replicas_sample(many).size(), 2048);
}

}  // namespace
}  // namespace pelton::launch
