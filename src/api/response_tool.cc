#include "api/response_tool.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace pelton::api {
namespace {

// The name of a function that is offered; empty after a complaint.
std::string offered_name(const Fields& fields, const ToolFields& read) {
  const std::string* name = fields.text("name", kToolNameBytesMax);
  const auto named = [&](const FunctionTool& function) {
    return name != nullptr && function.name == *name;
  };
  if (std::any_of(read.functions.begin(), read.functions.end(), named)) return *name;
  fields.refuse("name", fmt::format("'{}' must name a function of 'tools'", fields.path("name")));
  return {};
}

void apply_object(const Fields& body, const Fields& choice, ToolFields& read) {
  const std::string* type = choice.text("type", 256);
  if (choice.failed()) return;
  if (type != nullptr && *type == "function") {
    std::string name = offered_name(choice, read);
    if (!choice.failed()) read.forced_call = ForcedCall{std::move(name)};
  } else if (type != nullptr && *type == "allowed_tools") {
    allow_some(body, choice, offered_name, read);
  } else {
    choice.refuse("type", fmt::format("'{}' must be 'function' or 'allowed_tools'; the model "
                                      "chooses itself when it calls others",
                                      choice.path("type")));
  }
}

void apply_choice(const Fields& body, ToolFields& read) {
  const Json* choice = body.find("tool_choice");
  if (choice == nullptr || body.failed()) return;
  if (choice->is_object()) {
    return apply_object(body, Fields(*choice, "tool_choice", body.complaint()), read);
  }
  const std::string* word = body.text("tool_choice", 64);
  if (word == nullptr) return;
  if (*word == "none") {
    read.functions.clear();
    read.builtins = {};
  } else if (*word == "required") {
    require_one(body, read);
  } else if (*word != "auto") {
    body.refuse("tool_choice", "'tool_choice' must be 'none', 'auto', 'required' or an object");
  }
}

}  // namespace

ToolFields read_response_tools(const Fields& body, BuiltinTools offered) {
  ToolFields read;
  const auto take_builtin = [&](std::string_view type) { return read.builtins.add(type, offered); };
  read_tool_list(body,
                 {.type = "function",
                  .nouns = "functions",
                  .name_field = "name",
                  .ignored = "this server runs no such tool",
                  .take_other = take_builtin,
                  .read_one = read_function_members},
                 read);
  // Of two tools of one name nobody would know which one is called.
  const auto is_taken = [](const FunctionTool& function) {
    return function.name == "python" || function.name.starts_with("browser.");
  };
  if (read.builtins.any() && std::ranges::any_of(read.functions, is_taken)) {
    body.refuse("tools",
                "'tools': beside tools that the server runs no function may be named 'python' or "
                "'browser.…'");
  }
  apply_choice(body, read);
  read.parallel_calls = body.boolean("parallel_tool_calls").value_or(true);
  return read;
}

}  // namespace pelton::api
