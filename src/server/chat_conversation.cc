#include "server/chat_conversation.h"

#include <algorithm>
#include <string_view>
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

chat::DeveloperContent developer_content(const api::ChatRequest& request) {
  chat::DeveloperContent developer;
  for (const ChatMessage& message : request.messages) {
    const bool instructs =
        message.role == ChatRole::kSystem || message.role == ChatRole::kDeveloper;
    if (!instructs || message.content.empty()) continue;
    if (developer.instructions) {
      *developer.instructions += "\n\n" + message.content;
    } else {
      developer.instructions = message.content;
    }
  }
  for (const api::FunctionTool& tool : request.tools) {
    developer.functions.push_back(
        {.name = tool.name, .description = tool.description, .parameters = tool.parameters});
  }
  const std::optional<api::OutputFormat>& format = request.generation.format;
  if (format && format->kind == api::OutputFormat::Kind::kJsonSchema && !format->name.empty()) {
    developer.response_formats.push_back({format->name, format->description, format->schema});
  }
  return developer;
}

// Of the model's own tools, which are no developer functions; what a client has declared under
// such a name is its own.
bool is_builtin(std::string_view name, Functions functions) {
  if (name != "python" && !name.starts_with("browser.")) return false;
  return std::ranges::find(functions, name) == functions.end();
}

// An assistant's message and the results that directly follow it, each behind its own call: so the
// model made them, one by one. Returns how many results were used up. The model stops after a call,
// so a message with several is no turn as it was sampled.
size_t add_assistant(const api::ChatRequest& request, size_t index,
                     chat::Conversation& conversation) {
  const std::vector<ChatMessage>& messages = request.messages;
  const ChatMessage& message = messages[index];
  std::vector<chat::Message>& out = conversation.messages;
  const auto add = [&](chat::Message part) {
    if (message.tool_calls.size() < 2) part.turn = static_cast<int>(index);
    out.push_back(std::move(part));
  };
  if (!message.reasoning.empty()) {
    add(chat::channel_message(chat::kAnalysis, message.reasoning));
  }
  if (message.tool_calls.empty()) {
    const bool only_reasoning = message.content.empty() && !message.reasoning.empty();
    if (!only_reasoning) add(chat::channel_message(chat::kFinal, message.content));
    return 0;
  }
  if (!message.content.empty()) {
    add(chat::channel_message(chat::kCommentary, message.content));
  }
  size_t end = index + 1;
  while (end < messages.size() && messages[end].role == ChatRole::kTool) ++end;
  std::vector<bool> used(end - index - 1, false);
  for (const api::ToolCallFields& call : message.tool_calls) {
    add(call_message(call, request.declared_functions));
    for (size_t i = 0; i < used.size(); ++i) {
      if (used[i] || messages[index + 1 + i].tool_call_id != call.id) continue;
      out.push_back(result_message(messages[index + 1 + i], request.declared_functions));
      used[i] = true;
    }
  }
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i])
      out.push_back(result_message(messages[index + 1 + i], request.declared_functions));
  }
  return used.size();
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
  chat::Conversation conversation;
  conversation.messages.push_back(system_message(request, current_date));
  chat::DeveloperContent developer = developer_content(request);
  if (!developer.empty()) {
    chat::Message message{.role = chat::Role::kDeveloper};
    message.content.emplace_back(std::move(developer));
    conversation.messages.push_back(std::move(message));
  }
  for (size_t i = 0; i < request.messages.size(); ++i) {
    const ChatMessage& message = request.messages[i];
    switch (message.role) {
      case ChatRole::kSystem:
      case ChatRole::kDeveloper:
        break;
      case ChatRole::kUser: {
        chat::Message user = chat::text_message(chat::Role::kUser, message.content);
        user.name = message.name;
        conversation.messages.push_back(std::move(user));
        break;
      }
      case ChatRole::kAssistant:
        i += add_assistant(request, i, conversation);
        break;
      case ChatRole::kTool:
        conversation.messages.push_back(result_message(message, request.declared_functions));
        break;
    }
  }
  chat::drop_past_analysis(conversation);
  return conversation;
}

}  // namespace pelton::server
