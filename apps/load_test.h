// Runs a load test that is planned, with its live line on a terminal. Main thread, and one more
// that draws.
#pragma once

#include <string>
#include <vector>

#include "apps/load_flags.h"
#include "base/clock.h"
#include "cli/interrupt.h"
#include "report/summary.h"

namespace pelton::apps {

struct LoadTest {
  report::RunInfo info;
  report::Summary summary;
  bench::LoadOutcome outcome;
  std::string speculation;  // what guessing brought, where the server's metrics say it
};

// Waits for the server, finds out how it reports tokens, and keeps that in `plan`.
Result<void> prepare(LoadPlan& plan, const cli::Interrupt& interrupt, const base::Clock& clock);

// Ctrl-C ends it early; what has been answered until then counts.
Result<LoadTest> run_load_test(const LoadPlan& plan, const cli::Interrupt& interrupt,
                               const base::Clock& clock);

}  // namespace pelton::apps
