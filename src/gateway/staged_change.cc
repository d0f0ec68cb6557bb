#include "gateway/staged_change.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pelton::gateway {

StagedChange::StagedChange(Rules rules, StagedFigures before, int64_t now_ns)
    : rules_(std::move(rules)),
      before_(std::move(before)),
      began_ns_(now_ns),
      answered_ns_(now_ns),
      whole_ns_(now_ns) {}

StagedChange::Verdict StagedChange::end(Verdict verdict, std::string reason) {
  reason_ = std::move(reason);
  return verdict;
}

StagedChange::Verdict StagedChange::note(const StagedFigures& now, int64_t now_ns) {
  answered_ns_ = now_ns;
  if (now.etag != rules_.etag) {
    return end(Verdict::kOthers, "somebody else has changed the file meanwhile");
  }
  if (!now.error.empty()) return end(Verdict::kBad, "it is not in force: " + now.error);
  // Counters that are less than they were began anew with the gateway.
  const bool is_anew = now.requests < before_.requests || now.failed < before_.failed;
  const int64_t requests = now.requests - (is_anew ? 0 : before_.requests);
  const int64_t failed = now.failed - (is_anew ? 0 : before_.failed);
  const double share =
      requests > 0 ? static_cast<double>(failed) / static_cast<double>(requests) : 0;
  if (failed >= kFailedMin && share > rules_.failed_max) {
    return end(Verdict::kBad, fmt::format("{} of {} requests failed ({:.1f} %; at most {:.4g} %)",
                                          failed, requests, share * 100, rules_.failed_max * 100));
  }
  std::vector<std::string> lost;
  std::ranges::set_difference(before_.pools_ready, now.pools_ready, std::back_inserter(lost));
  if (lost.empty()) whole_ns_ = now_ns;
  if (now_ns - whole_ns_ > rules_.grace_ns) {
    return end(Verdict::kBad,
               fmt::format("no worker of {} takes requests any more, for {:.0f} s",
                           fmt::join(lost, ", "), static_cast<double>(now_ns - whole_ns_) * 1e-9));
  }
  if (!lost.empty() || now_ns - began_ns_ < rules_.watch_ns) return Verdict::kWait;
  return Verdict::kGood;
}

StagedChange::Verdict StagedChange::note_silent(const std::string& trouble, int64_t now_ns) {
  if (now_ns - answered_ns_ <= rules_.grace_ns) return Verdict::kWait;
  return end(Verdict::kBad, "the gateway does not answer: " + trouble);
}

LostAnswer lost_answer(std::string_view now, std::string_view before, std::string_view planned,
                       bool is_time_over) {
  if (!now.empty() && now == planned) return LostAnswer::kThere;
  if (!now.empty() && now != before) return LostAnswer::kAway;
  return is_time_over ? LostAnswer::kUnsure : LostAnswer::kWait;
}

}  // namespace pelton::gateway
