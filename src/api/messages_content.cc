#include "api/messages_content.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "base/function_ref.h"

namespace pelton::api {
namespace {

// The body's own limit (net/) bounds texts; no need for a second one.
constexpr size_t kTextBytesMax = std::numeric_limits<size_t>::max();
constexpr size_t kBlocksMax = 65536;
constexpr size_t kIdBytesMax = 256;
constexpr size_t kDescriptionBytesMax = 64 * 1024;
constexpr std::string_view kBetweenBlocks = "\n\n";

// Calls made so far and who made them; a result finds its function's name here.
using Calls = std::unordered_map<std::string, std::string>;

void append_paragraph(std::string& text, std::string_view more) {
  if (more.empty()) return;
  if (!text.empty()) text += kBetweenBlocks;
  text += more;
}

// The member that a block must have; null, and a complaint, if it has not.
const std::string* needed_text(const Fields& block, std::string_view key, size_t bytes_max) {
  const std::string* text = block.text(key, bytes_max);
  if (text == nullptr) block.refuse(key, fmt::format("'{}' is missing", block.path(key)));
  return block.failed() ? nullptr : text;
}

// Each block of `content`, which is a string (told as a text block would be) or an array. False if
// there is no content.
using SeesText = base::FunctionRef<void(const std::string& text)>;
using SeesBlock = base::FunctionRef<void(const Fields& block, const std::string& type)>;
bool read_blocks(const Fields& owner, std::string_view key, SeesText sees_text,
                 SeesBlock sees_block) {
  const Json* content = owner.find(key);
  if (content == nullptr) return false;
  if (content->is_string()) {
    sees_text(content->as_string());
    return true;
  }
  if (!content->is_array()) {
    owner.refuse(key, fmt::format("'{}' must be a string or an array of blocks, not {}",
                                  owner.path(key), content->kind_name()));
    return true;
  }
  const Json* items = owner.array(key, kBlocksMax);
  if (items == nullptr) return true;
  for (size_t i = 0; i < items->as_array().size() && !owner.failed(); ++i) {
    const Json& item = items->as_array()[i];
    const std::string path = item_path(key, i);
    if (!item.is_object()) {
      owner.refuse(
          path, fmt::format("'{}' must be an object, not {}", owner.path(path), item.kind_name()));
      return true;
    }
    const Fields block(item, owner.path(path), owner.complaint());
    const std::string* type = needed_text(block, "type", 256);
    if (type == nullptr) return true;
    if (*type != "text") {
      sees_block(block, *type);
    } else if (const std::string* text = needed_text(block, "text", kTextBytesMax)) {
      sees_text(*text);
    }
  }
  return true;
}

void refuse_block(const Fields& block, const std::string& type) {
  block.refuse("type", fmt::format("'{}' is '{}'; this model does not read such blocks",
                                   block.path("type"), type.substr(0, 40)));
}

// Text blocks only.
std::string read_text(const Fields& owner, std::string_view key) {
  std::string text;
  const auto add = [&](const std::string& more) { append_paragraph(text, more); };
  const auto refuse = [](const Fields& block, const std::string& type) {
    refuse_block(block, type);
  };
  read_blocks(owner, key, add, refuse);
  return text;
}

void read_tool_result(const Fields& block, const Calls& calls, std::vector<ChatMessage>& out) {
  const std::string* id = needed_text(block, "tool_use_id", kIdBytesMax);
  if (id == nullptr) return;
  const auto call = calls.find(*id);
  if (call == calls.end()) {
    block.refuse("tool_use_id",
                 fmt::format("'{}' names no tool_use block of an earlier assistant message",
                             block.path("tool_use_id")));
    return;
  }
  ChatMessage result{.role = ChatRole::kTool};
  result.name = call->second;
  result.tool_call_id = *id;
  result.content = read_text(block, "content");
  // Harmony has no other way to say so.
  if (block.boolean("is_error").value_or(false)) result.content.insert(0, "Error: ");
  out.push_back(std::move(result));
}

void read_user_turn(const Fields& message, const Calls& calls, std::vector<ChatMessage>& out) {
  bool speaks = false;  // the last of `out` is this turn's own text
  const auto add_text = [&](const std::string& text) {
    if (!speaks) out.push_back({.role = ChatRole::kUser});
    speaks = true;
    append_paragraph(out.back().content, text);
  };
  const auto add_block = [&](const Fields& block, const std::string& type) {
    if (type != "tool_result") return refuse_block(block, type);
    speaks = false;
    read_tool_result(block, calls, out);
  };
  const size_t before = out.size();
  read_blocks(message, "content", add_text, add_block);
  if (out.size() == before && !message.failed()) {
    message.refuse("content", fmt::format("'{}' must not be empty", message.path("content")));
  }
}

void read_tool_use(const Fields& block, ChatMessage& turn) {
  const std::string* id = needed_text(block, "id", kIdBytesMax);
  const std::string* name = needed_text(block, "name", kIdBytesMax);
  const Json* input = block.object("input");
  if (id == nullptr || name == nullptr || block.failed()) return;
  if (id->empty() || name->empty()) {
    block.refuse(id->empty() ? "id" : "name", "a tool_use block needs an id and a name");
    return;
  }
  turn.tool_calls.push_back({*id, *name, input == nullptr ? std::string("{}") : input->dump()});
}

void read_assistant_turn(const Fields& message, Calls& calls, std::vector<ChatMessage>& out) {
  ChatMessage turn{.role = ChatRole::kAssistant};
  const auto add_text = [&](const std::string& text) { turn.content += text; };
  const auto add_block = [&](const Fields& block, const std::string& type) {
    if (type == "tool_use") {
      if (turn.tool_calls.size() < kToolsMax) return read_tool_use(block, turn);
      block.refuse(
          "", fmt::format("'{}': a turn has at most {} tool calls", block.path(""), kToolsMax));
    } else if (type == "thinking") {
      const std::string* text = needed_text(block, "thinking", kTextBytesMax);
      if (text != nullptr) turn.reasoning += *text;
    } else if (type != "redacted_thinking") {  // which was never readable
      refuse_block(block, type);
    }
  };
  read_blocks(message, "content", add_text, add_block);
  if (message.failed()) return;
  for (const ToolCallFields& call : turn.tool_calls) calls[call.id] = call.name;
  const bool says_nothing =
      turn.content.empty() && turn.reasoning.empty() && turn.tool_calls.empty();
  if (!says_nothing) out.push_back(std::move(turn));
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
  read.field = tool.path("input_schema");
  if (tool.failed()) return std::nullopt;
  return read;
}

void apply_tool_choice(const Fields& body, ToolFields& read) {
  const Json* choice = body.object("tool_choice");
  if (choice == nullptr) return;
  const Fields fields(*choice, "tool_choice", body.complaint());
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

std::vector<ChatMessage> read_message_turns(const Fields& body) {
  std::vector<ChatMessage> messages;
  std::string system = read_text(body, "system");
  if (!system.empty()) {
    messages.push_back({.role = ChatRole::kSystem});
    messages.back().content = std::move(system);
  }
  const Json* items = body.array("messages", kMessagesMax);
  if (body.failed()) return messages;
  if (items == nullptr || items->as_array().empty()) {
    body.refuse("messages", items == nullptr ? "'messages' is missing"
                                             : "'messages' must have at least one message");
    return messages;
  }
  Calls calls;
  for (size_t i = 0; i < items->as_array().size() && !body.failed(); ++i) {
    const Json& item = items->as_array()[i];
    const std::string path = item_path("messages", i);
    if (!item.is_object()) {
      body.refuse(path, fmt::format("'{}' must be an object, not {}", path, item.kind_name()));
      return messages;
    }
    const Fields message(item, path, body.complaint());
    const std::string* role = needed_text(message, "role", 64);
    if (role == nullptr) return messages;
    const bool is_last = i + 1 == items->as_array().size();
    if (*role == "user") {
      read_user_turn(message, calls, messages);
    } else if (*role == "assistant" && !is_last) {
      read_assistant_turn(message, calls, messages);
    } else if (*role == "assistant") {
      message.refuse_unsupported("role", "an answer that goes on from a last assistant message");
    } else {
      message.refuse("role", fmt::format("'{}' must be 'user' or 'assistant'; instructions go "
                                         "into 'system'",
                                         message.path("role")));
    }
  }
  return messages;
}

ToolFields read_message_tools(const Fields& body) {
  ToolFields read;
  read_tool_list(body,
                 {.type = "custom",
                  .type_needed = false,
                  .nouns = "tools",
                  .name_field = "name",
                  .ignored = "unknown tool type",
                  .read_one = read_tool},
                 read);
  apply_tool_choice(body, read);
  return read;
}

}  // namespace pelton::api
