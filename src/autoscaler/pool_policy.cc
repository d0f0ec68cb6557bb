#include "autoscaler/pool_policy.h"

#include <algorithm>
#include <bitset>
#include <cmath>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "autoscaler/replica_count.h"

namespace pelton::autoscaler {
namespace {

Result<void> in_range(const char* field, double value, double least, double most) {
  if (std::isfinite(value) && value >= least && value <= most) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} must be {:g} to {:g}, not {:g}", field, least, most, value), field};
}

constexpr int kWeekMinutes = 7 * Schedule::kDayMinutes;
using Week = std::bitset<kWeekMinutes>;  // minutes from Monday 00:00 UTC

// Which minutes it covers, by a clock of that offset.
Week week_of(const Schedule& schedule, int offset_minutes) {
  Week week;
  const int length = schedule.to_minute > schedule.from_minute
                         ? schedule.to_minute - schedule.from_minute
                         : schedule.to_minute - schedule.from_minute + Schedule::kDayMinutes;
  for (int day = 0; day < 7; ++day) {
    if ((schedule.days >> day & 1) == 0) continue;
    const int begin = day * Schedule::kDayMinutes + schedule.from_minute - offset_minutes;
    for (int i = 0; i < length; ++i) {
      week.set(static_cast<size_t>((begin + i + kWeekMinutes) % kWeekMinutes));
    }
  }
  return week;
}

// Which offsets their clocks have at the same time, now or later.
std::set<std::pair<int, int>> offsets_together(const Schedule& a, const Schedule& b) {
  std::set<std::pair<int, int>> pairs;
  const auto add = [&](int64_t unix_s) {
    pairs.emplace(a.offset_minutes(unix_s), b.offset_minutes(unix_s));
  };
  add(base::TimeZone::kBegin_s);
  for (const base::TimeZone* const zone : {&a.zone, &b.zone}) {
    for (const base::TimeZone::Change& one : zone->changes) add(one.at_s);
  }
  return pairs;
}

// Two by one clock never do because it is set: hours that it leaves out or has twice are so for
// both. Otherwise they do where a week in which their clocks are so far apart has a common minute.
bool overlap(const Schedule& a, const Schedule& b) {
  if (a.zone == b.zone && a.utc_offset_minutes == b.utc_offset_minutes) {
    return (week_of(a, 0) & week_of(b, 0)).any();
  }
  std::set<int> apart;
  for (const auto& [first, second] : offsets_together(a, b)) apart.insert(second - first);
  const Week week = week_of(a, 0);
  return std::ranges::any_of(apart,
                             [&](int minutes) { return (week & week_of(b, minutes)).any(); });
}

Result<void> check_schedule(const Schedule& one, int replicas_min, int replicas_max) {
  constexpr int kOffsetMax = 14 * 60;
  const auto bad = [](std::string message) {
    return Error{ErrorCode::kInvalidArgument, std::move(message), "schedules"};
  };
  if (one.days == 0 || one.days > Schedule::kEveryDay) return bad("a schedule needs a day");
  TRY(in_range("schedules.from", one.from_minute, 0, Schedule::kDayMinutes - 1));
  TRY(in_range("schedules.to", one.to_minute, 0, Schedule::kDayMinutes));
  TRY(in_range("schedules.zone", one.utc_offset_minutes, -kOffsetMax, kOffsetMax));
  if (one.from_minute == one.to_minute) return bad("a schedule ends when it begins");
  if (!one.replicas_min && !one.replicas_max) return bad("a schedule needs a min or a max");
  const int least = one.replicas_min.value_or(replicas_min);
  const int most = one.replicas_max.value_or(replicas_max);
  TRY(in_range("schedules.min", least, 0, kReplicasMax));
  TRY(in_range("schedules.max", most, 1, kReplicasMax));
  if (least <= most) return {};
  return bad(fmt::format("a schedule's min ({}) is more than its max ({})", least, most));
}

}  // namespace

int Schedule::offset_minutes(int64_t unix_s) const {
  return zone.name.empty() ? utc_offset_minutes : zone.offset_at(unix_s) / 60;
}

bool Schedule::covers(int64_t unix_s) const {
  // 1970-01-01 was a Thursday.
  constexpr int64_t kThursday = 3 * int64_t{kDayMinutes};
  const int64_t local = unix_s / 60 + offset_minutes(unix_s) + kThursday;
  const auto minute = static_cast<int>((local % kWeekMinutes + kWeekMinutes) % kWeekMinutes);
  const int day = minute / kDayMinutes;
  const int of_day = minute % kDayMinutes;
  const auto on = [&](int which) { return (days >> which & 1) != 0; };
  if (to_minute > from_minute) return on(day) && of_day >= from_minute && of_day < to_minute;
  return (on(day) && of_day >= from_minute) || (on((day + 6) % 7) && of_day < to_minute);
}

int PoolPolicy::affordable() const {
  int most = kReplicasMax;
  if (gpus_max && gpus_each > 0) most = std::min(most, *gpus_max / gpus_each);
  // Half a millionth of a replica more is a rounding error.
  if (price_max && price_each > 0) {
    most = static_cast<int>(std::min(static_cast<double>(most), *price_max / price_each + 5e-7));
  }
  return most;
}

