// Functions a caller offers to the model, and which of them it may call.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/fields.h"
#include "base/json.h"

namespace pelton::api {

struct FunctionTool {
  std::string name;
  std::string description;
  std::optional<Json> parameters;  // a JSON schema, always an object
};

inline constexpr size_t kToolsMax = 128;
inline constexpr size_t kToolNameBytesMax = 64;

struct ToolFields {
  std::vector<FunctionTool> functions;
  std::vector<std::string> warnings;  // what was ignored, for a response header
};

// "tools" and "tool_choice". With "none" no function is left; a choice that would have to be
// enforced and cannot be yet is refused.
ToolFields read_tools(const Fields& body);

// 1..64 letters, digits, '_', '-' and '.', the set that Harmony headers carry unharmed.
bool is_tool_name(std::string_view name);

}  // namespace pelton::api
