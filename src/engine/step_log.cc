#include "engine/step_log.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/output_file.h"

namespace pelton::engine {

Result<std::unique_ptr<LoggedExecutor>> LoggedExecutor::make(std::unique_ptr<Executor> inner,
                                                             const std::string& file,
                                                             const base::Clock& clock) {
  Result<base::OutputFile> opened = base::open_output(file, base::OutputMode::kReplace);
  if (!opened.ok()) return Error{ErrorCode::kIo, opened.error().message, "step-log"};
  return std::unique_ptr<LoggedExecutor>(
      new LoggedExecutor(std::move(inner), opened->release(), clock));
}

LoggedExecutor::LoggedExecutor(std::unique_ptr<Executor> inner, std::FILE* file,
                               const base::Clock& clock)
    : inner_(std::move(inner)), file_(file), clock_(clock) {}

LoggedExecutor::~LoggedExecutor() {
  std::fclose(file_);
}

void LoggedExecutor::submit(StepPlan plan) {
  Pending pending{.submitted_ns = clock_.now_ns(), .after_pause = pending_.empty()};
  for (const ScheduledRow& row : plan.sequences) {
    if (row.arrival == kNoArrival) pending.after_pause = false;
    pending.rows.push_back(
        {.start = row.start, .count = row.token_count(), .sampled = row.sample ? 1 : 0});
  }
  pending_.push_back(std::move(pending));
  inner_->submit(std::move(plan));
}

StepResult LoggedExecutor::collect() {
  StepResult result = inner_->collect();
  const int64_t now_ns = clock_.now_ns();
  if (!pending_.empty()) {
    Pending pending = std::move(pending_.front());
    pending_.pop_front();
    // Guesses are rows like others, each with logits.
    for (size_t i = 0; i < std::min(pending.rows.size(), result.sequences.size()); ++i) {
      pending.rows[i].count += result.sequences[i].drafted;
      pending.rows[i].sampled += result.sequences[i].drafted;
    }
    if (!result.error && !pending.rows.empty()) write(result.step, pending, now_ns);
  }
  last_end_ns_ = now_ns;
  return result;
}

void LoggedExecutor::write(int64_t step, const Pending& pending, int64_t now_ns) {
  if (bytes_ >= kBytesMax) return;
  // Between the steps of a busy engine lies what the engine itself does: it belongs to the step.
  const int64_t from_ns =
      pending.after_pause || last_end_ns_ == 0 ? pending.submitted_ns : last_end_ns_;
  std::string rows;
  for (const Pending::Row& row : pending.rows) {
    fmt::format_to(std::back_inserter(rows), "{}{},{},{}", rows.empty() ? "" : ",", row.start,
                   row.count, row.sampled);
  }
  const std::string line = fmt::format(
      "{{\"step\":{},\"submitted_ns\":{},\"ended_ns\":{},\"ns\":{},\"after_pause\":{},\"rows\":[{}]"
      "}}"
      "\n",
      step, pending.submitted_ns, now_ns, now_ns - from_ns, pending.after_pause, rows);
  bytes_ += static_cast<int64_t>(line.size());
  std::fwrite(line.data(), 1, line.size(), file_);
  std::fflush(file_);
}

}  // namespace pelton::engine
