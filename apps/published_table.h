// A published table played again: its cells beside what the model gives, as text, JSON or a page.
#pragma once

#include "base/result.h"
#include "cli/command_line.h"
#include "simulator/scenario.h"

namespace pelton::apps {

// Of a scenario with a `table`; --json and --html as `arguments` give them. Errors:
// kInvalidArgument, kIo.
Result<void> run_table(const cli::Arguments& arguments, const simulator::Scenario& scenario);

}  // namespace pelton::apps
