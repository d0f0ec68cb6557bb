#include "prompt/chat_conversation.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace pelton::prompt {
namespace {

using api::ChatMessage;
using api::ChatRole;
using Kind = chat::Message::Kind;

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

chat::FunctionTool function_of(const api::FunctionTool& tool) {
  return {.name = tool.name, .description = tool.description, .parameters = tool.parameters};
}

chat::Message developer_message(chat::DeveloperContent content) {
  return {.kind = Kind::kDeveloper, .developer = std::move(content)};
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
  void add_assistant(size_t index);
  void add_result(const ChatMessage& result);
  void add(chat::Message message) { out_.push_back(std::move(message)); }

  const api::ChatRequest& request_;
  size_t instructed_ = 0;  // messages before this one instruct at the beginning, if they instruct
  std::unordered_map<std::string_view, const api::FunctionTool*> deferred_;  // not yet shown
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
        add_assistant(i);
        break;
      case ChatRole::kTool:
        add_result(message);
        break;
    }
  }
  chat::Conversation conversation{.current_date = current_date, .messages = std::move(out_)};
  if (request_.reasoning_effort) conversation.effort = effort_of(*request_.reasoning_effort);
  conversation.template_arguments = request_.template_arguments;
  if (request_.thinks) {
    conversation.template_arguments.push_back({"enable_thinking", *request_.thinks});
    if (!*request_.thinks) conversation.thinking = chat::Thinking::kOff;
  }
  conversation.documents = request_.documents;
  conversation.begins_turn = request_.begins_answer;
  conversation.continues_last = request_.continues_last;
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
  add({.kind = Kind::kUser, .text = message.content, .name = message.name});
}

// Those of the beginning have been shown already.
void ConversationBuilder::add_instructions(size_t index) {
  if (index < instructed_) return;
  const ChatMessage& message = request_.messages[index];
  chat::DeveloperContent developer{
      .instructions = std::nullopt, .functions = take_loaded(message), .response_formats = {}};
  if (!message.content.empty()) developer.instructions = message.content;
  if (!developer.empty()) add(developer_message(std::move(developer)));
}

// The model stops after a call, so a message that has several is no turn as it was sampled.
void ConversationBuilder::add_assistant(size_t index) {
  const ChatMessage& message = request_.messages[index];
  const auto add_part = [&](chat::Message part) {
    part.turn = static_cast<int>(index);
    part.as_sampled = message.tool_calls.size() < 2;
    add(std::move(part));
  };
  if (!message.reasoning.empty()) {
    add_part({.kind = Kind::kReasoning, .text = message.reasoning});
  }
  if (message.tool_calls.empty()) {
    const bool only_reasoning = message.content.empty() && !message.reasoning.empty();
    if (!only_reasoning) add_part({.kind = Kind::kAnswer, .text = message.content});
    return;
  }
  if (!message.content.empty()) add_part({.kind = Kind::kPreamble, .text = message.content});
  for (const api::ToolCallFields& call : message.tool_calls) {
    add_part(call_message(call, request_.declared_functions));
  }
}

void ConversationBuilder::add_result(const ChatMessage& result) {
  chat::Message message = result_message(result, request_.declared_functions);
  message.developer.functions = take_loaded(result);
  add(std::move(message));
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
  return {.kind = Kind::kCall,
          .text = call.arguments,
          .name = call.name,
          .call_id = call.id,
          .builtin = is_builtin(call.name, functions)};
}

chat::Message result_message(const ChatMessage& result, Functions functions) {
  return {.kind = Kind::kResult,
          .text = result.content,
          .name = result.name,
          .call_id = result.tool_call_id,
          .builtin = is_builtin(result.name, functions)};
}

chat::Conversation conversation_of(const api::ChatRequest& request,
                                   const std::string& current_date) {
  return ConversationBuilder(request).build(current_date);
}

}  // namespace pelton::prompt
