#include "chat/harmony_message.h"

#include <algorithm>
#include <array>

namespace pelton::chat {
namespace {

constexpr std::array<std::string_view, 5> kRoleNames = {"system", "developer", "user", "assistant",
                                                        "tool"};

Json property(std::string_view type) {
  return Json(Json::Object{{"type", Json(type)}});
}

Json property(std::string_view type, Json default_value) {
  Json out = property(type);
  out.set("default", std::move(default_value));
  return out;
}

Json object_schema(Json::Object properties, Json::Array required) {
  Json out = property("object");
  out.set("properties", Json(std::move(properties)));
  if (!required.empty()) out.set("required", Json(std::move(required)));
  return out;
}

FunctionTool browser_search() {
  return {.name = "search",
          .description = "Searches for information related to `query` and displays `topn` results.",
          .parameters = object_schema({{"query", property("string")},
                                       {"topn", property("number", 10)},
                                       {"source", property("string")}},
                                      {"query"})};
}

FunctionTool browser_open() {
  Json id = Json(Json::Object{{"type", Json(Json::Array{"number", "string"})}, {"default", -1}});
  return {.name = "open",
          .description =
              "Opens the link `id` from the page indicated by `cursor` starting at line number "
              "`loc`, showing `num_lines` lines.\n"
              "Valid link ids are displayed with the formatting: `【{id}†.*】`.\n"
              "If `cursor` is not provided, the most recent page is implied.\n"
              "If `id` is a string, it is treated as a fully qualified URL associated with "
              "`source`.\n"
              "If `loc` is not provided, the viewport will be positioned at the beginning of the "
              "document or centered on the most relevant passage, if available.\n"
              "Use this function without `id` to scroll to a new location of an opened page.",
          .parameters = object_schema({{"id", std::move(id)},
                                       {"cursor", property("number", -1)},
                                       {"loc", property("number", -1)},
                                       {"num_lines", property("number", -1)},
                                       {"view_source", property("boolean", false)},
                                       {"source", property("string")}},
                                      {})};
}

FunctionTool browser_find() {
  return {.name = "find",
          .description =
              "Finds exact matches of `pattern` in the current page, or the page given "
              "by `cursor`.",
          .parameters = object_schema(
              {{"pattern", property("string")}, {"cursor", property("number", -1)}}, {"pattern"})};
}

}  // namespace

std::string_view role_name(Role role) {
  return kRoleNames[static_cast<size_t>(role)];
}

std::optional<Role> role_from_name(std::string_view name) {
  const auto* found = std::find(kRoleNames.begin(), kRoleNames.end(), name);
  if (found == kRoleNames.end()) return std::nullopt;
  return static_cast<Role>(found - kRoleNames.begin());
}

ToolNamespace browser_namespace() {
  return {.name = "browser",
          .description =
              "Tool for browsing.\n"
              "The `cursor` appears in brackets before each browsing display: `[{cursor}]`.\n"
              "Cite information from the tool using the following format:\n"
              "`【{cursor}†L{line_start}(-L{line_end})?】`, for example: `【6†L9-L11】` or "
              "`【8†L3】`.\n"
              "Do not quote more than 10 words directly from the tool output.\n"
              "sources=web (default: web)",
          .functions = {browser_search(), browser_open(), browser_find()}};
}

ToolNamespace python_namespace() {
  return {.name = "python",
          .description =
              "Use this tool to execute Python code in your chain of thought. The code will not be "
              "shown to the user. This tool should be used for internal reasoning, but not for "
              "code that is intended to be visible to the user (e.g. when creating plots, tables, "
              "or files).\n\n"
              "When you send a message containing Python code to python, it will be executed in a "
              "stateful Jupyter notebook environment. python will respond with the output of the "
              "execution or time out after 120.0 seconds. The drive at '/mnt/data' can be used to "
              "save and persist user files. Internet access for this session is UNKNOWN. Depends "
              "on the cluster.",
          .functions = {}};
}

HarmonyMessage text_message(Role role, std::string text) {
  HarmonyMessage message{.role = role};
  message.content.emplace_back(std::move(text));
  return message;
}

HarmonyMessage channel_message(std::string_view channel, std::string text) {
  HarmonyMessage message = text_message(Role::kAssistant, std::move(text));
  message.channel = std::string(channel);
  return message;
}

HarmonyMessage function_call(std::string_view function, std::string arguments) {
  HarmonyMessage message = channel_message(kCommentary, std::move(arguments));
  message.recipient = "functions." + std::string(function);
  message.content_type = "<|constrain|>json";
  return message;
}

HarmonyMessage function_result(std::string_view function, std::string output) {
  HarmonyMessage message = text_message(Role::kTool, std::move(output));
  message.name = "functions." + std::string(function);
  message.recipient = std::string(role_name(Role::kAssistant));
  message.channel = std::string(kCommentary);
  return message;
}

}  // namespace pelton::chat
