#include <cmath>

#include <fmt/format.h>

#include "report/percentile.h"
#include "report/serve_result.h"

namespace pelton::report {
namespace {

// vLLM's columns: a label of 40, a blank, a value of 10 at its left.
void add_row(std::string& out, std::string_view label, const std::string& value) {
  out += fmt::format("{:<40} {:<10}\n", label, value);
}

std::string fixed(double value) {
  return fmt::format("{:.2f}", value);
}

void add_counts(std::string& out, const RunInfo& info, const Summary& summary) {
  add_row(out, "Successful requests:", std::to_string(summary.completed));
  add_row(out, "Failed requests:", std::to_string(summary.failed));
  if (info.max_concurrency) {
    add_row(out, "Maximum request concurrency:", std::to_string(*info.max_concurrency));
  }
  if (std::isfinite(info.request_rate)) {
    add_row(out, "Request rate configured (RPS):", fixed(info.request_rate));
  }
  add_row(out, "Benchmark duration (s):", fixed(summary.duration_s));
  add_row(out, "Total input tokens:", std::to_string(summary.input_tokens));
  add_row(out, "Total generated tokens:", std::to_string(summary.output_tokens));
  add_row(out, "Request throughput (req/s):", fixed(summary.requests_per_s));
  if (info.documents_each > 0) {
    add_row(out, "Documents per request:", std::to_string(info.documents_each));
    add_row(out, "Document throughput (doc/s):",
            fixed(summary.requests_per_s * static_cast<double>(info.documents_each)));
  }
  if (summary.good_requests_per_s) {
    add_row(out, "Request goodput (req/s):", fixed(*summary.good_requests_per_s));
  }
  add_row(out, "Output token throughput (tok/s):", fixed(summary.output_tokens_per_s));
  // A second's tokens are known of moments only.
  if (summary.timing != TokenTiming::kMeans) {
    add_row(out, "Peak output token throughput (tok/s):", fixed(summary.peak_output_tokens_per_s));
  }
  add_row(out, "Peak concurrent requests:", fixed(summary.peak_concurrency));
  add_row(out, "Total token throughput (tok/s):", fixed(summary.total_tokens_per_s));
}

void add_section(std::string& out, const MetricInfo& metric, const std::vector<double>& values,
                 const Shown& shown) {
  out += fmt::format("{:-^50}\n", metric.header);
  const auto add = [&](const std::string& word, double value) {
    add_row(out, fmt::format("{} {} (ms):", word, metric.label), fixed(value));
  };
  add("Mean", mean(values));
  add("Median", percentile(values, 50));
  for (const double percent : shown.percents) {
    add("P" + percent_word(percent), percentile(values, percent));
  }
}

void add_own(std::string& out, const RunInfo& info, const Summary& summary) {
  out += fmt::format("{:-^50}\n", "How it was measured");
  add_row(out, "Time between tokens:", std::string(timing_words(summary.timing)));
  if (summary.timing == TokenTiming::kPieces || summary.timing == TokenTiming::kMixed) {
    out +=
        "  (ITL and TPOT are between pieces of text, not tokens: the server reported no counts)\n";
  }
  // A user waits for the text, behind all reasoning.
  for (const Metric metric : {Metric::kFirstReasoning, Metric::kFirstText}) {
    const auto found = summary.values_ms.find(metric);
    const bool reasons = summary.values_ms.count(Metric::kFirstReasoning) > 0;
    if (!reasons || found == summary.values_ms.end()) continue;
    add_row(out, fmt::format("Median {} (ms):", report::info(metric).label),
            fixed(percentile(found->second, 50)));
  }
  if (summary.reasoning_tokens > 0) {
    add_row(out, "Reasoning tokens:", std::to_string(summary.reasoning_tokens));
  }
  if (summary.cached_tokens > 0) {
    add_row(out, "Input tokens found in a cache:", std::to_string(summary.cached_tokens));
  }
  if (summary.duration_s > 0 && summary.output_characters > 0) {
    add_row(out, "Output characters per second:",
            fixed(static_cast<double>(summary.output_characters) / summary.duration_s));
  }
  const GeneratorWatch& watch = info.generator;
  add_row(out, "Generator late by, P99 (ms):", fixed(watch.late_p99_ms));
  add_row(out, "Generator's busiest thread (% of a core):",
          fmt::format("{:.0f}", watch.busiest_thread_share * 100));
  for (const auto& [error, count] : summary.errors) {
    out += fmt::format("  failed {} times: {}\n", count, error);
  }
  if (!watch.limit.empty()) {
    out += fmt::format("WARNING: {}\n", watch.limit);
  }
}

}  // namespace

std::string_view timing_words(TokenTiming timing) {
  switch (timing) {
    case TokenTiming::kReported:
      return "exact to the token";
    case TokenTiming::kPieces:
      return "piece by piece";
    case TokenTiming::kMixed:
      return "exact for some requests only";
    case TokenTiming::kNone:
      return "not seen";
    case TokenTiming::kMeans:
      return "each answer's mean";
  }
  return "";
}

std::string result_text(const RunInfo& info, const Summary& summary, const Shown& shown) {
  std::string out = fmt::format("{:=^50}\n", " Serving Benchmark Result ");
  add_counts(out, info, summary);
  for (const Metric metric : shown.metrics) {
    const auto found = summary.values_ms.find(metric);
    if (found != summary.values_ms.end()) {
      add_section(out, report::info(metric), found->second, shown);
    }
  }
  out += fmt::format("{:=^50}\n", "");
  add_own(out, info, summary);
  return out;
}

}  // namespace pelton::report
