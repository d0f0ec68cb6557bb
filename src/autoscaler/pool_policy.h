// How one pool of replicas is scaled: the settings of an operator, under the names that users of
// Knative and Baseten know. A value; read from a file by whoever owns the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autoscaler/slo_capacity.h"
#include "base/result.h"
#include "base/time_zone.h"

namespace pelton::autoscaler {

// Other bounds for certain hours of certain days. `to` at or before `from`: over midnight, and
// whose day it is then says its beginning.
struct Schedule {
  static constexpr int kDayMinutes = 24 * 60;
  static constexpr uint8_t kEveryDay = 0x7f;

  uint8_t days = kEveryDay;  // bit 0: Monday
  int from_minute = 0;       // of the day
  int to_minute = kDayMinutes;
  // Of the clock that the hours are meant by: an offset, or a place's, which is set now and then.
  int utc_offset_minutes = 0;
  base::TimeZone zone = {};
  std::optional<int> replicas_min;
  std::optional<int> replicas_max;

  bool covers(int64_t unix_s) const;
  int offset_minutes(int64_t unix_s) const;
};

struct PoolPolicy {
  enum class Rule {
    kConcurrency,  // flow and backlog apart (pool_scaler.h)
    kKnative,      // Knative's KPA, exactly (knative_policy.h)
    kSlo,          // as kConcurrency, its flow by what keeps `slo` (slo_capacity.h)
  };
  Rule rule = Rule::kConcurrency;
  SloObjective slo;  // of kSlo
  int replicas_min = 0;
  int replicas_max = 1;
  double window_s = 60;
  double panic_window_share = 0.1;  // of the window
  double panic_threshold = 2;       // desired by the panic window, over ready replicas
  // Requests in service at a replica; none: the slots that it has, and under kSlo nothing beyond
  // what keeps the objective.
  std::optional<double> concurrency_target;
  // Of that target, planned to be in use; none: square-root staffing.
  std::optional<double> target_utilization;
  // None: ten starts, within the window and 300 s. What can be had again soon need not be kept.
  std::optional<double> scale_down_delay_s;
  double scale_down_rate_max = 0.5;  // of the surplus, in each delay
  // In which what has piled up is to be served. None: 30 s, or a quarter of a start if that is
  // more: replicas that take long to start are not worth starting for a moment.
  std::optional<double> backlog_s;
  double idle_to_zero_s = 600;  // without a request, until the last replica goes
  // Beyond those needed, also while none is: loaded, and asked nothing until they are woken.
  int standby = 0;
  // What one replica takes, and what all may together: ceilings that nothing relaxes.
  int gpus_each = 0;
  std::optional<int> gpus_max;
  double price_each = 0;  // an hour, in whatever currency
  std::optional<double> price_max;
  std::vector<Schedule> schedules;  // no two at the same time
  // Of a pool whose requests are split between replicas of two roles: those that compute prompts.
  // `replicas_min`, `replicas_max`, schedules and guard are then of those that go on with answers;
  // GPUs and price, of all of them.
  struct Prefill {
    int replicas_min = 1;  // 0: none where the others do as well with whole requests
    int replicas_max = 1;
  };
  std::optional<Prefill> prefill;

  // What GPUs and price allow; replicas_max is not among them.
  int affordable() const;
  struct Bounds {
    enum class Source { kPolicy, kSchedule, kGpus, kPrice };
    int least = 0;
    int most = 0;
    Source least_by = Source::kPolicy;
    Source most_by = Source::kPolicy;
  };
  // `unix_s`: the time of day decides which schedule holds.
  Bounds bounds(int64_t unix_s) const;

  // Errors: kInvalidArgument, whose field names the setting and whose message its range.
  Result<void> check() const;

 private:
  Result<void> check_limits() const;
  Result<void> check_prefill() const;
  Result<void> check_schedules() const;
};

}  // namespace pelton::autoscaler
