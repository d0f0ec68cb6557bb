#include "gateway/route_table.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "base/random.h"

namespace pelton::gateway {
namespace {

GatewayConfig split(double weight) {
  return {.pools = {{.name = "old", .models = {"m"}}, {.name = "new", .models = {"m"}}},
          .routes = {{.model = "m",
                      .sticky = RouteConfig::Sticky::kSession,
                      .arms = {{.pool = "old", .name = "a", .weight = 100 - weight},
                               {.pool = "new", .name = "b", .weight = weight}}}}};
}

std::string arm_of(const GatewayConfig& config, const RouteKey& key) {
  const auto choice = choose_route(config, key);
  return choice && choice->arm != nullptr ? choice->arm->name : "";
}

TEST(RouteTable, SharesAreAsTheWeights) {
  const GatewayConfig config = split(5);
  int new_ones = 0;
  constexpr int kRequests = 100'000;
  for (uint64_t i = 0; i < kRequests; ++i) {
    new_ones += arm_of(config, {.model = "m", .draw = base::random_bits(7, i)}) == "b" ? 1 : 0;
  }
  EXPECT_NEAR(new_ones, kRequests * 0.05, kRequests * 0.01);
}

TEST(RouteTable, ASessionStaysAndAWeightMovesOnlyTheDifference) {
  constexpr int kSessions = 20'000;
  int moved = 0;
  for (int i = 0; i < kSessions; ++i) {
    const std::string session = "s" + std::to_string(i);
    const RouteKey key{.model = "m", .session = session, .draw = static_cast<uint64_t>(i)};
    const std::string before = arm_of(split(5), key);
    EXPECT_EQ(arm_of(split(5), {.model = "m", .session = session, .draw = 99}), before);
    const std::string after = arm_of(split(20), key);
    if (before == "b") {
      EXPECT_EQ(after, "b") << "who has the new one keeps it";
    }
    moved += before != after ? 1 : 0;
  }
  EXPECT_NEAR(moved, kSessions * 0.15, kSessions * 0.015);
}

TEST(RouteTable, AnArmWithoutWeightGetsNothing) {
  const GatewayConfig config = split(0);
  for (uint64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(arm_of(config, {.model = "m", .draw = base::random_bits(8, i)}), "a");
  }
}

// GW-14: what a tenant may not have is not there for it.
TEST(RouteTable, ATenantSeesItsModelsAndItsPoolOnly) {
  const GatewayConfig config{
      .pools = {{.name = "eu", .models = {"m", "secret"}}, {.name = "us", .models = {"n"}}},
      .tenants = {{.name = "acme", .models = {"m"}, .pool = {}},
                  {.name = "pinned", .models = {}, .pool = "us"}}};
  const auto pool_of = [&](std::string_view model, std::string_view tenant) {
    const auto choice = choose_route(config, {.model = model, .tenant = tenant});
    return choice ? choice->pool->name : std::string("none");
  };
  EXPECT_EQ(pool_of("m", "acme"), "eu");
  EXPECT_EQ(pool_of("secret", "acme"), "none");
  EXPECT_EQ(pool_of("secret", ""), "eu");
  EXPECT_EQ(pool_of("m", "pinned"), "none");
  EXPECT_EQ(pool_of("n", "pinned"), "us");
  EXPECT_EQ(pool_of("other", ""), "none");
  EXPECT_EQ(pool_of("", "acme"), "none") << "there are two";
}

}  // namespace
}  // namespace pelton::gateway
