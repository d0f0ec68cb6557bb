#include "gateway/limit_split.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace pelton::gateway {
namespace {

TEST(LimitSplit, OneAloneHasAllAndAllTogetherNoMore) {
  EXPECT_DOUBLE_EQ(limit_share({{"a", {}}}, "a", "k"), 1);
  EXPECT_DOUBLE_EQ(limit_share({}, "a", "k"), 1);
  uint64_t draw = 0;
  for (int round = 0; round < 200; ++round) {
    GatewayDemands all;
    const auto count = 1 + base::random_bits(7, draw++) % 6;
    for (uint64_t i = 0; i < count; ++i) {
      const double demand = static_cast<double>(base::random_bits(7, draw++) % 11) / 10;
      all[std::to_string(i)] = demand > 0 ? LimitDemands{{"k", demand}} : LimitDemands{};
    }
    double sum = 0;
    for (const auto& [name, demands] : all) {
      const double share = limit_share(all, name, "k");
      EXPECT_GT(share, 0);
      sum += share;
    }
    EXPECT_NEAR(sum, 1, 1e-9);
  }
}

TEST(LimitSplit, WhoWantsLessHasAllOfThat) {
  const GatewayDemands all = {{"a", {{"k", 1.0}}}, {"b", {{"k", 0.2}}}, {"c", {}}};
  EXPECT_NEAR(limit_share(all, "b", "k"), 0.2, 1e-9);
  EXPECT_NEAR(limit_share(all, "c", "k"), 0.1 / 3, 1e-9);
  EXPECT_NEAR(limit_share(all, "a", "k"), 1 - 0.2 - 0.1 / 3, 1e-9);
  EXPECT_NEAR(limit_share(all, "a", "other"), 1.0 / 3, 1e-9);
}

TEST(LimitSplit, PartsAreWholeNumbersAndNeverNone) {
  const admission::Limits part =
      part_of({.requests_per_minute = 10, .tokens_per_minute = 0, .concurrent_requests = 2}, 0.25);
  EXPECT_EQ(part.requests_per_minute, 2);
  EXPECT_EQ(part.tokens_per_minute, 0) << "no bound stays none";
  EXPECT_EQ(part.concurrent_requests, 1);
  EXPECT_EQ(part_of({.requests_per_minute = 60}, 1).requests_per_minute, 60);
}

TEST(LimitSplit, DemandsTravelAsJson) {
  const LimitDemands demands = {{"a", 0.5}, {"b", 1}};
  EXPECT_EQ(*decode_limit_demands(encode(demands)), demands);
  EXPECT_EQ(decode_limit_demands(R"({"accounts":{"a":-3,"b":9}})")->at("b"), 1);
  for (const char* const text : {"", "{}", R"({"accounts":[]})", R"({"accounts":{"a":"b"}})"}) {
    EXPECT_FALSE(decode_limit_demands(text).ok()) << text;
  }
}

}  // namespace
}  // namespace pelton::gateway
