// A run in numbers: what its requests come to. Pure functions of the records.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "report/goodput.h"
#include "report/metric.h"
#include "report/request_record.h"

namespace pelton::report {

// Whether the times between tokens are times between tokens.
enum class TokenTiming {
  kReported,  // the server reported how many tokens each piece brings
  kPieces,    // it did not: a piece counts as one token
  kMixed,
  kNone,   // no answer came in pieces
  kMeans,  // of a model that has an answer's mean, and no token's moment
};

struct Summary {
  double duration_s = 0;
  int64_t completed = 0;
  int64_t failed = 0;
  int64_t input_tokens = 0;  // of those completed, as all below
  int64_t cached_tokens = 0;
  int64_t output_tokens = 0;
  int64_t reasoning_tokens = 0;
  int64_t output_bytes = 0;
  int64_t output_characters = 0;

  double requests_per_s = 0;
  double output_tokens_per_s = 0;
  double total_tokens_per_s = 0;
  std::optional<double> good_requests_per_s;  // where objectives were given
  double peak_output_tokens_per_s = 0;        // the best second, and never below the mean
  int peak_concurrency = 0;

  TokenTiming timing = TokenTiming::kNone;
  // Milliseconds, sorted. Metrics that no request has are absent.
  std::map<Metric, std::vector<double>> values_ms;
  std::map<std::string, int64_t> errors;  // how often each, the first few kinds
};

Summary summarize(std::span<const RequestRecord> records, double duration_s,
                  const std::vector<Objective>& objectives);

// The most requests that ran at once. Each runs from its start until its end, which is no longer
// part of it: one that begins when another ends does not overlap it.
int peak_concurrency(std::span<const RequestRecord> records);

// How many ran: a step at each change, in order.
struct ConcurrencyStep {
  int64_t at_ns = 0;
  int running = 0;
};
std::vector<ConcurrencyStep> concurrency_steps(std::span<const RequestRecord> records);

// Tokens that arrived in each whole second from the start.
std::vector<int64_t> tokens_by_second(std::span<const RequestRecord> records);

// Median tokens per second that one user sees while an answer comes: 1000 / median TPOT.
double tokens_per_s_per_user(const Summary& summary);

}  // namespace pelton::report
