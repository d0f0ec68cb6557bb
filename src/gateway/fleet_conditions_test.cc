#include "gateway/fleet_conditions.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace pelton::gateway {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// The state of a condition; "none": there is none.
std::string said(const FleetConditions& conditions, std::string_view name,
                 std::string_view pool = "") {
  const Result<Json> body = Json::parse(conditions.body());
  EXPECT_TRUE(body.ok());
  for (const Json& one : body->find("conditions")->as_array()) {
    if (one.string("name") != name || one.string("pool") != pool) continue;
    return *one.string("state");
  }
  return "none";
}

double value(const FleetConditions& conditions, std::string_view name) {
  const Result<Json> body = Json::parse(conditions.body());
  for (const Json& one : body->find("conditions")->as_array()) {
    if (one.string("name") == name) return one.number("value").value_or(-1);
  }
  return -1;
}

double budget(const FleetConditions& conditions, std::string_view key) {
  const Result<Json> body = Json::parse(conditions.body());
  return body->find("budget")->number(key).value_or(-1);
}

TEST(FleetConditionsTest, AllIsQuietAtFirst) {
  FleetConditions conditions(0);
  EXPECT_EQ(said(conditions, "PeltonErrorBudgetFast"), "quiet");
  conditions.note({.requests = 5, .able = 1}, kSecond);
  EXPECT_EQ(said(conditions, "PeltonErrorBudgetFast"), "quiet");
  EXPECT_EQ(said(conditions, "PeltonWorkersDown"), "quiet");
}

TEST(FleetConditionsTest, ABudgetThatBurnsFiresAfterTheRulesTimeAndEndsAfterItsWindow) {
  FleetConditions conditions(0);
  FleetConditions::Counts counts{.able = 1};
  int64_t at = 0;
  const auto pass = [&](int seconds, int64_t requests, int64_t bad) {
    for (int i = 0; i < seconds; ++i) {
      counts.requests += requests;
      counts.interrupted += bad;
      conditions.note(counts, at += kSecond);
    }
  };
  pass(60, 10, 0);
  pass(30, 10, 1);
  EXPECT_EQ(said(conditions, "PeltonErrorBudgetFast"), "pending");
  EXPECT_DOUBLE_EQ(budget(conditions, "bad"), 30);
  EXPECT_NEAR(budget(conditions, "bad_share"), 30.0 / 900, 1e-9);
  EXPECT_NEAR(budget(conditions, "burn"), 30.0 / 900 / 0.001, 1e-6);
  pass(120, 10, 1);
  EXPECT_EQ(said(conditions, "PeltonErrorBudgetFast"), "firing");
  EXPECT_EQ(said(conditions, "PeltonErrorBudgetSlow"), "pending");
  EXPECT_EQ(said(conditions, "PeltonStreamsInterrupted"), "firing");
  pass(301, 10, 0);
  EXPECT_EQ(said(conditions, "PeltonErrorBudgetFast"), "quiet") << "five good minutes";
  EXPECT_NEAR(value(conditions, "PeltonErrorBudgetFast"), 150.0 / 5110, 1e-9)
      << "of the window that stands beside it, as Prometheus has it";
  pass(900, 10, 0);
  EXPECT_EQ(said(conditions, "PeltonErrorBudgetSlow"), "firing")
      << "its short window is half an hour";
  EXPECT_EQ(said(conditions, "PeltonStreamsInterrupted"), "quiet");
  EXPECT_DOUBLE_EQ(budget(conditions, "bad"), 0);
  pass(660, 10, 0);
  EXPECT_EQ(said(conditions, "PeltonErrorBudgetSlow"), "quiet") << "half an hour, and a minute";
}

// Of one of `budgets`.
double within(const FleetConditions& conditions, double window_s, std::string_view key) {
  const Result<Json> body = Json::parse(conditions.body());
  for (const Json& one : body->find("budgets")->as_array()) {
    if (one.number("window_s") == window_s) return one.number(key).value_or(-1);
  }
  return -1;
}

