#include "eval/program_judge.h"

#include <fmt/format.h>

#include "eval/judge.h"

namespace pelton::eval {

std::string program_of(const ExpectProgram& expected, std::string_view answer) {
  const std::string_view code = json_in(answer);
  const bool begins_anew = expected.entry.empty() ||
                           code.find(fmt::format("def {}(", expected.entry)) != std::string::npos;
  // The prompt's imports hold in any case; its function ends with its description then.
  return fmt::format("{}{}{}\n\n{}", expected.prompt, begins_anew ? "\n\n" : "", code,
                     expected.tests);
}

Result<bool> passes_tests(const ExpectProgram& expected, const Answer& answer,
                          const SandboxLimits& limits) {
  // A text that ends at a zero byte would be another program.
  if (answer.content.find('\0') != std::string::npos) return false;
  TRY_ASSIGN(const ProgramEnd end, run_program(program_of(expected, answer.content), limits));
  return end == ProgramEnd::kFinished;
}

}  // namespace pelton::eval
