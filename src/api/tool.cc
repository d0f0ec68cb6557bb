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
  const Fields fields(*function, tool.path("function"), tool.complaint());
  const std::string* name = fields.text("name", kToolNameBytesMax);
  if (fields.failed()) return std::nullopt;
  if (name == nullptr || !is_tool_name(*name)) {
    fields.refuse("name", fmt::format("'{}' must be 1 to {} letters, digits, '_', '-' or '.'",
                                      fields.path("name"), kToolNameBytesMax));
    return std::nullopt;
  }
  FunctionTool read{.name = *name, .description = {}, .parameters = {}};
  if (const std::string* text = fields.text("description", kDescriptionBytesMax)) {
    read.description = *text;
  }
  if (const Json* parameters = fields.object("parameters")) read.parameters = *parameters;
  fields.boolean("strict");
  if (fields.failed()) return std::nullopt;
  return read;
}

void read_functions(const Fields& body, ToolFields& read) {
  const Json* tools = body.array("tools", kToolsMax);
  if (tools == nullptr) return;
  std::unordered_set<std::string> names;
  for (size_t i = 0; i < tools->as_array().size() && !body.failed(); ++i) {
    const Json& item = tools->as_array()[i];
    const std::string path = item_path("tools", i);
    if (!item.is_object()) {
      body.refuse(path, fmt::format("'{}' must be an object, not {}", path, item.kind_name()));
      return;
    }
    const Fields tool(item, path, body.complaint());
    const std::string* type = tool.text("type", 256);
    if (type == nullptr) {
      tool.refuse("type", fmt::format("'{}' is missing", tool.path("type")));
      return;
    }
    if (*type != "function") {
      // Agents send tool kinds of their own vendor; the model can do without them.
      read.warnings.push_back(fmt::format("{} ignored: unknown tool type", path));
      continue;
    }
    std::optional<FunctionTool> function = read_function(tool);
    if (!function) return;
    if (!names.insert(function->name).second) {
      tool.refuse("function.name", fmt::format("'{}': there are two functions named '{}'",
                                               tool.path("function.name"), function->name));
      return;
    }
    read.functions.push_back(std::move(*function));
  }
}

void apply_choice(const Fields& body, ToolFields& read) {
  const Json* choice = body.find("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_object()) {
    body.refuse_unsupported("tool_choice", "forcing one function to be called");
    return;
  }
  const std::string* word = body.text("tool_choice", 64);
  if (word == nullptr) return;
  if (*word == "none") {
    read.functions.clear();
  } else if (*word == "required") {
    body.refuse_unsupported("tool_choice", "'required' (forcing a call)");
  } else if (*word != "auto") {
    body.refuse("tool_choice", "'tool_choice' must be 'none', 'auto', 'required' or an object");
  }
}

}  // namespace

ToolFields read_tools(const Fields& body) {
  ToolFields read;
  read_functions(body, read);
  apply_choice(body, read);
  body.boolean("parallel_tool_calls");
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
