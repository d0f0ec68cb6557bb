#include "api/messages_tool.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "api/messages_block.h"

namespace pelton::api {
namespace {

constexpr size_t kDescriptionBytesMax = 64 * 1024;

// "allowed_callers": ["direct"]. Other callers run on a server of theirs; a function that only they
// may call is none of the model's.
void check_callers(const Fields& tool) {
  constexpr size_t kCallersMax = 64;
  const Json* callers = tool.array("allowed_callers", kCallersMax);
  if (callers == nullptr || callers->as_array().empty()) return;
  const bool direct = std::ranges::any_of(callers->as_array(), [](const Json& caller) {
    return caller.is_string() && caller.as_string() == "direct";
  });
  if (!direct) tool.refuse_unsupported("allowed_callers", "a list without 'direct'");
}

std::optional<FunctionTool> read_tool(const Fields& tool) {
  const std::string* name = needed_text(tool, "name", kToolNameBytesMax);
  if (name == nullptr) return std::nullopt;
  if (!is_tool_name(*name)) {
    tool.refuse("name", fmt::format("'{}' must be 1 to {} letters, digits, '_', '-' or '.'",
                                    tool.path("name"), kToolNameBytesMax));
    return std::nullopt;
  }
  FunctionTool read{.name = *name, .description = {}, .parameters = {}};
  if (const std::string* text = tool.text("description", kDescriptionBytesMax)) {
    read.description = *text;
  }
  const Json* schema = tool.object("input_schema");
  if (schema == nullptr) {
    tool.refuse("input_schema", fmt::format("'{}' is missing", tool.path("input_schema")));
    return std::nullopt;
  }
  read.parameters = *schema;
  read.strict = tool.boolean("strict").value_or(false);
  read.deferred = tool.boolean("defer_loading").value_or(false);
  check_callers(tool);
  check_cache_control(tool);
  read.field = tool.path("input_schema");
  if (tool.failed()) return std::nullopt;
  return read;
}

// Whether a tool of theirs that searches the others is among the tools. It runs on their server.
bool searches_at_the_server(const Fields& body) {
  const Json* tools = body.array("tools", kDeferredToolsMax);
  return tools != nullptr && std::ranges::any_of(tools->as_array(), [](const Json& tool) {
           return tool.is_object() &&
                  tool.string("type").value_or("").starts_with("tool_search_tool_");
         });
}

// The one function that "tool_choice" names; null if it names none.
const std::string* chosen_tool(const Fields& body) {
  const Json* choice = body.object("tool_choice");
  if (choice == nullptr || choice->string("type") != "tool") return nullptr;
  return Fields(*choice, "tool_choice", body.complaint()).text("name", kToolNameBytesMax);
}

// Deferred functions that nothing has referred to so far are unknown to the model. Of f and the
// deferred g and h, where a tool's result refers to h, f and h are left.
void drop_unloaded(const Fields& body, std::span<const ChatMessage> messages, ToolFields& read) {
  if (searches_at_the_server(body)) {
    size_t deferred = 0;
    for (FunctionTool& function : read.functions)
      deferred += std::exchange(function.deferred, false);
    if (deferred == 0) return;
    read.warnings.emplace_back(
        "defer_loading ignored: this server searches no tools itself, so the model sees all");
    return;
  }
  const bool all_deferred = std::ranges::all_of(read.functions, &FunctionTool::deferred);
  if (all_deferred && !read.functions.empty() && read.warnings.empty()) {
    body.refuse(
        "tools",
        "All tools have defer_loading set. At least one of 'tools' must be shown to the model "
        "from the beginning: let it have 'defer_loading': false");
    return;
  }
  std::unordered_set<std::string_view> loaded;
  for (const ChatMessage& message : messages) {
    loaded.insert(message.loaded_tools.begin(), message.loaded_tools.end());
  }
  const std::string* chosen = chosen_tool(body);
  for (FunctionTool& function : read.functions) {
    const bool called_now = chosen != nullptr && function.name == *chosen;
    if (called_now && !loaded.contains(function.name)) function.deferred = false;
  }
  std::erase_if(read.functions, [&](const FunctionTool& function) {
    return function.deferred && !loaded.contains(function.name);
  });
}

void refuse_too_many(const Fields& body, const ToolFields& read) {
  if (read.functions.size() <= kToolsMax || body.failed()) return;
  body.refuse("tools", fmt::format("'tools' has {} tools that the model sees; at most {} are "
                                   "allowed: let the others have 'defer_loading'",
                                   read.functions.size(), kToolsMax));
}

void apply_tool_choice(const Json& choice, const Fields& body, ToolFields& read) {
  const Fields fields(choice, "tool_choice", body.complaint());
  const std::string* type = needed_text(fields, "type", 64);
  read.parallel_calls = !fields.boolean("disable_parallel_tool_use").value_or(false);
  if (type == nullptr || fields.failed() || *type == "auto") return;
  if (*type == "none") {
    read.functions.clear();
  } else if (*type == "any") {
    if (read.functions.empty()) {
      fields.refuse("type", "'tool_choice.type' is 'any', but 'tools' has none to call");
      return;
    }
    // Of one function the name is no question.
    const bool only_one = read.functions.size() == 1;
    read.forced_call = ForcedCall{only_one ? read.functions.front().name : std::string()};
  } else if (*type == "tool") {
    const std::string* name = needed_text(fields, "name", kToolNameBytesMax);
    if (name == nullptr) return;
    const bool offered =
        std::any_of(read.functions.begin(), read.functions.end(),
                    [&](const FunctionTool& function) { return function.name == *name; });
    if (!offered) {
      fields.refuse("name", "'tool_choice.name' must name one of 'tools'");
      return;
    }
    read.forced_call = ForcedCall{*name};
  } else {
    fields.refuse("type", "'tool_choice.type' must be 'auto', 'any', 'tool' or 'none'");
  }
}

}  // namespace

ToolFields read_message_tools(const Fields& body, std::span<const ChatMessage> messages) {
  ToolFields read;
  const Json* const choice = body.object("tool_choice");  // noted of any body
  read_tool_list(body,
                 {.type = "custom",
                  .type_needed = false,
                  .count_max = kDeferredToolsMax,
                  .nouns = "tools",
                  .name_field = "name",
                  .ignored = "unknown tool type",
                  .read_one = read_tool},
                 read);
  if (body.failed()) return read;
  drop_unloaded(body, messages, read);
  refuse_too_many(body, read);
  if (choice != nullptr) apply_tool_choice(*choice, body, read);
  return read;
}

}  // namespace pelton::api
