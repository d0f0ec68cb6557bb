#include "autoscaler/pool_decision.h"

#include <fmt/format.h>

namespace pelton::autoscaler {

std::string_view reason_name(Reason reason) {
  switch (reason) {
    case Reason::kDemand:
      return "demand";
    case Reason::kPanic:
      return "panic";
    case Reason::kForecast:
      return "forecast";
    case Reason::kGuard:
      return "guard";
    case Reason::kDelay:
      return "scale-down delay";
    case Reason::kSurvivors:
      return "those that stay would be overloaded";
    case Reason::kOneDirection:
      return "one direction a window";
    case Reason::kMinimum:
      return "replicas_min";
    case Reason::kMaximum:
      return "replicas_max";
    case Reason::kSchedule:
      return "schedule";
    case Reason::kGpus:
      return "limit of GPUs";
    case Reason::kPrice:
      return "limit of price";
    case Reason::kIdle:
      return "idle";
    case Reason::kHold:
      return "no recent facts";
  }
  return "";
}

std::string PoolDecision::text() const {
  std::string text = fmt::format("{} replica{}", desired, desired == 1 ? "" : "s");
  if (start > 0) text += fmt::format(", {} to start", start);
  if (!wake.empty()) text += fmt::format(", {} to wake", wake.size());
  if (!recall.empty()) text += fmt::format(", {} recalled", recall.size());
  if (!drain.empty()) text += fmt::format(", {} to drain", drain.size());
  text += fmt::format(
      ": {} (flow {:.2f} from {:.3g} requests/s x {:.3g} s, backlog {:.2f}, {} held)",
      reason_name(reason), terms.flow, terms.rate, terms.service_s, terms.backlog, terms.held);
  return text;
}

}  // namespace pelton::autoscaler
