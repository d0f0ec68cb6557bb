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

// 2026-03-29, a Sunday: clocks are set at 01:00 UTC from one to two hours before it; back on
// 2026-10-25.
base::TimeZone berlin() {
  return {.name = "Europe/Berlin",
          .offset_s = 3600,
          .changes = {{1'774'746'000, 7200}, {1'792'890'000, 3600}}};
}

TEST(PoolPolicyTest, AScheduleFollowsItsPlacesClock) {
  constexpr int64_t kHour = 3600;
  constexpr int64_t kSpring = 1'774'746'000;
  const Schedule morning{.from_minute = 480, .to_minute = 540, .zone = berlin(), .replicas_min = 1};
  const int64_t before = kSpring - 24 * kHour + 6 * kHour;  // Saturday 07:00 UTC
  EXPECT_TRUE(morning.covers(before)) << "it is 08:00";
  EXPECT_FALSE(morning.covers(before - 1));
  const int64_t after = kSpring + 5 * kHour;  // Sunday 06:00 UTC
  EXPECT_TRUE(morning.covers(after)) << "it is 08:00";
  EXPECT_FALSE(morning.covers(after + kHour));
  // Hours that are left out: what would begin in them begins behind them.
  const Schedule early{.from_minute = 150, .to_minute = 240, .zone = berlin(), .replicas_min = 1};
  EXPECT_FALSE(early.covers(kSpring - 1));
  EXPECT_TRUE(early.covers(kSpring)) << "it is 03:00";
  // And that come twice.
  constexpr int64_t kAutumn = 1'792'890'000;
  const Schedule third{.from_minute = 120, .to_minute = 180, .zone = berlin(), .replicas_min = 1};
  EXPECT_TRUE(third.covers(kAutumn - 1));
  EXPECT_TRUE(third.covers(kAutumn));
  EXPECT_FALSE(third.covers(kAutumn + kHour));
}

TEST(PoolPolicyTest, SchedulesOfTwoClocksOverlapWhereTheyDoAtAnyTimeOfTheYear) {
  const auto fit = [](const Schedule& a, const Schedule& b) {
    return PoolPolicy{.replicas_max = 8, .schedules = {a, b}}.check().ok();
  };
  // 07:00 to 08:00 UTC in winter, 06:00 to 07:00 in summer.
  const Schedule place{.from_minute = 480, .to_minute = 540, .zone = berlin(), .replicas_min = 1};
  Schedule utc{.from_minute = 480, .to_minute = 540, .replicas_min = 1};
  EXPECT_TRUE(fit(place, utc));
  utc.from_minute = 390;
  utc.to_minute = 420;
  EXPECT_FALSE(fit(place, utc)) << "in summer";
  EXPECT_FALSE(fit(utc, place));
  utc.from_minute = 420;
  utc.to_minute = 450;
  EXPECT_FALSE(fit(place, utc)) << "in winter";
  utc.from_minute = 330;
  utc.to_minute = 360;
  EXPECT_TRUE(fit(place, utc));
  // Of one place what lies beside each other does so whenever its clock is set.
  Schedule next = place;
  next.from_minute = 540;
  next.to_minute = 600;
  EXPECT_TRUE(fit(place, next));
  next.from_minute = 539;
  EXPECT_FALSE(fit(place, next));
  // Two places that are set at once stay as far apart.
  base::TimeZone london = berlin();
  london.name = "Europe/London";
  london.offset_s = 0;
  london.changes[0].offset_s = 3600;
  london.changes[1].offset_s = 0;
  Schedule there = place;
  there.zone = london;
  there.from_minute = 480;  // 09:00 in Berlin
  EXPECT_TRUE(fit(place, there));
  there.from_minute = 479;
  EXPECT_FALSE(fit(place, there));
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
