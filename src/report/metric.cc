#include "report/metric.h"

#include <array>

#include "base/check.h"

namespace pelton::report {
namespace {

constexpr std::array<MetricInfo, 10> kMetrics = {{
    {Metric::kTtft, "ttft", "TTFT", "Time to First Token",
     "From sending the request to the first piece of the answer that carries a token, reasoning "
     "and tool calls included."},
    {Metric::kTpot, "tpot", "TPOT", "Time per Output Token (excl. 1st token)",
     "Of each request: the time from its first piece to its last, divided by the tokens that came "
     "after the first piece. Requests of one token have none, and count as 0 for goodput."},
    {Metric::kItl, "itl", "ITL", "Inter-token Latency",
     "Time between one token and the next. Where the server reports how many tokens a piece "
     "brings, "
     "the time before the piece is shared evenly among them; where it does not, each piece counts "
     "as one token, and the report says so."},
    {Metric::kE2el, "e2el", "E2EL", "End-to-end Latency",
     "From sending the request to the last byte of its answer."},
    {Metric::kClientQueue, "client_queue_time", "Client Queue", "Client-side Queueing",
     "From the moment the schedule wanted the request sent to its sending: what a limit of "
     "concurrency, or a generator that is too slow, makes it wait."},
    {Metric::kE2elQueued, "e2el_including_client_queue", "Queue-inclusive E2EL",
     "Queue-inclusive End-to-end Latency",
     "From the moment the schedule wanted the request sent to the last byte of its answer: free "
     "of coordinated omission."},
    {Metric::kTtftQueued, "ttft_including_client_queue", "Queue-inclusive TTFT",
     "Queue-inclusive Time to First Token",
     "As TTFT, from the moment the schedule wanted the request sent."},
    {Metric::kFirstReasoning, "ttfr", "TTFR", "Time to First Reasoning",
     "From sending the request to the first piece of reasoning."},
    {Metric::kFirstText, "ttfv", "TTFV", "Time to First Visible Text",
     "From sending the request to the first piece of the visible answer, behind any reasoning."},
    {Metric::kChunkGap, "icl", "ICL", "Inter-chunk Latency",
     "Time between one piece of an answer and the next, however many tokens it brings: what a "
     "reader sees."},
}};

}  // namespace

std::span<const MetricInfo> all_metrics() {
  return kMetrics;
}

const MetricInfo& info(Metric metric) {
  const MetricInfo& found = kMetrics[static_cast<size_t>(metric)];
  CHECK(found.metric == metric);
  return found;
}

std::optional<Metric> find_metric(std::string_view key) {
  for (const MetricInfo& one : kMetrics) {
    if (one.key == key) return one.metric;
  }
  return std::nullopt;
}

}  // namespace pelton::report
