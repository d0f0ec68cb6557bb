// What a server of the Model Context Protocol answers, as values. Nothing of it is trusted: what is
// no such answer is an error with words. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace pelton::mcp {

struct Tool {
  std::string name;
  std::string description;
  Json input_schema;  // an object, or null
};

struct ToolResult {
  std::string text;       // its texts, one below the other; parts of other kinds are named
  bool is_error = false;  // the tool itself says that it failed
};

// kIo: `what` it is instead.
Error no_answer(std::string what);

// The "result" of a message that answers a request: an object. kIo: the server refuses, with its
// words, or there is none.
Result<Json> result_of(const Json& answer);

// Results of "tools/call" and "tools/list". The latter's tools are appended, 256 at most in all;
// the cursor of its next page, which is empty behind the last.
Result<ToolResult> tool_result(const Json& result);
Result<std::string> add_tools(const Json& result, std::vector<Tool>& tools);

}  // namespace pelton::mcp
