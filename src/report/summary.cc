#include "report/summary.h"

#include <algorithm>

#include "report/percentile.h"

namespace pelton::report {
namespace {

constexpr size_t kErrorKindsMax = 20;
constexpr int64_t kSecondsMax = 7 * 24 * 3600;

double ms(int64_t from_ns, int64_t to_ns) {
  return static_cast<double>(to_ns - from_ns) * 1e-6;
}

void add_token_gaps(const RequestRecord& record, Summary& summary) {
  std::vector<double>& gaps = summary.values_ms[Metric::kItl];
  std::vector<double>& chunk_gaps = summary.values_ms[Metric::kChunkGap];
  for (size_t i = 1; i < record.pieces.size(); ++i) {
    const Piece& piece = record.pieces[i];
    const double gap = ms(record.pieces[i - 1].at_ns, piece.at_ns);
    chunk_gaps.push_back(gap);
    for (int t = 0; t < piece.tokens; ++t) gaps.push_back(gap / piece.tokens);
  }
}

void add_request(const RequestRecord& record, Summary& summary) {
  const auto add = [&](Metric metric, int64_t from_ns, int64_t to_ns) {
    if (to_ns >= 0) summary.values_ms[metric].push_back(ms(from_ns, to_ns));
  };
  const int64_t first_token_ns = record.pieces.empty() ? -1 : record.pieces.front().at_ns;
  add(Metric::kTtft, record.start_ns, first_token_ns);
  add(Metric::kTtftQueued, record.due_ns, first_token_ns);
  add(Metric::kE2el, record.start_ns, record.end_ns);
  add(Metric::kE2elQueued, record.due_ns, record.end_ns);
  add(Metric::kClientQueue, record.due_ns, record.start_ns);
  add(Metric::kFirstReasoning, record.start_ns, record.first_reasoning_ns);
  add(Metric::kFirstText, record.start_ns, record.first_text_ns);
  if (!record.pieces.empty() && record.output_tokens > record.pieces.front().tokens) {
    summary.values_ms[Metric::kTpot].push_back(value_ms(record, Metric::kTpot));
  }
  add_token_gaps(record, summary);
}

void add_timing(const RequestRecord& record, Summary& summary) {
  if (record.pieces.empty()) return;
  const TokenTiming timing = record.tokens_told ? TokenTiming::kReported : TokenTiming::kPieces;
  if (summary.timing == TokenTiming::kNone) summary.timing = timing;
  if (summary.timing != timing) summary.timing = TokenTiming::kMixed;
}

void add_error(const std::string& error, Summary& summary) {
  const auto found = summary.errors.find(error);
  if (found == summary.errors.end() && summary.errors.size() >= kErrorKindsMax) {
    ++summary.errors["others"];
  } else {
    ++summary.errors[error];
  }
}

// The most tokens within any second.
int64_t best_second(std::span<const RequestRecord> records) {
  constexpr int64_t kSecondNs = 1'000'000'000;
  std::vector<Piece> pieces;
  for (const RequestRecord& record : records) {
    if (record.ok) pieces.insert(pieces.end(), record.pieces.begin(), record.pieces.end());
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.at_ns < b.at_ns; });
  int64_t best = 0;
  int64_t within = 0;
  size_t from = 0;
  for (const Piece& piece : pieces) {
    within += piece.tokens;
    while (pieces[from].at_ns <= piece.at_ns - kSecondNs) within -= pieces[from++].tokens;
    best = std::max(best, within);
  }
  return best;
}

}  // namespace

Summary summarize(std::span<const RequestRecord> records, double duration_s,
                  const std::vector<Objective>& objectives) {
  Summary summary{
      .duration_s = duration_s, .good_requests_per_s = {}, .values_ms = {}, .errors = {}};
  int64_t good = 0;
  for (const RequestRecord& record : records) {
    if (!record.ok) {
      ++summary.failed;
      add_error(record.error, summary);
      continue;
    }
    ++summary.completed;
    summary.input_tokens += record.input_tokens;
    summary.cached_tokens += record.cached_tokens;
    summary.output_tokens += record.output_tokens;
    summary.reasoning_tokens += record.reasoning_tokens;
    summary.output_bytes += record.output_bytes;
    summary.output_characters += record.output_characters;
    add_timing(record, summary);
    add_request(record, summary);
    if (keeps(record, objectives)) ++good;
  }
  std::erase_if(summary.values_ms, [](const auto& entry) { return entry.second.empty(); });
  for (auto& [metric, values] : summary.values_ms) std::sort(values.begin(), values.end());
  const auto rate = [&](int64_t count) {
    return duration_s > 0 ? static_cast<double>(count) / duration_s : 0;
  };
  summary.requests_per_s = rate(summary.completed);
  summary.output_tokens_per_s = rate(summary.output_tokens);
  summary.total_tokens_per_s = rate(summary.input_tokens + summary.output_tokens);
  if (!objectives.empty()) summary.good_requests_per_s = rate(good);
  // A run shorter than a second, or one whose tokens come at its ends, has no second as good as
  // its mean.
  summary.peak_output_tokens_per_s =
      std::max(static_cast<double>(best_second(records)), summary.output_tokens_per_s);
  summary.peak_concurrency = peak_concurrency(records);
  return summary;
}

std::vector<ConcurrencyStep> concurrency_steps(std::span<const RequestRecord> records) {
  struct Change {
    int64_t at_ns;
    int by;
  };
  std::vector<Change> changes;
  for (const RequestRecord& record : records) {
    if (record.end_ns <= record.start_ns) continue;
    changes.push_back({record.start_ns, 1});
    changes.push_back({record.end_ns, -1});
  }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return a.at_ns != b.at_ns ? a.at_ns < b.at_ns : a.by < b.by;  // ends before beginnings
  });
  std::vector<ConcurrencyStep> steps;
  int running = 0;
  for (const Change& change : changes) {
    running += change.by;
    if (!steps.empty() && steps.back().at_ns == change.at_ns) {
      steps.back().running = running;
    } else {
      steps.push_back({change.at_ns, running});
    }
  }
  return steps;
}

int peak_concurrency(std::span<const RequestRecord> records) {
  int peak = 0;
  for (const ConcurrencyStep& step : concurrency_steps(records)) {
    peak = std::max(peak, step.running);
  }
  return peak;
}

std::vector<int64_t> tokens_by_second(std::span<const RequestRecord> records) {
  std::vector<int64_t> seconds;
  for (const RequestRecord& record : records) {
    if (!record.ok) continue;
    for (const Piece& piece : record.pieces) {
      const int64_t second = piece.at_ns / 1'000'000'000;
      if (second < 0 || second >= kSecondsMax) continue;
      if (static_cast<size_t>(second) >= seconds.size()) {
        seconds.resize(static_cast<size_t>(second) + 1);
      }
      seconds[static_cast<size_t>(second)] += piece.tokens;
    }
  }
  return seconds;
}

double tokens_per_s_per_user(const Summary& summary) {
  const auto found = summary.values_ms.find(Metric::kTpot);
  if (found == summary.values_ms.end()) return 0;
  const double tpot = percentile(found->second, 50);
  return tpot > 0 ? 1000 / tpot : 0;
}

}  // namespace pelton::report
