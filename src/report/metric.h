// The metrics of a load test by name: what each is called where, and what it means. The words are
// printed in reports, because tools use the same names for different things.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace pelton::report {

enum class Metric {
  kTtft,
  kTpot,
  kItl,
  kE2el,
  kClientQueue,
  kE2elQueued,
  kTtftQueued,
  kFirstReasoning,
  kFirstText,
  kChunkGap,
};

struct MetricInfo {
  Metric metric;
  std::string_view key;         // in flags and result files: "ttft"
  std::string_view label;       // in the printed rows: "TTFT"
  std::string_view header;      // over them: "Time to First Token"
  std::string_view definition;  // one or two sentences
};

std::span<const MetricInfo> all_metrics();
const MetricInfo& info(Metric metric);
std::optional<Metric> find_metric(std::string_view key);

}  // namespace pelton::report
