#include "autoscaler/pool_policy.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::autoscaler {
namespace {

TEST(PoolPolicyTest, DefaultsHold) {
  EXPECT_TRUE(PoolPolicy{}.check().ok());
}

TEST(PoolPolicyTest, EachSettingIsRefusedByNameWithItsRange) {
  const auto refused = [](auto change, const char* field) {
    PoolPolicy policy{.replicas_max = 8};
    change(policy);
    const Result<void> checked = policy.check();
    ASSERT_FALSE(checked.ok()) << field;
    EXPECT_EQ(checked.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(checked.error().message, testing::HasSubstr(field));
  };
  refused([](PoolPolicy& p) { p.replicas_min = -1; }, "replicas_min");
  refused([](PoolPolicy& p) { p.replicas_min = 9; },
          "replicas_min (9) is more than replicas_max (8)");
  refused([](PoolPolicy& p) { p.replicas_max = 0; }, "replicas_max");
  refused([](PoolPolicy& p) { p.window_s = 0; }, "window_s must be 6 to 3600, not 0");
  refused([](PoolPolicy& p) { p.panic_window_share = 0; }, "panic_window_share");
  refused([](PoolPolicy& p) { p.panic_threshold = 1; }, "panic_threshold");
  refused([](PoolPolicy& p) { p.concurrency_target = 0; }, "concurrency_target");
  refused([](PoolPolicy& p) { p.target_utilization = 3; }, "target_utilization");
  refused([](PoolPolicy& p) { p.scale_down_delay_s = -1; }, "scale_down_delay_s");
  refused([](PoolPolicy& p) { p.scale_down_rate_max = 0; }, "scale_down_rate_max");
  refused([](PoolPolicy& p) { p.backlog_s = std::nan(""); }, "backlog_s");
  refused([](PoolPolicy& p) { p.idle_to_zero_s = 0; }, "idle_to_zero_s");
  refused([](PoolPolicy& p) { p.standby = -1; }, "standby");
  refused([](PoolPolicy& p) { p.gpus_max = 4; }, "gpus_max says nothing without gpus_each");
  refused([](PoolPolicy& p) { p.price_max = 4; }, "price_max says nothing without price_each");
  refused([](PoolPolicy& p) { p.price_each = std::nan(""); }, "price_each");
  refused([](PoolPolicy& p) { p.price_each = -1; }, "price_each");
  refused(
      [](PoolPolicy& p) {
        p.gpus_each = 2;
        p.gpus_max = 5;
        p.replicas_min = 3;
      },
      "allow 2 replicas, and 3 are the least");
  const Schedule day{.from_minute = 480, .to_minute = 1200, .replicas_min = 2};
  const auto scheduled = [&](const Schedule& one, const char* what) {
    refused([&](PoolPolicy& p) { p.schedules = {one}; }, what);
  };
  scheduled({.from_minute = 480, .to_minute = 1200}, "needs a min or a max");
  scheduled({.days = 0, .replicas_min = 1}, "needs a day");
  scheduled({.from_minute = 7, .to_minute = 7, .replicas_min = 1}, "ends when it begins");
  scheduled({.replicas_min = 9}, "a schedule's min (9) is more than its max (8)");
  scheduled({.utc_offset_minutes = 900, .replicas_min = 1}, "schedules.zone");
  refused([&](PoolPolicy& p) { p.schedules = {day, day}; }, "schedule 2 overlaps");
  // Over midnight, and over the week's end.
  const Schedule night{.days = 0x40, .from_minute = 1320, .to_minute = 360, .replicas_max = 2};
  const Schedule monday{.days = 0x01, .from_minute = 300, .to_minute = 400, .replicas_max = 2};
  refused([&](PoolPolicy& p) { p.schedules = {night, monday}; }, "schedule 2 overlaps");
  // The same hours by another clock are others.
  Schedule elsewhere = day;
  elsewhere.from_minute = 400;
  elsewhere.to_minute = 500;
  refused([&](PoolPolicy& p) { p.schedules = {day, elsewhere}; }, "schedule 2 overlaps");
  elsewhere.utc_offset_minutes = 60;
  PoolPolicy apart{.replicas_max = 8, .schedules = {day, elsewhere}};
  EXPECT_TRUE(apart.check().ok());
}

// 2026-11-24 was a Tuesday; 1 795 478 400 is its midnight, UTC.
TEST(PoolPolicyTest, WhenASchedulesHoldsSaysItsClock) {
  constexpr int64_t kTuesday = 1'795'478'400;
  constexpr int64_t kHour = 3600;
  const Schedule day{.days = 0x02, .from_minute = 480, .to_minute = 1200, .replicas_min = 1};
  EXPECT_FALSE(day.covers(kTuesday + 8 * kHour - 1));
  EXPECT_TRUE(day.covers(kTuesday + 8 * kHour));
  EXPECT_TRUE(day.covers(kTuesday + 20 * kHour - 1));
  EXPECT_FALSE(day.covers(kTuesday + 20 * kHour));
  EXPECT_FALSE(day.covers(kTuesday + 34 * kHour)) << "Wednesday";
  Schedule east = day;
  east.utc_offset_minutes = 120;
  EXPECT_TRUE(east.covers(kTuesday + 6 * kHour));
  EXPECT_FALSE(east.covers(kTuesday + 18 * kHour));
  // From Tuesday's evening to Wednesday's morning.
  const Schedule night{.days = 0x02, .from_minute = 1320, .to_minute = 360, .replicas_min = 1};
  EXPECT_FALSE(night.covers(kTuesday + 5 * kHour));
  EXPECT_TRUE(night.covers(kTuesday + 22 * kHour));
  EXPECT_TRUE(night.covers(kTuesday + 29 * kHour));
  EXPECT_FALSE(night.covers(kTuesday + 30 * kHour));
}

TEST(PoolPolicyTest, TheNarrowestOfTheCeilingsHolds) {
  using Source = PoolPolicy::Bounds::Source;
  PoolPolicy policy{.replicas_min = 1, .replicas_max = 10};
  EXPECT_EQ(policy.bounds(0).most, 10);
  EXPECT_EQ(policy.bounds(0).most_by, Source::kPolicy);
  policy.gpus_each = 4;
  policy.gpus_max = 30;
  EXPECT_EQ(policy.bounds(0).most, 7);
  EXPECT_EQ(policy.bounds(0).most_by, Source::kGpus);
  policy.price_each = 0.1;
  policy.price_max = 0.3;  // 0.3 / 0.1 is a little less than 3
  EXPECT_EQ(policy.bounds(0).most, 3);
  EXPECT_EQ(policy.bounds(0).most_by, Source::kPrice);
  policy.schedules = {{.replicas_min = 2, .replicas_max = 20}};
  EXPECT_EQ(policy.bounds(0).most, 3) << "no schedule buys what is not there";
  EXPECT_EQ(policy.bounds(0).least, 2);
  EXPECT_EQ(policy.bounds(0).least_by, Source::kSchedule);
}

}  // namespace
}  // namespace pelton::autoscaler
