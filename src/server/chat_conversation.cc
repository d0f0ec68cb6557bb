#include "server/chat_conversation.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace pelton::server {
namespace {

using api::ChatMessage;
using api::ChatRole;

chat::ReasoningEffort effort_of(api::ReasoningEffort effort) {
  switch (effort) {
    case api::ReasoningEffort::kLow:
      return chat::ReasoningEffort::kLow;
    case api::ReasoningEffort::kMedium:
      return chat::ReasoningEffort::kMedium;
    case api::ReasoningEffort::kHigh:
      return chat::ReasoningEffort::kHigh;
  }
  return chat::ReasoningEffort::kMedium;
}

chat::Message system_message(const api::ChatRequest& request, const std::string& current_date) {
  chat::SystemContent system;
  system.current_date = current_date;
  if (request.reasoning_effort) system.reasoning_effort = effort_of(*request.reasoning_effort);
  chat::Message message{.role = chat::Role::kSystem};
  message.content.emplace_back(std::move(system));
  return message;
}

chat::FunctionTool function_of(const api::FunctionTool& tool) {
  return {.name = tool.name, .description = tool.description, .parameters = tool.parameters};
}

chat::Message developer_message(chat::DeveloperContent content) {
  chat::Message message{.role = chat::Role::kDeveloper};
  message.content.emplace_back(std::move(content));
  return message;
}

bool instructs(const ChatMessage& message) {
  return message.role == ChatRole::kSystem || message.role == ChatRole::kDeveloper;
}

// Of the model's own tools, which are no developer functions; what a client has declared under
// such a name is its own.
bool is_builtin(std::string_view name, Functions functions) {
  if (name != "python" && !name.starts_with("browser.")) return false;
  return std::ranges::find(functions, name) == functions.end();
}

class ConversationBuilder {
 public:
  explicit ConversationBuilder(const api::ChatRequest& request);

  chat::Conversation build(const std::string& current_date);

 private:
  chat::DeveloperContent opening();
  std::vector<chat::FunctionTool> take_loaded(const ChatMessage& message);
  void add_user(const ChatMessage& message);
  void add_instructions(size_t index);
  size_t add_assistant(size_t index);
  void add_result(const ChatMessage& result);
  void add(chat::Message message) { out_.push_back(std::move(message)); }

