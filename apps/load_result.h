// What becomes of a load test's result: the file, the report with plots, the history, the exit
// code. Main thread.
#pragma once

#include <string>
#include <vector>

#include "apps/load_test.h"
#include "base/json.h"
#include "cli/command_line.h"
#include "report/condition.h"

namespace pelton::apps {

// --fail-if, checked before the run.
Result<std::vector<report::Condition>> read_conditions(const cli::Arguments& arguments);

// All that the flags ask for; prints where things went. Errors: kUnavailable (exit code 1) naming
// each condition that holds.
Result<void> keep_result(const cli::Arguments& arguments, const LoadPlan& plan,
                         const LoadTest& test, const std::vector<report::Condition>& conditions);

// As many connections as the system grants: each takes a file descriptor.
void allow_many_connections();

}  // namespace pelton::apps
