#include "engine/speculation_log.h"

#include <algorithm>

#include <fmt/format.h>

namespace pelton::engine {

void SpeculationLog::note(int64_t now_ns, const SchedulerCounters& counters,
                          const DraftController::Report& report) {
  if (begun_ns_ >= 0 && now_ns - begun_ns_ < kEveryNs) return;
  const int64_t rows = counters.decode_rows - before_.decode_rows;
  if (begun_ns_ >= 0 && rows > 0) {
    const int64_t drafts = counters.drafts - before_.drafts;
    const int64_t guesses = counters.draft_tokens - before_.draft_tokens;
    const int64_t right = counters.accepted_tokens - before_.accepted_tokens;
    const auto share = [](int64_t part, int64_t whole) {
      return static_cast<double>(part) / static_cast<double>(std::max<int64_t>(whole, 1));
    };
    const auto ms = [](double ns) {
      return ns > 0 ? fmt::format("takes {:.2f} ms", ns * 1e-6) : std::string("was not seen");
    };
    log_.info(fmt::format(
        "speculation is {}: of {} decoded rows {} had guesses, {:.2f} each, of which {:.0f} % were "
        "right: {:.2f} tokens a row; a step of one row {}, guessing {}",
        name_of(report.state), rows, drafts, share(guesses, drafts), 100 * share(right, guesses),
        1 + share(right, rows), ms(report.step_ns), ms(report.draft_ns)));
  }
  begun_ns_ = now_ns;
  before_ = counters;
}

}  // namespace pelton::engine
