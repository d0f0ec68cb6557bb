// An OpenAI chat request as a conversation.
#pragma once

#include <span>
#include <string>

#include "api/chat_request.h"
#include "chat/conversation.h"

namespace pelton::prompt {

// System and developer messages become the developer's instructions, joined by a blank line, or
// stand where they were said (api::InstructionsPlace). A result declares the deferred tools that it
// is the first to refer to. A message's `turn` is the index of the request's message that it is a
// part of, if that is a turn of the model's.
chat::Conversation conversation_of(const api::ChatRequest& request,
                                   const std::string& current_date);

// Names that the request declares, also those that its choice of tools leaves out.
using Functions = std::span<const std::string>;

// One call, and one result with its function's name: of a function, or else of one of the model's
// own tools, which it may have called unasked.
chat::Message call_message(const api::ToolCallFields& call, Functions functions);
chat::Message result_message(const api::ChatMessage& result, Functions functions);

}  // namespace pelton::prompt
