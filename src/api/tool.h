// Functions a caller offers to the model, and which of them it may call. Values, pure functions.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/builtin_tools.h"
#include "api/fields.h"
#include "base/json.h"

namespace pelton::api {

struct FunctionTool {
  std::string name;
  std::string description;
  std::optional<Json> parameters;  // a JSON schema, always an object
  bool strict = false;             // arguments must follow it, also when the model calls by itself
  bool deferred = false;           // shown to the model where the conversation refers to it
  std::string field;               // where the parameters stand in the request, for errors
};

inline constexpr size_t kToolsMax = 128;
inline constexpr size_t kDeferredToolsMax = 10'000;  // Anthropic's, of a catalogue that is searched
inline constexpr size_t kToolNameBytesMax = 64;

// The model must call a function: this one, or any if the name is empty.
struct ForcedCall {
  std::string function_name;
};

struct ToolFields {
  std::vector<FunctionTool> functions;  // that may be called
  BuiltinTools builtins;                // of the Responses API alone
  std::vector<std::string> declared;    // names: those that "tool_choice" leaves out, too
  std::optional<ForcedCall> forced_call;
  bool parallel_calls = true;         // false: at most one in an answer
  bool is_legacy = false;             // "functions": the answer has a "function_call"
  std::vector<std::string> warnings;  // what was ignored, for a response header
};

// "tools" and "tool_choice", or the older "functions" and "function_call". With "none" no function
// is left; a choice among some of them ("allowed_tools") leaves the others out.
ToolFields read_tools(const Fields& body);

// How a protocol lists its tools: the differences between them.
struct ToolList {
  std::string_view key = "tools";
  std::string_view type;  // of the tools that are read; others are ignored with a warning
  bool type_needed = true;
  size_t count_max = kToolsMax;
  std::string_view nouns;       // "functions", in complaints
  std::string_view name_field;  // of a tool, for complaints
  std::string_view ignored;     // why the others are
  // Whether one of another type is taken all the same; empty: none is.
  std::function<bool(std::string_view type)> take_other = {};
  std::optional<FunctionTool> (*read_one)(const Fields& tool) = nullptr;  // complains by itself
};
// The list alone, without "tool_choice".
void read_tool_list(const Fields& body, const ToolList& list, ToolFields& read);

// One of them must be called: a "tool_choice" of "required".
void require_one(const Fields& body, ToolFields& read);

// Only some may be called: `choice` has their "mode" ("auto" or "required") and "tools". Which
// function of `read` one of these names is a protocol's own; it complains where it is none.
using OfferedName = std::string (*)(const Fields& tool, const ToolFields& read);
void allow_some(const Fields& body, const Fields& choice, OfferedName offered_name,
                ToolFields& read);

// The members of one function ("name", "description", "parameters"), wherever a protocol puts them.
std::optional<FunctionTool> read_function_members(const Fields& fields);

// 1..64 letters, digits, '_', '-' and '.', the set that every chat format carries unharmed.
bool is_tool_name(std::string_view name);

}  // namespace pelton::api
