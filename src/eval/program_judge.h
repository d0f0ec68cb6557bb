// Whether an answer that is a program passes its tests: it is taken out of the answer, put between
// its prompt and its tests, and run in a sandbox (eval/sandbox.h). Any thread.
#pragma once

#include <string>
#include <string_view>

#include "eval/sandbox.h"
#include "eval/task.h"

namespace pelton::eval {

// What is run.
std::string program_of(const ExpectProgram& expected, std::string_view answer);

// Errors: kUnsupported: nothing can be run here.
Result<bool> passes_tests(const ExpectProgram& expected, const Answer& answer,
                          const SandboxLimits& limits);

}  // namespace pelton::eval
