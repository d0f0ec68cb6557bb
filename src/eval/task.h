// A task of an evaluation: what is asked of a model, and how its answer is judged. Values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"

namespace pelton::eval {

// The last number of the answer, as written in decimal: "1,234.50" is 1234.5 (as GSM8K is scored).
struct ExpectNumber {
  std::string number;
};
// The letter of the right choice.
struct ExpectChoice {
  char letter = 'A';
  int count = 4;  // choices there are
};
// One of these texts; case, white space at both ends and a full stop at the end do not count.
struct ExpectText {
  std::vector<std::string> accepted;
};
// A JSON document: this value (members in any order), or any that follows the schema.
struct ExpectJson {
  Json value;
};
struct ExpectSchema {
  Json schema;
};
// Tool calls, in any order, each with its arguments. An argument has a list of accepted values; one
// that accepts "" may be left out (as the Berkeley Function-Calling Leaderboard has them).
struct ExpectCalls {
  struct Argument {
    std::string name;
    std::vector<Json> accepted;
  };
  struct Call {
    std::string name;
    std::vector<Argument> arguments;
  };
  std::vector<Call> calls;
};
// Instructions about the answer's form that a program can check (eval/instruction_checks.h).
struct ExpectInstructions {
  struct Instruction {
    std::string id;
    Json arguments;
  };
  std::vector<Instruction> instructions;
};
// A program in Python that passes tests (eval/program_judge.h runs it).
struct ExpectProgram {
  std::string prompt;  // that the answer may go on from, or define again; empty: there is none
  std::string entry;   // the function that the prompt begins; empty: it begins none
  std::string tests;   // behind the answer's program
};
// Of a recorded request, whose right answer nobody knows: one that came to its end by itself and
// has the form that was asked for. What it says is compared with another evaluation's
// (SetComparison).
struct ExpectAnswer {
  bool is_json = false;            // response_format asks for an object
  std::optional<Json> schema;      // that it has to follow
  std::vector<std::string> tools;  // that it may call
};
using Expectation = std::variant<ExpectNumber, ExpectChoice, ExpectText, ExpectJson, ExpectSchema,
                                 ExpectCalls, ExpectInstructions, ExpectProgram, ExpectAnswer>;

struct Task {
  std::string set;  // the set that it belongs to: "arithmetic", or its file's name
  std::string id;   // unique in its set
  Json request;     // an object: `messages`, and `tools` or `response_format` where it has them
  Expectation expected;
};

// What a model said, as far as it is judged.
struct Answer {
  struct Call {
    std::string name;
    std::string arguments;  // JSON text
  };
  std::string content;
  std::vector<Call> calls = {};
  std::string finish_reason = {};
};

// "a number", "a choice": the kind of a task, for people.
std::string_view kind_name(const Expectation& expected);

}  // namespace pelton::eval
