#include "report/goodput.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/check.h"

namespace pelton::report {
namespace {

double ms(int64_t from_ns, int64_t to_ns) {
  return static_cast<double>(to_ns - from_ns) * 1e-6;
}

double tpot_ms(const RequestRecord& record) {
  if (record.pieces.empty()) return 0;
  const int64_t after_first = record.output_tokens - record.pieces.front().tokens;
  if (after_first <= 0) return 0;
  return ms(record.pieces.front().at_ns, record.pieces.back().at_ns) /
         static_cast<double>(after_first);
}

}  // namespace

double value_ms(const RequestRecord& record, Metric metric) {
  switch (metric) {
    case Metric::kTtft:
      return record.pieces.empty() ? 0 : ms(record.start_ns, record.pieces.front().at_ns);
    case Metric::kTpot:
      return tpot_ms(record);
    case Metric::kE2el:
      return ms(record.start_ns, record.end_ns);
    default:
      CHECK(false, "no objective is set for this metric");
      return 0;
  }
}

Result<std::vector<Objective>> parse_objectives(std::string_view text) {
  std::vector<Objective> objectives;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(" ,", at), text.size());
    const std::string_view word = text.substr(at, end - at);
    at = end + 1;
    if (word.empty()) continue;
    const size_t colon = std::min(word.find(':'), word.size());
    const std::optional<Metric> metric = find_metric(word.substr(0, colon));
    const std::string_view number = word.substr(std::min(colon + 1, word.size()));
    double bound = 0;
    const auto [stop, failure] =
        std::from_chars(number.data(), number.data() + number.size(), bound);
    const bool known =
        metric == Metric::kTtft || metric == Metric::kTpot || metric == Metric::kE2el;
    if (!known || failure != std::errc{} || stop != number.data() + number.size() ||
        !std::isfinite(bound) || bound < 0) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("'--goodput' wants ttft, tpot or e2el with milliseconds, as "
                               "ttft:500; not '{}'",
                               word),
                   "goodput"};
    }
    objectives.push_back({.metric = *metric, .bound_ms = bound});
  }
  return objectives;
}

bool keeps(const RequestRecord& record, const std::vector<Objective>& objectives) {
  return record.ok && std::all_of(objectives.begin(), objectives.end(), [&](const Objective& one) {
           return value_ms(record, one.metric) <= one.bound_ms;
         });
}

}  // namespace pelton::report