  const api::ChatRequest& request_;
  size_t instructed_ = 0;  // messages before this one instruct at the beginning, if they instruct
  std::unordered_map<std::string_view, const api::FunctionTool*> deferred_;  // not yet told
  std::vector<chat::Message> out_;
};

ConversationBuilder::ConversationBuilder(const api::ChatRequest& request) : request_(request) {
  const std::vector<ChatMessage>& messages = request.messages;
  instructed_ = messages.size();
  if (request.instructions == api::InstructionsPlace::kWhereSaid) {
    instructed_ =
        static_cast<size_t>(std::ranges::find_if_not(messages, instructs) - messages.begin());
  }
  for (const api::FunctionTool& tool : request.tools) {
    if (tool.deferred) deferred_.emplace(tool.name, &tool);
  }
}

chat::Conversation ConversationBuilder::build(const std::string& current_date) {
  add(system_message(request_, current_date));
  if (chat::DeveloperContent developer = opening(); !developer.empty()) {
    add(developer_message(std::move(developer)));
  }
  for (size_t i = 0; i < request_.messages.size(); ++i) {
    const ChatMessage& message = request_.messages[i];
    switch (message.role) {
      case ChatRole::kSystem:
      case ChatRole::kDeveloper:
        add_instructions(i);
        break;
      case ChatRole::kUser:
        add_user(message);
        break;
      case ChatRole::kAssistant:
        i += add_assistant(i);
        break;
      case ChatRole::kTool:
        add_result(message);
        break;
    }
  }
  chat::Conversation conversation{.messages = std::move(out_)};
  chat::drop_past_analysis(conversation);
  return conversation;
}

chat::DeveloperContent ConversationBuilder::opening() {
  chat::DeveloperContent developer;
  std::vector<std::vector<chat::FunctionTool>> loaded;  // behind those that are not deferred
  for (const ChatMessage& message : std::span(request_.messages).first(instructed_)) {
    if (!instructs(message)) continue;
    loaded.push_back(take_loaded(message));
    if (message.content.empty()) continue;
    if (developer.instructions) {
      *developer.instructions += "\n\n" + message.content;
    } else {
      developer.instructions = message.content;
    }
  }
  for (const api::FunctionTool& tool : request_.tools) {
    if (!tool.deferred) developer.functions.push_back(function_of(tool));
  }
  for (const std::vector<chat::FunctionTool>& functions : loaded) {
    developer.functions.insert(developer.functions.end(), functions.begin(), functions.end());
  }
  const std::optional<api::OutputFormat>& format = request_.generation.format;
  if (format && format->kind == api::OutputFormat::Kind::kJsonSchema && !format->name.empty()) {
    developer.response_formats.push_back({format->name, format->description, format->schema});
  }
  return developer;
}

void ConversationBuilder::add_user(const ChatMessage& message) {
  chat::Message user = chat::text_message(chat::Role::kUser, message.content);
  user.name = message.name;
  add(std::move(user));
}

// Those of the beginning are told already.
void ConversationBuilder::add_instructions(size_t index) {
  if (index < instructed_) return;
  const ChatMessage& message = request_.messages[index];
  chat::DeveloperContent developer{
      .instructions = std::nullopt, .functions = take_loaded(message), .response_formats = {}};
  if (!message.content.empty()) developer.instructions = message.content;
  if (!developer.empty()) add(developer_message(std::move(developer)));
}

// An assistant's message and the results that directly follow it, each behind its own call: so the
// model made them, one by one. Returns how many results were used up. The model stops after a call,
// so a message with several is no turn as it was sampled.
size_t ConversationBuilder::add_assistant(size_t index) {
  const std::vector<ChatMessage>& messages = request_.messages;
  const ChatMessage& message = messages[index];
  const auto add_part = [&](chat::Message part) {
    if (message.tool_calls.size() < 2) part.turn = static_cast<int>(index);
    add(std::move(part));
  };
  if (!message.reasoning.empty()) {
    add_part(chat::channel_message(chat::kAnalysis, message.reasoning));
  }
  if (message.tool_calls.empty()) {
    const bool only_reasoning = message.content.empty() && !message.reasoning.empty();
    if (!only_reasoning) add_part(chat::channel_message(chat::kFinal, message.content));
    return 0;
  }
  if (!message.content.empty()) {
    add_part(chat::channel_message(chat::kCommentary, message.content));
  }
  size_t end = index + 1;
  while (end < messages.size() && messages[end].role == ChatRole::kTool) ++end;
  std::vector<bool> used(end - index - 1, false);
  for (const api::ToolCallFields& call : message.tool_calls) {
    add_part(call_message(call, request_.declared_functions));
    for (size_t i = 0; i < used.size(); ++i) {
      if (used[i] || messages[index + 1 + i].tool_call_id != call.id) continue;
      add_result(messages[index + 1 + i]);
      used[i] = true;
    }
  }
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) add_result(messages[index + 1 + i]);
  }
  return used.size();
}

// The deferred tools that it refers to first are declared behind it, so that all that stands before
// stays as it was.
void ConversationBuilder::add_result(const ChatMessage& result) {
  add(result_message(result, request_.declared_functions));
  chat::DeveloperContent loaded{
      .instructions = std::nullopt, .functions = take_loaded(result), .response_formats = {}};
  if (!loaded.empty()) add(developer_message(std::move(loaded)));
}

// The deferred tools that this message is the first to refer to.
std::vector<chat::FunctionTool> ConversationBuilder::take_loaded(const ChatMessage& message) {
  std::vector<chat::FunctionTool> functions;
  for (const std::string& name : message.loaded_tools) {
    const auto tool = deferred_.find(name);
    if (tool == deferred_.end()) continue;
    functions.push_back(function_of(*tool->second));
    deferred_.erase(tool);
  }
  return functions;
}

}  // namespace

chat::Message call_message(const api::ToolCallFields& call, Functions functions) {
  if (!is_builtin(call.name, functions)) return chat::function_call(call.name, call.arguments);
  chat::Message message = chat::channel_message(chat::kAnalysis, call.arguments);
  message.recipient = call.name;
  message.content_type = "code";
  return message;
}

chat::Message result_message(const ChatMessage& result, Functions functions) {
  if (!is_builtin(result.name, functions))
    return chat::function_result(result.name, result.content);
  chat::Message message = chat::text_message(chat::Role::kTool, result.content);
  message.name = result.name;
  message.recipient = "assistant";
  message.channel = std::string(chat::kAnalysis);
  return message;
}

chat::Conversation conversation_of(const api::ChatRequest& request,
                                   const std::string& current_date) {
  return ConversationBuilder(request).build(current_date);
}

}  // namespace pelton::server
