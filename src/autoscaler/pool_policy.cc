#include "autoscaler/pool_policy.h"

#include <cmath>

#include <fmt/format.h>

namespace pelton::autoscaler {
namespace {

Result<void> in_range(const char* field, double value, double least, double most) {
  if (std::isfinite(value) && value >= least && value <= most) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} must be {:g} to {:g}, not {:g}", field, least, most, value), field};
}

}  // namespace

Result<void> PoolPolicy::check() const {
  constexpr double kReplicasMax = 10'000;
  constexpr double kHour = 3600;
  TRY(in_range("replicas_min", replicas_min, 0, kReplicasMax));
  TRY(in_range("replicas_max", replicas_max, 1, kReplicasMax));
  if (replicas_min > replicas_max) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("replicas_min ({}) is more than replicas_max ({})", replicas_min, replicas_max),
        "replicas_min"};
  }
  TRY(in_range("window_s", window_s, 6, kHour));
  TRY(in_range("panic_window_share", panic_window_share, 0.01, 1));
  TRY(in_range("panic_threshold", panic_threshold, 1.1, 1000));
  if (concurrency_target) TRY(in_range("concurrency_target", *concurrency_target, 0.01, 1e6));
  if (target_utilization) TRY(in_range("target_utilization", *target_utilization, 0.01, 1));
  if (scale_down_delay_s) TRY(in_range("scale_down_delay_s", *scale_down_delay_s, 0, kHour));
  TRY(in_range("scale_down_rate_max", scale_down_rate_max, 0.01, 1));
  if (backlog_s) TRY(in_range("backlog_s", *backlog_s, 1, kHour));
  TRY(in_range("idle_to_zero_s", idle_to_zero_s, 1, 24 * kHour));
  return in_range("standby", standby, 0, kReplicasMax);
}

}  // namespace pelton::autoscaler
