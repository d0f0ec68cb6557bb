// How one pool of replicas is scaled: the settings of an operator, under the names that users of
// Knative and Baseten know. A value; read from a file by whoever owns the file.
#pragma once

#include <optional>

#include "base/result.h"

namespace pelton::autoscaler {

struct PoolPolicy {
  enum class Rule {
    kConcurrency,  // flow and backlog apart (pool_scaler.h)
    kKnative,      // Knative's KPA, exactly (knative_policy.h)
  };
  Rule rule = Rule::kConcurrency;
  int replicas_min = 0;
  int replicas_max = 1;
  double window_s = 60;
  double panic_window_share = 0.1;  // of the window
  double panic_threshold = 2;       // desired by the panic window, over ready replicas
  // Requests in service at a replica; none: the slots that it has.
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
  int standby = 0;              // replicas beyond those needed

  // Errors: kInvalidArgument, whose field names the setting and whose message its range.
  Result<void> check() const;
};

}  // namespace pelton::autoscaler
