#include "api/chat_message.h"

#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "api/tool.h"

namespace pelton::api {
namespace {

// The body's own limit (net/) bounds texts; no need for a second one.
constexpr size_t kTextBytesMax = std::numeric_limits<size_t>::max();
constexpr size_t kPartsMax = 65536;
constexpr size_t kIdBytesMax = 256;

// Before there were tools: the result of a "function_call".
constexpr std::string_view kLegacyToolRole = "function";

std::optional<ChatRole> read_role(const Fields& message) {
  const std::string* role = message.text("role", 64);
  if (message.failed()) return std::nullopt;
  static constexpr std::pair<std::string_view, ChatRole> kRoles[] = {
      {"system", ChatRole::kSystem}, {"developer", ChatRole::kDeveloper},
      {"user", ChatRole::kUser},     {"assistant", ChatRole::kAssistant},
      {"tool", ChatRole::kTool},     {kLegacyToolRole, ChatRole::kTool},
  };
  for (const auto& [name, value] : kRoles) {
    if (role != nullptr && *role == name) return value;
  }
  message.refuse("role", fmt::format("'{}' must be 'system', 'developer', 'user', 'assistant', "
                                     "'tool' or 'function'",
                                     message.path("role")));
  return std::nullopt;
}

void append_part(const Json& item, const std::string& path, const Fields& message,
                 UnreadParts unread, PartsText& out) {
  if (!item.is_object()) {
    if (message.complaint()) return;
    message.complaint() =
        Error{ErrorCode::kInvalidArgument,
              fmt::format("'{}' must be an object, not {}", path, item.kind_name()), path};
    return;
  }
  const Fields part(item, path, message.complaint());
  const std::string* type = part.text("type", 256);
  if (part.failed()) return;
  const std::string_view kind = type == nullptr ? std::string_view("text") : *type;
  if (const std::string_view medium = medium_of(kind); !medium.empty()) {
    if (unread == UnreadParts::kRefused) return refuse_medium(part, medium);
    out.text += placeholder_of(medium);
    out.replaced.push_back(path);
    return;
  }
  if (kind != "text" && kind != "refusal" && kind != "input_text" && kind != "output_text") {
    part.refuse("type", fmt::format("'{}' is '{}'; this model reads text parts only",
                                    part.path("type"), kind.substr(0, 40)));
    return;
  }
  const std::string_view key = kind == "refusal" ? "refusal" : "text";
  const std::string* words = part.text(key, kTextBytesMax);
  if (part.failed()) return;
  if (words == nullptr) {
    part.refuse(key, fmt::format("'{}' is missing", part.path(key)));
    return;
  }
  out.text += *words;
}

void read_called_function(const Fields& fields, const std::string& id, ChatMessage& read) {
  const std::string* name = fields.text("name", kIdBytesMax);
  const std::string* arguments = fields.text("arguments", kTextBytesMax);
  if (fields.failed()) return;
  // Any words: the model may have made this name up, and its slip must not end the conversation.
  if (name == nullptr || name->empty()) {
    fields.refuse("name", fmt::format("'{}' is missing", fields.path("name")));
    return;
  }
  read.tool_calls.push_back({id, *name, arguments == nullptr ? std::string() : *arguments});
}

void read_call(const Fields& call, ChatMessage& read) {
  const std::string* type = call.text("type", 64);
  if (type != nullptr && *type != "function") {
    call.refuse("type", fmt::format("'{}' must be 'function'", call.path("type")));
  }
  const std::string* id = call.text("id", kIdBytesMax);
  const Json* function = call.object("function");
  if (call.failed()) return;
  if (id == nullptr || id->empty()) {
    call.refuse("id", fmt::format("'{}' is missing", call.path("id")));
    return;
  }
  if (function == nullptr) {
    call.refuse("function", fmt::format("'{}' is missing", call.path("function")));
    return;
  }
  read_called_function(Fields(*function, call.path("function"), call.complaint()), *id, read);
}

void read_assistant(const Fields& message, ChatMessage& read) {
  for (const std::string_view key : {"reasoning_content", "reasoning", "thinking"}) {
    const std::string* text = message.text(key, kTextBytesMax);
    if (text != nullptr && read.reasoning.empty()) read.reasoning = *text;
  }
  const Json* calls = message.array("tool_calls", kToolsMax);
  if (const Json* call = message.object("function_call")) {
    if (calls != nullptr && !calls->as_array().empty()) {
      message.refuse("function_call",
                     fmt::format("'{}' is the older form of 'tool_calls'; give one of them",
                                 message.path("function_call")));
      return;
    }
    const std::string path = message.path("function_call");
    return read_called_function(Fields(*call, path, message.complaint()), path, read);
  }
  if (calls == nullptr) return;
  for (size_t i = 0; i < calls->as_array().size() && !message.failed(); ++i) {
    const std::string path = item_path(message.path("tool_calls"), i);
    const Json& item = calls->as_array()[i];
    if (!item.is_object()) {
      message.refuse("tool_calls",
                     fmt::format("'{}' must be an object, not {}", path, item.kind_name()));
      return;
    }
    read_call(Fields(item, path, message.complaint()), read);
  }
}

// What the messages before say. Calls made so far: a result finds its function's name here.
struct History {
  std::unordered_map<std::string, std::string> call_names;  // by their ids
  std::unordered_map<std::string, std::string> latest_ids;  // by the functions' names
  bool has_result = false;  // of a tool, since the last assistant message
};

// A tool's image comes in its result or, from clients of models that read no parts in results, in a
// user's message behind it.
UnreadParts unread_parts_in(ChatRole role, const History& history) {
  const bool by_tool = role == ChatRole::kTool || (role == ChatRole::kUser && history.has_result);
  return by_tool ? UnreadParts::kReplaced : UnreadParts::kRefused;
}

// A result in the older form has no id: it is that of the latest call of its function.
void read_legacy_result(const Fields& message, const History& history, ChatMessage& read) {
  const std::string* name = message.text("name", kIdBytesMax);
  if (message.failed()) return;
  const auto call = name == nullptr ? history.latest_ids.end() : history.latest_ids.find(*name);
  if (call == history.latest_ids.end()) {
    message.refuse("name",
                   name == nullptr
                       ? fmt::format("'{}' is missing", message.path("name"))
                       : fmt::format("'{}' names no function that an earlier assistant message "
                                     "calls",
                                     message.path("name")));
    return;
  }
  read.name = *name;
  read.tool_call_id = call->second;
}

void read_tool_result(const Fields& message, const History& history, ChatMessage& read) {
  const std::string* id = message.text("tool_call_id", kIdBytesMax);
  if (message.failed()) return;
  if (id == nullptr) {
    message.refuse("tool_call_id", fmt::format("'{}' is missing", message.path("tool_call_id")));
    return;
  }
  const auto call = history.call_names.find(*id);
  if (call == history.call_names.end()) {
    message.refuse("tool_call_id",
                   fmt::format("'{}' names no tool call of an earlier assistant message",
                               message.path("tool_call_id")));
    return;
  }
  read.name = call->second;
  read.tool_call_id = *id;
}

ChatMessage read_message(const Fields& message, History& history) {
  ChatMessage read;
  const std::optional<ChatRole> role = read_role(message);
  if (!role) return read;
  read.role = *role;

  if (read.role == ChatRole::kTool) history.has_result = true;
  if (read.role == ChatRole::kAssistant) history.has_result = false;
  std::optional<PartsText> content =
      read_parts(message, "content", unread_parts_in(read.role, history));
  if (message.failed()) return read;
  if (read.role == ChatRole::kTool && *message.text("role", 64) == kLegacyToolRole) {
    read_legacy_result(message, history, read);
    if (content) {
      read.content = std::move(content->text);
      read.replaced = std::move(content->replaced);
    }
    return read;
  }
  const std::string* name = message.text("name", kToolNameBytesMax);
  if (name != nullptr && !is_tool_name(*name)) {
    message.refuse("name", fmt::format("'{}' must be 1 to {} letters, digits, '_', '-' or '.'",
                                       message.path("name"), kToolNameBytesMax));
  }
  if (name != nullptr && read.role == ChatRole::kUser) read.name = *name;
  if (read.role == ChatRole::kAssistant) read_assistant(message, read);
  if (read.role == ChatRole::kTool) read_tool_result(message, history, read);

  // What the assistant refused with stands in place of its content.
  const std::string* refusal =
      read.role == ChatRole::kAssistant ? message.text("refusal", kTextBytesMax) : nullptr;
  if (refusal != nullptr && (!content || content->text.empty())) {
    content = PartsText{.text = *refusal, .replaced = {}};
  }
  if (!content && read.role != ChatRole::kAssistant) {
    message.refuse("content", fmt::format("'{}' is missing", message.path("content")));
  }
  if (!content && read.role == ChatRole::kAssistant && read.tool_calls.empty() &&
      read.reasoning.empty()) {
    message.refuse("content", fmt::format("'{}' is missing, and there are no tool_calls either",
                                          message.path("content")));
  }
  if (content) {
    read.content = std::move(content->text);
    read.replaced = std::move(content->replaced);
  }
  for (const ToolCallFields& call : read.tool_calls) {
    history.call_names[call.id] = call.name;
    history.latest_ids[call.name] = call.id;
  }
  return read;
}

}  // namespace

std::optional<PartsText> read_parts(const Fields& fields, std::string_view key,
                                    UnreadParts unread) {
  const Json* content = fields.find(key);
  if (content == nullptr) return std::nullopt;
  if (content->is_string()) return PartsText{.text = content->as_string(), .replaced = {}};
  if (!content->is_array()) {
    fields.refuse(key, fmt::format("'{}' must be a string or an array of text parts, not {}",
                                   fields.path(key), content->kind_name()));
    return std::nullopt;
  }
  const Json* parts = fields.array(key, kPartsMax);
  if (parts == nullptr) return std::nullopt;
  PartsText read;
  for (size_t i = 0; i < parts->as_array().size() && !fields.failed(); ++i) {
    append_part(parts->as_array()[i], item_path(fields.path(key), i), fields, unread, read);
  }
  return read;
}

std::vector<ChatMessage> read_messages(const Fields& body) {
  std::vector<ChatMessage> messages;
  const Json* items = body.array("messages", kMessagesMax);
  if (body.failed()) return messages;
  if (items == nullptr || items->as_array().empty()) {
    body.refuse("messages", items == nullptr ? "'messages' is missing"
                                             : "'messages' must have at least one message");
    return messages;
  }
  messages.reserve(items->as_array().size());
  History history;
  for (size_t i = 0; i < items->as_array().size() && !body.failed(); ++i) {
    const Json& item = items->as_array()[i];
    const std::string path = item_path("messages", i);
    if (!item.is_object()) {
      body.refuse(path, fmt::format("'{}' must be an object, not {}", path, item.kind_name()));
      return messages;
    }
    messages.push_back(read_message(Fields(item, path, body.complaint()), history));
  }
  return messages;
}

}  // namespace pelton::api
