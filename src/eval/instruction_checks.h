// Instructions about an answer's form that a program can check, by the ids that IFEval gives them
// (Zhou and others, "Instruction-Following Evaluation for Large Language Models", 2023). Pure
// functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "eval/task.h"

namespace pelton::eval {

using Instruction = ExpectInstructions::Instruction;

// Whether the instruction is one that follows_instruction() knows, with the arguments that it
// takes. Errors: kUnsupported, kInvalidArgument, each with the id.
Result<void> check_instruction(const Instruction& instruction);

// Only of instructions that check_instruction() has let through.
bool follows_instruction(const Instruction& instruction, std::string_view answer);

// Those that are known, sorted.
std::vector<std::string_view> known_instructions();

}  // namespace pelton::eval
