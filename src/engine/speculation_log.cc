#include "engine/speculation_log.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

namespace pelton::engine {
namespace {

double share(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(std::max<int64_t>(whole, 1));
}

std::string time_of(double ns) {
  return ns > 0 ? fmt::format("takes {:.2f} ms", ns * 1e-6) : std::string("was not seen");
}

std::string state_of(const DraftController::Report& report) {
  switch (report.state) {
    case DraftController::State::kOn:
      // Without `adaptive` nobody estimates a gain.
      return report.gain > 0
                 ? fmt::format("on, for {:.2f} times the tokens a second as estimated", report.gain)
                 : "on";
    case DraftController::State::kIdle:
      return "idle, as no row may have guesses";
    case DraftController::State::kLosing:
      return "off, as no number of guesses gains what it takes";
  }
  return "";
}

// "; suffix guessed 30 times, 2.00 each, 71 % right, asking it takes 0.02 ms": those that
// guessed or were asked lately, where there are several.
std::string by_proposer(const SchedulerCounters& now, const SchedulerCounters& before,
                        const DraftController::Report& report,
                        std::span<const std::string> proposers) {
  std::string text;
  if (proposers.size() < 2) return text;
  for (size_t i = 0; i < proposers.size(); ++i) {
    const SchedulerCounters::Proposed& last = now.by_proposer[i];
    const SchedulerCounters::Proposed& first = before.by_proposer[i];
    const int64_t drafts = last.drafts - first.drafts;
    const int64_t guesses = last.draft_tokens - first.draft_tokens;
    const int64_t right = last.accepted_tokens - first.accepted_tokens;
    if (drafts == 0 && last.draft_ns == first.draft_ns) continue;
    text += fmt::format("; {} guessed {} times, {:.2f} each, {:.0f} % right, asking it {}",
                        proposers[i], drafts, share(guesses, drafts), 100 * share(right, guesses),
                        time_of(report.proposers[i].draft_ns));
  }
  return text;
}

}  // namespace

void SpeculationLog::note(int64_t now_ns, const SchedulerCounters& counters,
                          const DraftController::Report& report,
                          std::span<const std::string> proposers) {
  if (begun_ns_ >= 0 && now_ns - begun_ns_ < kEveryNs) return;
  const int64_t rows = counters.decode_rows - before_.decode_rows;
  if (begun_ns_ >= 0 && rows > 0) {
    const int64_t drafts = counters.drafts - before_.drafts;
    const int64_t guesses = counters.draft_tokens - before_.draft_tokens;
    const int64_t right = counters.accepted_tokens - before_.accepted_tokens;
    log_.info(fmt::format(
        "speculation is {}: of {} decoded rows {} had guesses, {:.2f} each, of which {:.0f} % were "
        "right: {:.2f} tokens a row; a step of one row {}, guessing {}{}",
        state_of(report), rows, drafts, share(guesses, drafts), 100 * share(right, guesses),
        1 + share(right, rows), time_of(report.step_ns), time_of(report.draft_ns),
        by_proposer(counters, before_, report, proposers)));
  }
  begun_ns_ = now_ns;
  before_ = counters;
}

}  // namespace pelton::engine
