#include "autoscaler/pool_decision.h"

#include <fmt/format.h>

namespace pelton::autoscaler {

std::string_view reason_name(Reason reason) {
  switch (reason) {
    case Reason::kDemand:
      return "demand";
    case Reason::kPanic:
      return "panic";
    case Reason::kObjective:
      return "objective";
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
    case Reason::kSilentGateway:
      return "a gateway does not answer";
  }
  return "";
}

namespace {

std::string slo_text(const PoolDecision::Slo& slo) {
  std::string text;
  if (slo.gap_s > 0) {
    text = fmt::format("; first token {:.3g} s, gap {:.1f} ms at the percentile", slo.first_token_s,
                       slo.gap_s * 1e3);
  } else {
    text = "; too few replicas to keep up";
  }
  if (slo.first_token_unattainable) text += "; a first token takes longer than asked for, alone";
  if (slo.gap_unattainable) text += "; a gap is longer than asked for, alone";
  return text;
}

// "; prompts 3 of 5 needed, answers 8 of 9; late 1.2 x and 1.1 x what is asked for".
std::string roles_text(const PoolDecision::Roles& roles) {
  const PairDecision& pair = roles.pair;
  std::string text = fmt::format("; {} to compute prompts", pair.counts.prefill);
  if (!roles.is_known) return text + ", until requests and steps are known";
  if (pair.at_ceiling) {
    text += fmt::format(" of {} needed, and {} to go on of {} needed", pair.needed.prefill,
                        pair.counts.decode, pair.needed.decode);
  }
  const auto late = [](double ratio) {
    return ratio >= PairDecision::kOverloaded ? std::string("ever later than")
                                              : fmt::format("{:.2f} of", ratio);
  };
  return text + fmt::format("; first tokens {} and gaps {} the objective",
                            late(pair.first_token_late), late(pair.gap_late));
}

}  // namespace

std::string PoolDecision::text() const {
  std::string text = fmt::format("{} replica{}", desired, desired == 1 ? "" : "s");
  if (start > start_standby) text += fmt::format(", {} to start", start - start_standby);
  if (start_standby > 0) text += fmt::format(", {} to start and stand by", start_standby);
  if (!wake.empty()) text += fmt::format(", {} to wake", wake.size());
  if (!recall.empty()) text += fmt::format(", {} recalled", recall.size());
  if (!drain.empty()) text += fmt::format(", {} to drain", drain.size());
  if (!dismiss.empty()) text += fmt::format(", {} on standby to end", dismiss.size());
  text += fmt::format(
      ": {} (flow {:.2f} from {:.3g} requests/s x {:.3g} s, backlog {:.2f}, {} held)",
      reason_name(reason), terms.flow, terms.rate, terms.service_s, terms.backlog, terms.held);
  if (terms.slo.is_known) text += slo_text(terms.slo);
  if (terms.roles.is_paired) text += roles_text(terms.roles);
  return text;
}

}  // namespace pelton::autoscaler
