#include "api/response_tool.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "api/documented_fields.h"

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

// A member of an object in one of the server's own tools.
struct Option {
  enum class Kind : uint8_t { kTaken, kWarned, kRefused };
  std::string_view name;
  Kind kind = Kind::kTaken;
  std::string_view why = {};
};
using enum Option::Kind;

// What narrows where a tool may go, or names what is not there, would be broken by leaving it out.
constexpr std::string_view kFreeSearch = "a list of domains that searches keep to";
constexpr std::array kFilterOptions = {Option{"allowed_domains", kRefused, kFreeSearch},
                                       Option{"blocked_domains", kRefused, kFreeSearch}};
constexpr std::array kSearchOptions = {
    Option{"type"}, Option{"filters"},
    Option{"external_web_access"},  // true; the reader looks at it
    Option{"user_location", kWarned, "no location goes to the tool's server"},
    Option{"search_context_size", kWarned, "the tool's server decides how much it prints"}};
constexpr std::array kInterpreterOptions = {Option{"type"}, Option{"container"}};
constexpr std::array kContainerOptions = {
    Option{"type"}, Option{"file_ids", kRefused, "a file in the tool's container"},
    Option{"network_policy", kRefused, "a container's network policy"},
    Option{"memory_limit", kWarned, "the tool's server bounds its memory"}};

bool asks_for_nothing(const Json& value) {
  return value.is_null() || (value.is_array() && value.as_array().empty()) ||
         (value.is_object() && value.as_object().empty());
}

void check_options(const Fields& of, std::span<const Option> options, ToolFields& read) {
  for (const Json::Member& member : of.json().as_object()) {
    if (asks_for_nothing(member.value)) continue;
    const auto found = std::ranges::find(options, std::string_view(member.key), &Option::name);
    if (found != options.end() && found->kind == kTaken) continue;
    if (found != options.end() && found->kind == kRefused) {
      return of.refuse_unsupported(member.key, found->why);
    }
    if (read.warnings.size() == kFieldWarningsMax) continue;
    read.warnings.push_back(
        unread_warning(of.path(member.key.substr(0, 64)),
                       found == options.end() ? "an unknown field" : found->why));
  }
}

void check_search(const Fields& tool, ToolFields& read) {
  check_options(tool, kSearchOptions, read);
  if (!tool.boolean("external_web_access").value_or(true)) {
    tool.refuse_unsupported("external_web_access", "a search that stays off the web");
  }
  if (const Json* filters = tool.object("filters")) {
    check_options(Fields(*filters, tool.path("filters"), tool.complaint()), kFilterOptions, read);
  }
}

void check_interpreter(const Fields& tool, ToolFields& read) {
  check_options(tool, kInterpreterOptions, read);
  const Json* container = tool.find("container");
  if (container == nullptr) return;
  if (container->is_string()) {
    return tool.refuse_unsupported("container",
                                   "a container that is named (use {\"type\": \"auto\"})");
  }
  if (tool.object("container") == nullptr) return;
  const Fields fields(*container, tool.path("container"), tool.complaint());
  const std::string* type = fields.text("type", 64);
  if (type != nullptr && *type != "auto") {
    fields.refuse("type", fmt::format("'{}' must be 'auto'", fields.path("type")));
  }
  check_options(fields, kContainerOptions, read);
}

// Of the tools that the server runs: each option is obeyed, refused or warned of.
void check_builtins(const Fields& body, BuiltinTools offered, ToolFields& read) {
  const Json* tools = body.array("tools", kToolsMax);
  if (tools == nullptr) return;
  for (size_t i = 0; i < tools->as_array().size() && !body.failed(); ++i) {
    const Fields tool(tools->as_array()[i], item_path("tools", i), body.complaint());
    const std::string* type = tool.text("type", 256);
    BuiltinTools one;
    if (type == nullptr || !one.add(*type, offered)) continue;
    one.browser ? check_search(tool, read) : check_interpreter(tool, read);
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
  if (read.builtins.any() && !body.failed()) check_builtins(body, offered, read);
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
