// What a request to /v1/responses begins with: who the model is, its tools and instructions, before
// anybody speaks. Pure; its worker and a gateway that names its prompt write it alike.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "api/response_request.h"
#include "chat/conversation.h"

namespace pelton::prompt {

std::vector<chat::BuiltinTool> builtin_tools(api::BuiltinTools tools);

// `before`: the inputs of the responses that it goes on from, the oldest first; what instructs in
// them still does.
chat::Conversation response_opening(const api::ResponseRequest& request,
                                    std::span<const std::vector<api::ResponseItem>* const> before,
                                    const std::string& current_date);

}  // namespace pelton::prompt
