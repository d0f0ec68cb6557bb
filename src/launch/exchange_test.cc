#include "launch/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::launch {
namespace {

using autoscaler::PoolPhase;

TEST(ExchangeTest, AnOrderAndAReportAreReadAsTheyWereWritten) {
  const ExchangeOrder order{
      .epoch = 1'763'000'000'000,
      .launched = {{"box", "127.0.0.1", 9000}, {"box", "::1", 9001}},
      .draining = {{"box", "::1", 9001}},
      .released = {{"box", "::1", 9001}},
      .pools = {{.name = "box",
                 .retirement = 7,
                 .announcement = {
                     .phase = PoolPhase::kStarting, .eta_s = 2.5, .failure = "no", .again_s = 1}}}};
  const Result<ExchangeOrder> read = parse_order_body(order_body(order));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, order);
  // One of an earlier version names nobody whose memory goes.
  const Result<ExchangeOrder> older =
      parse_order_body(R"({"epoch":1,"launched":[],"draining":[],"pools":[]})");
  ASSERT_TRUE(older.ok());
  EXPECT_TRUE(older->released.empty());
  EXPECT_FALSE(older->advises) << "it orders";
  const Result<ExchangeOrder> advice = parse_order_body(order_body({.epoch = 3, .advises = true}));
  ASSERT_TRUE(advice.ok());
  EXPECT_TRUE(advice->advises);

  const ExchangeReport report{
      .pools = {{.name = "box",
                 .report = autoscaler::GatewayReport{.gateway = "g",
                                                     .incarnation = ~uint64_t{0},
                                                     .sequence = 3,
                                                     .requests = 9,
                                                     .in_service_s = 1.25},
                 .workers = {{.host = "h", .port = 5, .is_ready = true, .slots = 8, .open = 2}}},
                {.name = "other", .report = std::nullopt, .workers = {}}}};
  const Result<ExchangeReport> back = parse_report_body(report_body(report));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(report_body(*back), report_body(report));
  EXPECT_EQ(back->pools[0].report->incarnation, ~uint64_t{0});
  EXPECT_FALSE(back->pools[1].report.has_value());
}

TEST(ExchangeTest, WhatIsNoneIsRefused) {
  for (const char* const body :
       {"", "{", "{}", R"({"epoch":1})", R"({"epoch":-1,"launched":[],"draining":[],"pools":[]})",
        R"({"epoch":1,"launched":[{"pool":"a","host":"h","port":0}],"draining":[],"pools":[]})",
        R"({"epoch":1,"launched":[3],"draining":[],"pools":[]})",
        R"({"epoch":1,"launched":[],"draining":[],"released":7,"pools":[]})",
        R"({"epoch":1,"launched":[],"draining":[],"pools":[{"pool":"a","state":"hot"}]})"}) {
    EXPECT_FALSE(parse_order_body(body).ok()) << body;
  }
  for (const char* const body :
       {"", "{}", R"({"pools":[{"pool":"a"}]})",
        R"({"pools":[{"pool":"a","workers":[],"report":{"gateway":3}}]})"}) {
    EXPECT_FALSE(parse_report_body(body).ok()) << body;
  }
}

}  // namespace
}  // namespace pelton::launch