TEST(FleetConditionsTest, HoursAndDaysAreKeptInFixedMemory) {
  FleetConditions conditions(0);
  FleetConditions::Counts counts{.able = 1};
  int64_t at = 0;
  const auto pass = [&](int seconds, int64_t bad) {
    for (int i = 0; i < seconds; ++i) {
      counts.requests += 10;
      counts.interrupted += bad;
      conditions.note(counts, at += kSecond);
    }
  };
  constexpr int kHour = 3600;
  pass(kHour, 1);
  pass(1000, 0);
  EXPECT_DOUBLE_EQ(within(conditions, 900, "bad"), 0);
  // The hour begins at a whole minute: at most one is missing.
  EXPECT_NEAR(within(conditions, kHour, "bad"), kHour - 1000, 60);
  EXPECT_NEAR(within(conditions, kHour, "kept_s"), kHour, 60);
  EXPECT_DOUBLE_EQ(within(conditions, 6 * kHour, "bad"), kHour) << "all that there was";
  EXPECT_DOUBLE_EQ(within(conditions, 6 * kHour, "kept_s"), kHour + 1000);
  EXPECT_EQ(said(conditions, "PeltonErrorBudgetFast"), "quiet") << "the last five minutes are good";
  EXPECT_EQ(said(conditions, "PeltonErrorBudgetSlow"), "firing") << "by six hours and 30 minutes";
  pass(6 * kHour, 0);
  EXPECT_DOUBLE_EQ(within(conditions, 6 * kHour, "bad"), 0);
  EXPECT_EQ(said(conditions, "PeltonErrorBudgetSlow"), "quiet");
  EXPECT_NEAR(within(conditions, 72 * kHour, "bad"), kHour, 900);
  pass(72 * kHour, 0);
  EXPECT_DOUBLE_EQ(within(conditions, 72 * kHour, "bad"), 0);
  EXPECT_NEAR(within(conditions, 72 * kHour, "kept_s"), 72 * kHour, 900);
  EXPECT_LE(conditions.body().size(), 8192u);
}

TEST(FleetConditionsTest, WorkersThatAreDownAndRequestsThatNobodyTakes) {
  FleetConditions conditions(0);
  int64_t at = 0;
  int64_t unserved = 0;
  for (int i = 0; i < 299; ++i) conditions.note({.able = 1, .down = 1}, at += kSecond);
  EXPECT_EQ(said(conditions, "PeltonWorkersDown"), "pending");
  for (int i = 0; i < 2; ++i) conditions.note({.able = 1, .down = 1}, at += kSecond);
  EXPECT_EQ(said(conditions, "PeltonWorkersDown"), "firing");
  EXPECT_EQ(said(conditions, "PeltonNoWorker"), "quiet");
  for (int i = 0; i < 62; ++i) conditions.note({.unserved = ++unserved, .down = 1}, at += kSecond);
  EXPECT_EQ(said(conditions, "PeltonNoWorker"), "firing");
  conditions.note({.unserved = unserved, .able = 1}, at += kSecond);
  EXPECT_EQ(said(conditions, "PeltonNoWorker"), "quiet");
  EXPECT_EQ(said(conditions, "PeltonWorkersDown"), "quiet") << "and begins anew";
}

TEST(FleetConditionsTest, PoolsWhoseReplicasComeAndGo) {
  FleetConditions conditions(0);
  FleetConditions::Pool box{.name = "box", .is_scaled = true, .desired = 2, .ready = 2};
  const FleetConditions::Pool fixed{.name = "fixed", .held = 3};
  int64_t at = 0;
  const auto pass = [&](int seconds) {
    for (int i = 0; i < seconds; ++i) conditions.note({.pools = {box, fixed}}, at += kSecond);
  };
  pass(10);
  EXPECT_EQ(said(conditions, "PeltonReplicasLost", "fixed"), "none");
  box.lost = 1;
  pass(1);
  EXPECT_EQ(said(conditions, "PeltonReplicasLost", "box"), "quiet");
  box.lost = 2;
  box.ready = 1;
  box.alarm = true;
  box.held = 1;
  box.failed_starts = 3;
  pass(1);
  EXPECT_EQ(said(conditions, "PeltonReplicasLost", "box"), "firing");
  EXPECT_EQ(said(conditions, "PeltonStartsFail", "box"), "firing");
  EXPECT_EQ(said(conditions, "PeltonReplicasMissing", "box"), "pending");
  EXPECT_EQ(said(conditions, "PeltonAutoscalerBlind", "box"), "pending");
  pass(120);
  EXPECT_EQ(said(conditions, "PeltonAutoscalerBlind", "box"), "firing");
  EXPECT_EQ(said(conditions, "PeltonHeldLong", "box"), "pending");
  pass(480);
  EXPECT_EQ(said(conditions, "PeltonHeldLong", "box"), "firing");
  EXPECT_EQ(said(conditions, "PeltonStartsFail", "box"), "quiet") << "ten minutes ago";
  pass(300);
  EXPECT_EQ(said(conditions, "PeltonReplicasMissing", "box"), "firing");
  EXPECT_EQ(said(conditions, "PeltonReplicasLost", "box"), "quiet");
}

}  // namespace
}  // namespace pelton::gateway
