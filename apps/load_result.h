// What becomes of a load test's result: the file, the report with plots, the history, the exit
// code. Main thread.
#pragma once

#include <string>
#include <vector>

#include "apps/load_test.h"
#include "base/json.h"
#include "cli/command_line.h"
#include "report/condition.h"
#include "report/html_report.h"

namespace pelton::apps {

// --fail-if, checked before the run.
Result<std::vector<report::Condition>> read_conditions(const cli::Arguments& arguments);

// An Error (kUnavailable: exit code 1) naming each that holds.
Result<void> check_conditions(const std::vector<report::Condition>& conditions, const Json& result);

// Writes the file and the history as the flags ask, says where they went and what the history says;
// gives the result as its file would read.
Result<Json> keep_result(const cli::Arguments& arguments, const LoadPlan& plan,
                         const LoadTest& test);

// --html.
Result<void> write_report(const cli::Arguments& arguments, const std::string& title,
                          const std::vector<report::NamedResult>& results);

// As many connections as the system grants: each takes a file descriptor.
void allow_many_connections();

}  // namespace pelton::apps
