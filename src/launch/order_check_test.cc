#include "launch/order_check.h"

#include <gtest/gtest.h>

namespace pelton::launch {
namespace {

using Address = ScaledFleet::Address;

OrderRules rules() {
  return {
      .pools = {{"box", {}}, {"pods", {.takes_names = false, .port = 9100}}},
      .may_stand = [](const std::string& address) { return address != "8.8.8.8"; },
      .is_declared = [](const Address& one) { return one.host == "10.0.0.1" && one.port == 9000; }};
}

// The code, and "" where it may be obeyed.
std::string checked(ExchangeOrder order, const std::vector<Address>& before = {}) {
  leave_out_foreign(order, rules());
  const std::optional<OrderFault> fault = check_order(order, before, rules());
  return fault ? std::string(fault->code) : "";
}

TEST(OrderCheckTest, WhatPoolsDeclareMayBeLaunched) {
  EXPECT_EQ(checked({}), "");
  EXPECT_EQ(checked({.launched = {{"box", "127.0.0.1", 4}, {"box", "node7", 4}}}), "");
  EXPECT_EQ(checked({.launched = {{"pods", "10.1.2.3", 9100}}}), "");
  EXPECT_EQ(checked({.launched = {{"box", "8.8.8.8", 443}}}), "address_not_allowed");
  EXPECT_EQ(checked({.launched = {{"pods", "attacker.example", 9100}}}), "address_not_allowed");
  EXPECT_EQ(checked({.launched = {{"pods", "10.1.2.3", 22}}}), "address_not_allowed");
  // Whatever it was before.
  EXPECT_EQ(checked({.launched = {{"box", "8.8.8.8", 443}}}, {{"box", "8.8.8.8", 443}}),
            "address_not_allowed");
}

TEST(OrderCheckTest, ReplicasOfForeignPoolsAreLeftOutAndTheRestIsObeyed) {
  const Address own{"box", "127.0.0.1", 4};
  const Address foreign{"none", "8.8.8.8", 443};
  ExchangeOrder order{.epoch = 7,
                      .launched = {own, foreign},
                      .draining = {foreign, own},
                      .released = {foreign},
                      .pools = {{.name = "none"}, {.name = "box"}}};
  EXPECT_EQ(checked(order), "");
  leave_out_foreign(order, rules());
  EXPECT_EQ(order, (ExchangeOrder{.epoch = 7,
                                  .launched = {own},
                                  .draining = {own},
                                  .pools = {{.name = "none"}, {.name = "box"}}}));
}

TEST(OrderCheckTest, NobodyElsesAddressIsLaunched) {
  EXPECT_EQ(checked({.launched = {{"box", "10.0.0.1", 9000}}}), "address_taken");
  EXPECT_EQ(checked({.launched = {{"box", "10.0.0.1", 9001}}}), "");
  EXPECT_EQ(checked({.launched = {{"box", "10.0.0.1", 9000}}}, {{"box", "10.0.0.1", 9000}}), "")
      << "it was declared while it ran";
  EXPECT_EQ(checked({.launched = {{"box", "10.0.0.2", 9100}, {"pods", "10.0.0.2", 9100}}}),
            "address_taken");
}

TEST(OrderCheckTest, OnlyWhatWasLaunchedIsDrainedOrStandsBy) {
  const Address one{"box", "10.0.0.2", 9000};
  EXPECT_EQ(checked({.launched = {one}, .draining = {one}, .released = {one}}), "");
  EXPECT_EQ(checked({.draining = {one}}, {one}), "") << "of a pool that is not known yet";
  EXPECT_EQ(checked({.draining = {one}}), "address_not_launched");
  EXPECT_EQ(checked({.released = {one}}), "address_not_launched");
  EXPECT_EQ(checked({.launched = {one}, .draining = {{"pods", one.host, one.port}}}),
            "address_not_launched");
  const std::optional<OrderFault> fault =
      check_order({.draining = {{"box", std::string(5000, 'x'), 1}}}, {}, rules());
  ASSERT_TRUE(fault);
  EXPECT_LT(fault->message.size(), 300u);
}

}  // namespace
}  // namespace pelton::launch
