#include "autoscaler/demand.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace pelton::autoscaler {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// A gateway at which `rate` requests a second come and each takes `service_s`.
GatewayReport report_at(int64_t second, int rate, double service_s) {
  return {.gateway = "g",
          .incarnation = 7,
          .sequence = static_cast<uint64_t>(second),
          .requests = second * rate,
          .finished = second * rate,
          .in_service_s = static_cast<double>(second) * rate * service_s,
          .in_service = static_cast<int>(rate * service_s),
          .at_ns = second * kSecond};
}

TEST(DemandExample, TwoRequestsASecondOfEightSecondsAreSixteenInService) {
  Demand demand(60);
  for (int64_t second = 1; second <= 100; ++second) {
    const GatewayReport report = report_at(second, 2, 8);
    demand.note({&report, 1}, second * kSecond);
  }
  const Demand::Window window = demand.over(60, 100 * kSecond);
  EXPECT_NEAR(window.rate, 2, 1e-9);
  EXPECT_NEAR(window.in_service, 16, 1e-9);
  EXPECT_NEAR(window.service_s, 8, 1e-9);
  EXPECT_NEAR(window.span_s, 60, 1e-9);
  EXPECT_NEAR(demand.over(15, 100 * kSecond).rate, 2, 1e-9);
}

TEST(DemandTest, ReportsThatAreLostOrComeTwiceDoNoHarm) {
  Demand whole(60);
  Demand holed(60);
  for (int64_t second = 1; second <= 60; ++second) {
    const GatewayReport report = report_at(second, 3, 4);
    whole.note({&report, 1}, second * kSecond);
    if (second % 3 != 0) continue;
    holed.note({&report, 1}, second * kSecond);
    holed.note({&report, 1}, second * kSecond);
  }
  EXPECT_NEAR(holed.over(30, 60 * kSecond).rate, whole.over(30, 60 * kSecond).rate, 1e-9);
}

TEST(DemandTest, ARequestThatCameAndWentBetweenTwoReportsIsCounted) {
  Demand demand(60);
  GatewayReport report = report_at(1, 0, 0);
  demand.note({&report, 1}, 1 * kSecond);
  report.sequence = 2;
  report.requests = 1;
  report.finished = 1;
  report.in_service_s = 0.2;
  demand.note({&report, 1}, 2 * kSecond);
  EXPECT_EQ(demand.last_request_ns(), 2 * kSecond);
  EXPECT_GT(demand.over(60, 2 * kSecond).rate, 0);
}

TEST(DemandTest, AGatewayThatBeganAnewCountsFromZero) {
  Demand demand(60);
  GatewayReport report = report_at(1, 1000, 1);
  demand.note({&report, 1}, 1 * kSecond);
  report = {.gateway = "g", .incarnation = 8, .sequence = 1, .requests = 5};
  demand.note({&report, 1}, 2 * kSecond);
  EXPECT_NEAR(demand.over(60, 2 * kSecond).rate * 15, 5, 1e-9);
  EXPECT_EQ(demand.rejected(), 0);
}

TEST(DemandTest, CountersThatFallOrAreNoNumbersAreRejected) {
  Demand demand(60);
  GatewayReport report = report_at(10, 2, 1);
  demand.note({&report, 1}, 10 * kSecond);
  GatewayReport fallen = report_at(11, 1, 1);
  demand.note({&fallen, 1}, 11 * kSecond);
  GatewayReport none = report_at(12, 2, 1);
  none.in_service_s = std::nan("");
  demand.note({&none, 1}, 12 * kSecond);
  GatewayReport endless = report_at(13, 2, 1);
  endless.held_s = INFINITY;
  demand.note({&endless, 1}, 13 * kSecond);
  EXPECT_EQ(demand.rejected(), 3);
  EXPECT_EQ(demand.over(60, 13 * kSecond).rate, 0);
}

// A thousand million requests in a second have come to no gateway.
TEST(DemandTest, CountersThatLeapAreRejectedAndCountedFromAnew) {
  Demand demand(60);
  GatewayReport report = report_at(1, 3, 4);
  demand.note({&report, 1}, kSecond);
  report = report_at(2, 3, 4);
  report.requests += 1'000'000'000;
  demand.note({&report, 1}, 2 * kSecond);
  EXPECT_EQ(demand.rejected(), 1);
  EXPECT_LT(demand.over(15, 2 * kSecond).rate, 1);
  EXPECT_EQ(demand.last_report_ns(), 2 * kSecond) << "it has been heard";
  report.requests += 3;
  ++report.sequence;
  demand.note({&report, 1}, 3 * kSecond);
  EXPECT_EQ(demand.rejected(), 1);
  EXPECT_NEAR(demand.over(15, 3 * kSecond).rate, 3 / 15.0, 1e-9);
  // As many in service.
  ++report.sequence;
  report.in_service_s += 1e9;
  demand.note({&report, 1}, 4 * kSecond);
  EXPECT_EQ(demand.rejected(), 2);
  EXPECT_LT(demand.over(15, 4 * kSecond).in_service, 100);
}

TEST(DemandTest, WhatIsOlderThanTheWindowIsForgotten) {
  Demand demand(6);
  for (int64_t second = 1; second <= 10; ++second) {
    const GatewayReport report = report_at(second, 5, 1);
    demand.note({&report, 1}, second * kSecond);
  }
  GatewayReport last = report_at(10, 5, 1);
  for (int64_t second = 11; second <= 20; ++second) {
    last.sequence = static_cast<uint64_t>(second);
    demand.note({&last, 1}, second * kSecond);
  }
  EXPECT_EQ(demand.over(6, 20 * kSecond).rate, 0);
}

TEST(DemandTest, AGatewayThatIsNewMayHaveReceivedOneJustNow) {
  Demand demand(60);
  GatewayReport report{.gateway = "g", .incarnation = 1, .sequence = 1};
  demand.note({&report, 1}, 5 * kSecond);
  EXPECT_EQ(demand.last_request_ns(), 5 * kSecond);
  ++report.sequence;
  demand.note({&report, 1}, 7 * kSecond);
  EXPECT_EQ(demand.last_request_ns(), 5 * kSecond);
  report = {.gateway = "g", .incarnation = 2, .sequence = 1};
  demand.note({&report, 1}, 9 * kSecond);
  EXPECT_EQ(demand.last_request_ns(), 9 * kSecond);
}

// One a second over a window of 6 s: never 20 in it, and known all the same.
TEST(DemandTest, HowLongTheLastOnesTookIsKnownBeyondTheWindow) {
  Demand demand(6);
  for (int64_t second = 1; second <= 100; ++second) {
    const GatewayReport report = report_at(second, 1, 0.5);
    demand.note({&report, 1}, second * kSecond);
  }
  EXPECT_LT(demand.over(6, 100 * kSecond).finished, 20);
  EXPECT_GE(demand.lately().finished, 20);
  EXPECT_NEAR(demand.lately().service_s, 0.5, 1e-9);
}

}  // namespace
}  // namespace pelton::autoscaler
