#include "api/messages_content.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "api/messages_block.h"

namespace pelton::api {
namespace {

constexpr size_t kTextBytesMax = std::numeric_limits<size_t>::max();
constexpr size_t kIdBytesMax = 256;

// Whether a block of a user's message is a tool's result.
bool has_tool_result(const Fields& message) {
  const Json* content = message.find("content");
  return content != nullptr && content->is_array() &&
         std::ranges::any_of(content->as_array(), [](const Json& block) {
           return block.is_object() && block.string("type") == "tool_result";
         });
}

class TurnReader {
 public:
  explicit TurnReader(const Fields& body) : body_(body) {}

  MessageTurns read();

 private:
  void read_message(const Fields& message, const std::string& role, bool is_last);
  void read_user(const Fields& message);
  void read_tool_result(const Fields& block);
  const std::string* read_tool_name(const Fields& reference, std::string_view key);
  void read_assistant(const Fields& message);
  void check_prefill(const Fields& message, size_t before);
  void read_thinking_block(const Fields& block, ChatMessage& turn);
  void read_tool_use(const Fields& block, ChatMessage& turn);
  void read_system(const Fields& message);
  void read_tool_change(const Fields& block, const std::string& type, ChatMessage& system);
  void note_tools();
  void note_warnings(const BlockText& text);

