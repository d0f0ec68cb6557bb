#include "chat/template_messages.h"

#include <algorithm>
#include <utility>

#include "base/json.h"

namespace pelton::chat {
namespace {

using jinja::Dict;
using jinja::Value;
using Kind = Message::Kind;

void set(Dict& dict, std::string_view key, Value value) {
  dict.members.emplace_back(Value::own(key), std::move(value));
}

// None of these nests deeper than a Json may.
Value value_of(Dict dict) {
  return Value::dict(std::move(dict)).value();
}
Value value_of(std::vector<Value> items) {
  return Value::list(std::move(items)).value();
}

Value tool_value(const FunctionTool& tool) {
  Dict function;
  set(function, "name", Value::input(tool.name));
  if (!tool.description.empty()) set(function, "description", Value::input(tool.description));
  if (tool.parameters) set(function, "parameters", Value::from_json(*tool.parameters));
  Dict out;
  set(out, "type", Value::own("function"));
  set(out, "function", value_of(std::move(function)));
  return value_of(std::move(out));
}

class MessageList {
 public:
  MessageList(const std::vector<Message>& messages, const MessageShape& shape)
      : messages_(messages), shape_(shape) {}

  void build() {
    for (size_t i = 0; i < messages_.size();) i = messages_[i].is_models() ? add_turn(i) : add(i);
  }

  std::vector<Value> take_messages() { return std::move(out_); }
  std::vector<Value> take_tools() { return std::move(tools_); }

 private:
  Value content(std::string_view text) const {
    if (!shape_.content_as_parts) return Value::input(text);
    Dict part;
    set(part, "type", Value::own("text"));
    set(part, "text", Value::input(text));
    return value_of(std::vector<Value>{value_of(std::move(part))});
  }
  Value call_id(const std::string& id) const {
    return Value::input(shape_.short_call_ids ? short_call_id(id) : id);
  }

  // Roles are of a fixed set, and so the template's own words: many build markers of them.
  void add_message(std::string_view role, Dict rest) {
    Dict message;
    set(message, "role", Value::own(role));
    for (auto& member : rest.members) message.members.push_back(std::move(member));
    out_.push_back(value_of(std::move(message)));
  }

  size_t add(size_t index) {
    const Message& message = messages_[index];
    for (const FunctionTool& tool : message.developer.functions) {
      tools_.push_back(tool_value(tool));
    }
    Dict rest;
    if (message.kind == Kind::kUser) {
      set(rest, "content", content(message.text));
      if (!message.name.empty()) set(rest, "name", Value::input(message.name));
      add_message("user", std::move(rest));
    } else if (message.kind == Kind::kResult) {
      set(rest, "content", content(message.text));
      if (!message.name.empty()) set(rest, "name", Value::input(message.name));
      if (!message.call_id.empty()) set(rest, "tool_call_id", call_id(message.call_id));
      add_message("tool", std::move(rest));
    } else if (message.developer.instructions) {
      set(rest, "content", content(*message.developer.instructions));
      add_message("system", std::move(rest));
    }
    return index + 1;
  }

  Value call_value(const Message& call) const {
    Dict function;
    set(function, "name", Value::input(call.name));
    const Result<Json> arguments = Json::parse(call.text.empty() ? "{}" : call.text);
    const bool is_object = arguments.ok() && arguments->is_object() && !shape_.arguments_as_text;
    set(function, "arguments", is_object ? Value::from_json(*arguments) : Value::input(call.text));
    Dict out;
    if (!call.call_id.empty()) set(out, "id", call_id(call.call_id));
    set(out, "type", Value::own("function"));
    set(out, "function", value_of(std::move(function)));
    return value_of(std::move(out));
  }

  // The parts of one turn as one message.
  size_t add_turn(size_t first) {
    size_t end = first;
    std::string text;
    std::string reasoning;
    std::vector<Value> calls;
    const auto join = [](std::string& whole, std::string_view part, std::string_view between) {
      if (!whole.empty() && !part.empty()) whole += between;
      whole += part;
    };
    for (; end < messages_.size() && messages_[end].is_models() &&
           messages_[end].turn == messages_[first].turn;
         ++end) {
      const Message& part = messages_[end];
      if (part.kind == Kind::kCall) {
        calls.push_back(call_value(part));
      } else if (part.kind == Kind::kReasoning) {
        join(reasoning, part.text, "\n");
      } else {
        join(text, part.text, "\n\n");
      }
    }
    Dict rest;
    // Of calls alone it is an empty text for most: they search it and put it together.
    const bool is_none = shape_.empty_is_none && text.empty() && !calls.empty();
    set(rest, "content", is_none ? Value(jinja::None{}) : content(text));
    if (!reasoning.empty()) set(rest, "reasoning_content", Value::input(reasoning));
    if (!calls.empty()) set(rest, "tool_calls", value_of(std::move(calls)));
    add_message("assistant", std::move(rest));
    return end;
  }

  const std::vector<Message>& messages_;
  const MessageShape shape_;
  std::vector<Value> out_;
  std::vector<Value> tools_;
};

}  // namespace

std::string short_call_id(std::string_view id) {
  static constexpr std::string_view kDigits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  constexpr size_t kSize = 9;
  if (id.size() == kSize && id.find_first_not_of(kDigits) == std::string_view::npos) {
    return std::string(id);
  }
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  std::string out;
  for (size_t i = 0; i < kSize; ++i) {
    out += kDigits[hash % kDigits.size()];
    hash /= kDigits.size();
  }
  return out;
}

Dict template_variables(const Conversation& conversation, const MessageShape& shape) {
  MessageList list(conversation.messages, shape);
  list.build();
  Dict out;
  // First: what follows stands in its place.
  for (const Json::Member& argument : conversation.template_arguments) {
    out.members.emplace_back(Value::input(argument.key), Value::from_json(argument.value));
  }
  if (conversation.effort) {
    set(out, "reasoning_effort", Value::own(effort_name(*conversation.effort)));
  }
  if (conversation.thinking == Thinking::kOff) {
    set(out, "enable_thinking", Value(false));
    set(out, "thinking", Value(false));
  }
  std::vector<Value> tools = list.take_tools();
  set(out, "tools", tools.empty() ? Value(jinja::None{}) : value_of(std::move(tools)));
  set(out, "documents",
      conversation.documents.is_null() ? Value(jinja::None{})
                                       : Value::from_json(conversation.documents));
  set(out, "messages", value_of(list.take_messages()));
  set(out, "add_generation_prompt",
      Value(conversation.begins_turn && !conversation.continues_last));
  return out;
}

}  // namespace pelton::chat
