// POST /v1/messages and /v1/messages/count_tokens, as Anthropic's clients send them. What is asked
// for is the same as in a chat request, so it becomes one: one validator says what is valid. Pure.
#pragma once

#include <string_view>

#include "api/chat_request.h"
#include "base/result.h"

namespace pelton::api {

struct MessagesRequest {
  // What an answer has of the model's reasoning: nothing unless "thinking" asks for it, as its
  // clients expect; blocks without their text ("display": "omitted"); or all.
  enum class Thinking { kNone, kOmitted, kShown };
  ChatRequest chat;
  Thinking thinking = Thinking::kNone;
};

// Counting tokens needs no max_tokens.
enum class MessagesUse { kGenerate, kCount };

// Errors: kInvalidArgument with the field's path.
Result<MessagesRequest> parse_messages_request(std::string_view body, const RequestLimits& limits,
                                               MessagesUse use);

}  // namespace pelton::api
