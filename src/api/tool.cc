#include "api/tool.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

namespace pelton::api {
namespace {

constexpr size_t kDescriptionBytesMax = 64 * 1024;

std::optional<FunctionTool> read_function(const Fields& tool) {
  const Json* function = tool.object("function");
  if (function == nullptr) {
    tool.refuse("function", fmt::format("'{}' is missing", tool.path("function")));
    return std::nullopt;
  }
  return read_function_members(Fields(*function, tool.path("function"), tool.complaint()));
}

bool offers(const ToolFields& read, std::string_view name) {
  return std::any_of(read.functions.begin(), read.functions.end(),
                     [&](const FunctionTool& function) { return function.name == name; });
}

// OpenAI's older form: {"name", "description", "parameters"} without a wrapping, one call at most.
void read_legacy_functions(const Fields& body, ToolFields& read) {
  read_tool_list(body,
                 {.key = "functions",
                  .type = "function",
                  .type_needed = false,
                  .nouns = "functions",
                  .name_field = "name",
                  .ignored = "unknown type",
                  .read_one = read_function_members},
                 read);
  read.is_legacy = true;
  read.parallel_calls = false;
  body.boolean("parallel_tool_calls");  // there is one call at most either way
  const Json* choice = body.find("function_call");
  if (choice == nullptr || body.failed()) return;
  if (choice->is_object()) {
    const Fields fields(*choice, "function_call", body.complaint());
    const std::string* name = fields.text("name", kToolNameBytesMax);
    if (name != nullptr && offers(read, *name)) {
      read.forced_call = ForcedCall{*name};
    } else {
      fields.refuse("name", "'function_call.name' must name a function of 'functions'");
    }
    return;
  }
  const std::string* word = body.text("function_call", 64);
  if (word != nullptr && *word == "none") {
    read.functions.clear();
  } else if (word != nullptr && *word != "auto") {
    body.refuse("function_call", "'function_call' must be 'none', 'auto' or {\"name\": …}");
  }
}

// Whether the request speaks the older form; complains where it speaks both.
bool has_legacy_functions(const Fields& body) {
  const Json* functions = body.array("functions", kToolsMax);
  const Json* choice = body.find("function_call");
  const Json* tools = body.find("tools");
  const bool has_functions = functions != nullptr && !functions->as_array().empty();
  const bool has_tools = tools != nullptr && tools->is_array() && !tools->as_array().empty();
  if (has_functions && has_tools) {
    body.refuse("functions", "'functions' is the older form of 'tools'; give one of them");
  } else if (has_functions && body.find("tool_choice") != nullptr) {
    body.refuse("tool_choice",
                "'tool_choice' goes with 'tools'; with 'functions' give "
                "'function_call'");
  } else if (choice != nullptr && has_tools) {
    body.refuse("function_call",
                "'function_call' goes with 'functions'; with 'tools' give "
                "'tool_choice'");
  } else if (choice != nullptr && choice->is_object() && !has_functions) {
    body.refuse("function_call", "'function_call' names a function, but 'functions' has none");
  }
  return has_functions || (choice != nullptr && !has_tools);
}

// Of {"type": "function", "function": {"name": "f"}}; empty after a complaint.
std::string offered_name(const Fields& tool, const ToolFields& read) {
  const Json* function = tool.object("function");
  if (function == nullptr) {
    tool.refuse("function", fmt::format("'{}' is missing", tool.path("function")));
    return {};
  }
  const Fields fields(*function, tool.path("function"), tool.complaint());
  const std::string* name = fields.text("name", kToolNameBytesMax);
  if (fields.failed()) return {};
  if (name != nullptr && offers(read, *name)) return *name;
  fields.refuse("name", fmt::format("'{}' must name a function of 'tools'", fields.path("name")));
  return {};
}

// {"type": "function", …}, or {"type": "allowed_tools", "allowed_tools": {"mode", "tools"}}
void apply_object(const Fields& body, const Fields& choice, ToolFields& read) {
  const std::string* type = choice.text("type", 256);
  if (choice.failed()) return;
  if (type != nullptr && *type == "function") {
    std::string name = offered_name(choice, read);
    if (!choice.failed()) read.forced_call = ForcedCall{std::move(name)};
    return;
  }
  if (type == nullptr || *type != "allowed_tools") {
    choice.refuse("type",
                  fmt::format("'{}' must be 'function' or 'allowed_tools'", choice.path("type")));
    return;
  }
  const Json* allowed = choice.object("allowed_tools");
  if (allowed == nullptr) {
    choice.refuse("allowed_tools", fmt::format("'{}' is missing", choice.path("allowed_tools")));
    return;
  }
  allow_some(body, Fields(*allowed, choice.path("allowed_tools"), body.complaint()), offered_name,
             read);
}

void apply_choice(const Fields& body, ToolFields& read) {
  const Json* choice = body.find("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_object()) {
    apply_object(body, Fields(*choice, "tool_choice", body.complaint()), read);
    return;
  }
  const std::string* word = body.text("tool_choice", 64);
  if (word == nullptr) return;
  if (*word == "none") {
    read.functions.clear();
  } else if (*word == "required") {
    require_one(body, read);
  } else if (*word != "auto") {
    body.refuse("tool_choice", "'tool_choice' must be 'none', 'auto', 'required' or an object");
  }
}

}  // namespace

void require_one(const Fields& body, ToolFields& read) {
  if (read.functions.empty()) {
    body.refuse("tool_choice", "'tool_choice' is 'required', but 'tools' has no function");
    return;
  }
  // Of one function the name is no question.
  const bool only_one = read.functions.size() == 1;
  read.forced_call = ForcedCall{only_one ? read.functions.front().name : std::string()};
}

// Of the functions f, g and h, where "tools" names f and "mode" is "required": `functions` is left
// with f, which must be called; `declared` keeps all three, for calls that were made before.
void allow_some(const Fields& body, const Fields& choice, OfferedName offered_name,
                ToolFields& read) {
  const Json* tools = choice.array("tools", kToolsMax);
  if (choice.failed()) return;
  if (tools == nullptr) {
    choice.refuse("tools", fmt::format("'{}' is missing", choice.path("tools")));
    return;
  }
  std::unordered_set<std::string> allowed;
  BuiltinTools builtins;
  for (size_t i = 0; i < tools->as_array().size() && !choice.failed(); ++i) {
    const Json& item = tools->as_array()[i];
    const std::string path = item_path(choice.path("tools"), i);
    if (!item.is_object()) {
      choice.refuse("tools", fmt::format("'{}' must be an object, not {}", path, item.kind_name()));
      return;
    }
    const Fields tool(item, path, body.complaint());
    const std::string* type = tool.text("type", 256);
    if (type == nullptr) continue;
    if (*type == "function") allowed.insert(offered_name(tool, read));
    builtins.add(*type, read.builtins);
  }
  read.builtins = builtins;
  std::erase_if(read.functions,
                [&](const FunctionTool& function) { return !allowed.contains(function.name); });
  const std::string* mode = choice.text("mode", 64);
  if (choice.failed()) return;
  if (mode != nullptr && *mode == "required") {
    require_one(body, read);
  } else if (mode == nullptr || *mode != "auto") {
    choice.refuse("mode", fmt::format("'{}' must be 'auto' or 'required'", choice.path("mode")));
  }
}

std::optional<FunctionTool> read_function_members(const Fields& fields) {
  const std::string* name = fields.text("name", kToolNameBytesMax);
  if (fields.failed()) return std::nullopt;
  if (name == nullptr || !is_tool_name(*name)) {
    fields.refuse("name", fmt::format("'{}' must be 1 to {} letters, digits, '_', '-' or '.'",
                                      fields.path("name"), kToolNameBytesMax));
    return std::nullopt;
  }
  FunctionTool read{.name = *name, .description = {}, .parameters = {}};
  read.field = fields.path("parameters");
  if (const std::string* text = fields.text("description", kDescriptionBytesMax)) {
    read.description = *text;
  }
  if (const Json* parameters = fields.object("parameters")) read.parameters = *parameters;
  read.strict = fields.boolean("strict").value_or(false);
  if (fields.failed()) return std::nullopt;
  return read;
}

void read_tool_list(const Fields& body, const ToolList& list, ToolFields& read) {
  const Json* tools = body.array(list.key, list.count_max);
  if (tools == nullptr) return;
  std::unordered_set<std::string> names;
  for (size_t i = 0; i < tools->as_array().size() && !body.failed(); ++i) {
    const Json& item = tools->as_array()[i];
    const std::string path = item_path(list.key, i);
    if (!item.is_object()) {
      body.refuse(path, fmt::format("'{}' must be an object, not {}", path, item.kind_name()));
      return;
    }
    const Fields tool(item, path, body.complaint());
    const std::string* type = tool.text("type", 256);
    if (type == nullptr && list.type_needed) {
      tool.refuse("type", fmt::format("'{}' is missing", tool.path("type")));
      return;
    }
    if (type != nullptr && *type != list.type) {
      if (list.take_other && list.take_other(*type)) continue;
      // Agents send tool kinds of their own vendor; the model can do without them.
      read.warnings.push_back(fmt::format("{} ignored: {}", path, list.ignored));
      continue;
    }
    std::optional<FunctionTool> function = list.read_one(tool);
    if (!function) return;
    if (!names.insert(function->name).second) {
      tool.refuse(list.name_field,
                  fmt::format("'{}': there are two {} named '{}'", tool.path(list.name_field),
                              list.nouns, function->name));
      return;
    }
    read.declared.push_back(function->name);
    read.functions.push_back(std::move(*function));
  }
}

ToolFields read_tools(const Fields& body) {
  ToolFields read;
  if (has_legacy_functions(body)) {
    if (!body.failed()) read_legacy_functions(body, read);
    return read;
  }
  read_tool_list(body,
                 {.type = "function",
                  .nouns = "functions",
                  .name_field = "function.name",
                  .ignored = "unknown tool type",
                  .read_one = read_function},
                 read);
  apply_choice(body, read);
  read.parallel_calls = body.boolean("parallel_tool_calls").value_or(true);
  return read;
}

bool is_tool_name(std::string_view name) {
  if (name.empty() || name.size() > kToolNameBytesMax) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
}

}  // namespace pelton::api
