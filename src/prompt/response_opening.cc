#include "prompt/response_opening.h"

#include "prompt/chat_conversation.h"

namespace pelton::prompt {

std::vector<chat::BuiltinTool> builtin_tools(api::BuiltinTools tools) {
  std::vector<chat::BuiltinTool> all;
  if (tools.browser) all.push_back(chat::BuiltinTool::kBrowser);
  if (tools.python) all.push_back(chat::BuiltinTool::kPython);
  return all;
}

chat::Conversation response_opening(const api::ResponseRequest& request,
                                    std::span<const std::vector<api::ResponseItem>* const> before,
                                    const std::string& current_date) {
  using api::ResponseItem;
  api::ChatRequest instructions;
  instructions.tools = request.tools;
  instructions.reasoning_effort = request.reasoning_effort;
  instructions.generation.format = request.generation.format;
  const auto add = [&](const std::string& text) {
    api::ChatMessage& message = instructions.messages.emplace_back();
    message.role = api::ChatRole::kDeveloper;
    message.content = text;
  };
  const auto add_from = [&](const std::vector<ResponseItem>& items) {
    for (const ResponseItem& item : items) {
      const bool instructs =
          item.kind == ResponseItem::Kind::kMessage &&
          (item.role == api::ChatRole::kSystem || item.role == api::ChatRole::kDeveloper);
      if (instructs) add(item.text);
    }
  };
  add(request.instructions);
  for (const std::vector<ResponseItem>* const items : before) add_from(*items);
  add_from(request.items);
  chat::Conversation conversation = conversation_of(instructions, current_date);
  conversation.builtin_tools = builtin_tools(request.builtins);
  return conversation;
}

}  // namespace pelton::prompt
