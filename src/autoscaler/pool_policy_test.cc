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
}

}  // namespace
}  // namespace pelton::autoscaler
