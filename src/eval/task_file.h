// Files of tasks: JSON Lines in the shapes that published sets have, and in our own. Pure
// functions; any thread.
//
//   {"messages": [...] | "prompt": "...", "expect": {"number": 42}}      our own; `expect` has one
//   of
//       number, choice (a letter), text (or several), json, schema, calls [{name, arguments}],
//       tests (lines of Python behind the answer's program)
//   {"question": "...", "answer": "... #### 42"}                          as GSM8K
//   {"question": "...", "choices": ["..."], "answer": 2 | "C"}            as MMLU
//   {"question": "...", "choices": {"text": [...], "label": [...]}, "answerKey": "C"}   as ARC
//   {"prompt": "...", "test": "...", "entry_point": "f"}                  as HumanEval
//   {"text" | "prompt": "...", "test_list": ["assert ..."]}               as MBPP
//   {"prompt": "...", "instruction_id_list": [...], "kwargs": [...]}      as IFEval
//   {"question": [[messages]], "function": [...], "ground_truth": [...]}  as BFCL, with the answers
//       of its second file in the line
//   {"messages": [...], "model": ...}                                     a recorded request: the
//       body of a chat completion; also a line of a batch's file, {"custom_id", "url", "body"}
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "eval/task.h"

namespace pelton::eval {

inline constexpr size_t kTaskLineMax = size_t{1} << 20;    // bytes
inline constexpr size_t kTaskFileMax = size_t{256} << 20;  // bytes
inline constexpr size_t kTasksMax = 200'000;

// One line. `set` and `index` (from 0) make its id where it has none. Errors: kInvalidArgument,
// kUnsupported.
Result<Task> parse_task(const Json& line, const std::string& set, size_t index);

// All lines of a file's text, empty ones left out. Errors: those of parse_task(), with the line's
// number; kInvalidArgument for a line over kTaskLineMax, none at all, or an id given twice.
Result<std::vector<Task>> parse_tasks(std::string_view text, const std::string& set);

}  // namespace pelton::eval