PoolPolicy::Bounds PoolPolicy::bounds(int64_t unix_s) const {
  Bounds bounds{.least = replicas_min, .most = replicas_max};
  for (const Schedule& one : schedules) {
    if (!one.covers(unix_s)) continue;
    if (one.replicas_min) {
      bounds.least = *one.replicas_min;
      bounds.least_by = Bounds::Source::kSchedule;
    }
    if (one.replicas_max) {
      bounds.most = *one.replicas_max;
      bounds.most_by = Bounds::Source::kSchedule;
    }
  }
  if (gpus_max && gpus_each > 0 && *gpus_max / gpus_each < bounds.most) {
    bounds.most = *gpus_max / gpus_each;
    bounds.most_by = Bounds::Source::kGpus;
  }
  if (affordable() < bounds.most) {
    bounds.most = affordable();
    bounds.most_by = Bounds::Source::kPrice;
  }
  bounds.least = std::min(bounds.least, bounds.most);
  return bounds;
}

Result<void> PoolPolicy::check_limits() const {
  constexpr double kGpusMax = 1e5;
  constexpr double kPriceMax = 1e9;
  TRY(in_range("gpus_each", gpus_each, 0, kGpusMax));
  TRY(in_range("price_each", price_each, 0, kPriceMax));
  if (gpus_max) TRY(in_range("gpus_max", *gpus_max, 1, kGpusMax));
  if (price_max) TRY(in_range("price_max", *price_max, 1e-6, kPriceMax));
  const auto bad = [](const char* field, std::string message) {
    return Error{ErrorCode::kInvalidArgument, std::move(message), field};
  };
  if (gpus_max && gpus_each == 0) {
    return bad("gpus_max", "gpus_max says nothing without gpus_each, which a replica takes");
  }
  if (price_max && price_each == 0) {
    return bad("price_max", "price_max says nothing without price_each, which a replica costs");
  }
  int most_needed = std::max(replicas_min, 1);
  const int prompts = prefill ? prefill->replicas_min : 0;
  for (const Schedule& one : schedules) {
    most_needed = std::max(most_needed, one.replicas_min.value_or(0));
  }
  most_needed += prompts;
  if (affordable() >= most_needed) return {};
  return bad(gpus_max ? "gpus_max" : "price_max",
             fmt::format("the limits by GPUs and price allow {} replicas, and {} are the least",
                         affordable(), most_needed));
}

// What one role needs is a matter of first tokens, and what the other one does of gaps.
Result<void> PoolPolicy::check_prefill() const {
  if (!prefill) return {};
  TRY(in_range("prefill_min", prefill->replicas_min, 0, kReplicasMax));
  TRY(in_range("prefill_max", prefill->replicas_max, 1, kReplicasMax));
  const auto bad = [](const char* field, std::string message) {
    return Error{ErrorCode::kInvalidArgument, std::move(message), field};
  };
  if (prefill->replicas_min > prefill->replicas_max) {
    return bad("prefill_min", fmt::format("prefill_min ({}) is more than prefill_max ({})",
                                          prefill->replicas_min, prefill->replicas_max));
  }
  if (rule != Rule::kSlo || !slo.first_token_s || !slo.gap_s) {
    return bad("prefill",
               "replicas of two roles are scaled by an objective: the rule slo with both of first "
               "tokens and of gaps");
  }
  if (standby == 0) return {};
  return bad("standby", "standby is of replicas that do the whole of a request");
}

Result<void> PoolPolicy::check_schedules() const {
  constexpr size_t kSchedulesMax = 64;
  TRY(in_range("schedules", static_cast<double>(schedules.size()), 0, kSchedulesMax));
  for (size_t i = 0; i < schedules.size(); ++i) {
    TRY(check_schedule(schedules[i], replicas_min, replicas_max));
    for (size_t earlier = 0; earlier < i; ++earlier) {
      if (!overlap(schedules[earlier], schedules[i])) continue;
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("schedule {} overlaps schedule {}: which bounds hold then?", i + 1,
                               earlier + 1),
                   "schedules"};
    }
  }
  return {};
}

Result<void> PoolPolicy::check() const {
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
  TRY(in_range("standby", standby, 0, kReplicasMax));
  if (replicas_min + standby > replicas_max) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("standby ({}) beside the least ({}) is more than replicas_max ({})",
                             standby, replicas_min, replicas_max),
                 "standby"};
  }
  if (slo.first_token_s) TRY(in_range("slo.first_token_s", *slo.first_token_s, 1e-3, kHour));
  if (slo.gap_s) TRY(in_range("slo.gap_s", *slo.gap_s, 1e-4, 60));
  TRY(in_range("slo.percentile", slo.percentile, 0.5 - 1e-9, 0.999 + 1e-9));
  if (rule == Rule::kSlo && target_utilization && !concurrency_target) {
    return Error{ErrorCode::kInvalidArgument,
                 "target_utilization is of concurrency_target, which an objective does not need",
                 "target_utilization"};
  }
  const bool has_objective = slo.first_token_s || slo.gap_s;
  if (has_objective != (rule == Rule::kSlo)) {
    return Error{ErrorCode::kInvalidArgument,
                 has_objective
                     ? "an objective is kept by the rule slo alone"
                     : "the rule slo needs an objective: of first tokens, of gaps, or both",
                 "slo"};
  }
  TRY(check_prefill());
  TRY(check_schedules());
  return check_limits();
}

}  // namespace pelton::autoscaler