  const Fields& body_;
  MessageTurns read_;
  size_t users_left_ = 0;    // user messages behind the one that is read
  bool has_result_ = false;  // of a tool, since the last assistant message
  // Calls made so far and who made them; a result finds its function's name here.
  std::unordered_map<std::string, std::string> calls_;
  std::unordered_set<std::string> tools_;  // names in "tools", of any type
};

MessageTurns TurnReader::read() {
  std::string system = read_text_blocks(body_, "system");
  if (!system.empty()) {
    read_.messages.push_back({.role = ChatRole::kSystem});
    read_.messages.back().content = std::move(system);
  }
  const Json* items = body_.array("messages", kMessagesMax);
  if (body_.failed()) return std::move(read_);
  if (items == nullptr || items->as_array().empty()) {
    body_.refuse("messages", items == nullptr ? "'messages' is missing"
                                              : "'messages' must have at least one message");
    return std::move(read_);
  }
  note_tools();
  const Json::Array& array = items->as_array();
  for (const Json& item : array) {
    if (item.is_object() && item.string("role") == "user") ++users_left_;
  }
  for (size_t i = 0; i < array.size() && !body_.failed(); ++i) {
    const std::string path = item_path("messages", i);
    if (!array[i].is_object()) {
      body_.refuse(path, fmt::format("'{}' must be an object, not {}", path, array[i].kind_name()));
      break;
    }
    const Fields message(array[i], path, body_.complaint());
    const std::string* role = needed_text(message, "role", 64);
    if (role != nullptr) read_message(message, *role, i + 1 == array.size());
  }
  if (read_.messages.empty()) {
    body_.refuse("messages", "'messages' must have at least one message that says something");
  }
  warn_of_replaced(read_.messages, read_.warnings);
  return std::move(read_);
}

void TurnReader::read_message(const Fields& message, const std::string& role, bool is_last) {
  if (role == "user") {
    --users_left_;
    read_user(message);
  } else if (role == "system") {
    read_system(message);
  } else if (role == "assistant") {
    has_result_ = false;
    const size_t before = read_.messages.size();
    read_assistant(message);
    if (is_last) check_prefill(message, before);
  } else {
    message.refuse(
        "role", fmt::format("'{}' must be 'user', 'assistant' or 'system'", message.path("role")));
  }
}

// The blocks text "a", text "b", the tool result "r" and text "c" become three messages: the user's
// "a\n\nb", the tool's "r" and the user's "c".
void TurnReader::read_user(const Fields& message) {
  std::vector<ChatMessage>& out = read_.messages;
  has_result_ = has_result_ || has_tool_result(message);
  BlockText text(has_result_ ? UnreadParts::kReplaced : UnreadParts::kRefused);
  bool speaks = false;  // the last of `out` is this turn's own text
  const auto flush = [&] {
    if (!std::exchange(speaks, false)) return;
    out.push_back({.role = ChatRole::kUser});
    out.back().content = text.take_text();
    out.back().replaced = text.take_replaced();
  };
  const auto add_text = [&](const std::string& more) {
    speaks = true;
    text.add(more);
  };
  const auto add_block = [&](const Fields& block, const std::string& type) {
    if (type == "tool_result") {
      flush();
      read_tool_result(block);
    } else if (text.add_block(block, type)) {
      speaks = true;
    } else {
      refuse_block(block, type);
    }
  };
  const size_t before = out.size();
  read_blocks(message, "content", add_text, add_block);
  flush();
  note_warnings(text);
  if (out.size() == before && !message.failed()) {
    message.refuse("content", fmt::format("'{}' must not be empty", message.path("content")));
  }
}

void TurnReader::read_tool_result(const Fields& block) {
  const std::string* id = needed_text(block, "tool_use_id", kIdBytesMax);
  if (id == nullptr) return;
  const auto call = calls_.find(*id);
  if (call == calls_.end()) {
    block.refuse("tool_use_id",
                 fmt::format("'{}' names no tool_use block of an earlier assistant message",
                             block.path("tool_use_id")));
    return;
  }
  ChatMessage result{.role = ChatRole::kTool};
  result.name = call->second;
  result.tool_call_id = *id;
  BlockText text(UnreadParts::kReplaced);
  read_blocks(
      block, "content", [&](const std::string& more) { text.add(more); },
      [&](const Fields& part, const std::string& type) {
        if (type == "tool_reference") {
          const std::string* name = read_tool_name(part, "tool_name");
          if (name == nullptr) return;
          text.add(fmt::format("Tool loaded: {}", *name));
          result.loaded_tools.push_back(*name);
        } else if (!text.add_block(part, type)) {
          refuse_block(part, type);
        }
      });
  result.content = text.take_text();
  result.replaced = text.take_replaced();
  note_warnings(text);
  // A chat format has no other way to say so.
  if (block.boolean("is_error").value_or(false)) result.content.insert(0, "Error: ");
  read_.messages.push_back(std::move(result));
}

// Of {"type": "tool_reference", …}; null after a complaint.
const std::string* TurnReader::read_tool_name(const Fields& reference, std::string_view key) {
  const std::string* name = needed_text(reference, key, kToolNameBytesMax);
  if (name == nullptr || tools_.contains(*name)) return name;
  reference.refuse(key, fmt::format("Tool reference '{}' has no corresponding tool definition: "
                                    "'{}' must name one of 'tools'",
                                    *name, reference.path(key)));
  return nullptr;
}

void TurnReader::read_assistant(const Fields& message) {
  ChatMessage turn{.role = ChatRole::kAssistant};
  const auto add_text = [&](const std::string& text) { turn.content += text; };
  const auto add_block = [&](const Fields& block, const std::string& type) {
    if (type == "tool_use") {
      if (turn.tool_calls.size() < kToolsMax) return read_tool_use(block, turn);
      block.refuse(
          "", fmt::format("'{}': a turn has at most {} tool calls", block.path(""), kToolsMax));
    } else if (type == "thinking") {
      read_thinking_block(block, turn);
    } else if (type != "redacted_thinking") {  // which was never readable
      refuse_block(block, type);
    }
  };
  read_blocks(message, "content", add_text, add_block);
  if (message.failed()) return;
  for (const ToolCallFields& call : turn.tool_calls) calls_[call.id] = call.name;
  const bool says_nothing = turn.content.empty() && turn.reasoning.empty() &&
                            turn.signed_thinking.empty() && turn.tool_calls.empty();
  if (!says_nothing) read_.messages.push_back(std::move(turn));
}

// A text that is there says what was thought; of one that was omitted the signature does.
void TurnReader::read_thinking_block(const Fields& block, ChatMessage& turn) {
  const std::string* text = needed_text(block, "thinking", kTextBytesMax);
  const std::string* signature = block.text("signature", kTextBytesMax);
  if (text == nullptr) return;
  turn.reasoning += *text;
  if (!text->empty() || signature == nullptr || signature->empty()) return;
  turn.signed_thinking.push_back({*signature, block.path("signature")});
}

// The answer goes on with its text.
void TurnReader::check_prefill(const Fields& message, size_t before) {
  const bool goes_on = read_.messages.size() > before && read_.messages.back().tool_calls.empty() &&
                       !read_.messages.back().content.empty();
  if (goes_on) return;
  message.refuse("content", fmt::format("'{}': the answer goes on with the text of a last "
                                        "assistant message, and this one has none, or a call",
                                        message.path("content")));
}

void TurnReader::read_tool_use(const Fields& block, ChatMessage& turn) {
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

// {"role": "system", "content": …, "clear_at": "next_user_message", "output_config": {"effort": …}}
void TurnReader::read_system(const Fields& message) {
  const std::optional<ReasoningEffort> effort = read_config_effort(message);
  if (effort) read_.effort = effort;
  const std::string* clear_at = message.text("clear_at", 64);
  if (clear_at != nullptr && *clear_at != "never" && *clear_at != "next_user_message") {
    message.refuse("clear_at", fmt::format("'{}' must be 'never' or 'next_user_message'",
                                           message.path("clear_at")));
  }
  ChatMessage system{.role = ChatRole::kSystem};
  BlockText text(UnreadParts::kRefused);
  const bool has_content = read_blocks(
      message, "content", [&](const std::string& more) { text.add(more); },
      [&](const Fields& block, const std::string& type) {
        if (type == "tool_addition" || type == "tool_removal") {
          read_tool_change(block, type, system);
        } else {
          refuse_unread_block(block, type);
        }
      });
  if (!has_content && !effort) {
    message.refuse("content", fmt::format("'{}' is missing", message.path("content")));
  }
  // Only its text is cleared; what it says of tools stays.
  const bool cleared = clear_at != nullptr && *clear_at == "next_user_message" && users_left_ > 0;
  BlockText shown(UnreadParts::kRefused);
  if (!cleared) shown.add(text.take_text());
  shown.add(system.content);
  system.content = shown.take_text();
  if (message.failed() || (system.content.empty() && system.loaded_tools.empty())) return;
  read_.messages.push_back(std::move(system));
}

// {"type": "tool_addition", "tool": {"type": "tool_reference", "name": …}}, or a removal.
void TurnReader::read_tool_change(const Fields& block, const std::string& type,
                                  ChatMessage& system) {
  const Json* json = block.object("tool");
  if (json == nullptr) {
    return block.refuse("tool", fmt::format("'{}' is missing", block.path("tool")));
  }
  const Fields tool(*json, block.path("tool"), block.complaint());
  const std::string* kind = needed_text(tool, "type", 256);
  if (kind == nullptr) return;
  if (*kind != "tool_reference") {
    return tool.refuse("type", fmt::format("'{}' must be 'tool_reference'", tool.path("type")));
  }
  const std::string* name = read_tool_name(tool, "name");
  if (name == nullptr) return;
  if (type == "tool_addition") {
    system.loaded_tools.push_back(*name);
  } else {
    system.content +=
        fmt::format("{}Tool removed: {}", system.content.empty() ? "" : "\n\n", *name);
  }
}

void TurnReader::note_tools() {
  const Json* tools = body_.array("tools", kDeferredToolsMax);
  if (tools == nullptr) return;
  for (const Json& tool : tools->as_array()) {
    if (!tool.is_object()) continue;
    if (std::optional<std::string> name = tool.string("name")) tools_.insert(*std::move(name));
  }
}

void TurnReader::note_warnings(const BlockText& text) {
  for (const std::string& warning : text.warnings()) {
    if (std::ranges::find(read_.warnings, warning) == read_.warnings.end()) {
      read_.warnings.push_back(warning);
    }
  }
}

}  // namespace

MessageTurns read_message_turns(const Fields& body) {
  return TurnReader(body).read();
}

std::optional<ReasoningEffort> read_config_effort(const Fields& owner) {
  const Json* config = owner.object("output_config");
  if (config == nullptr) return std::nullopt;
  const Fields fields(*config, owner.path("output_config"), owner.complaint());
  const std::string* word = fields.text("effort", 64);
  if (word == nullptr) return std::nullopt;
  if (*word == "low") return ReasoningEffort::kLow;
  if (*word == "medium") return ReasoningEffort::kMedium;
  if (*word == "high" || *word == "xhigh" || *word == "max") return ReasoningEffort::kHigh;
  fields.refuse("effort", fmt::format("'{}' must be 'low', 'medium', 'high', 'xhigh' or 'max'",
                                      fields.path("effort")));
  return std::nullopt;
}

}  // namespace pelton::api
