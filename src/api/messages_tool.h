// The tools of an Anthropic request, as functions. Pure functions; any thread.
#pragma once

#include <span>

#include "api/chat_message.h"
#include "api/fields.h"
#include "api/tool.h"

namespace pelton::api {

// "tools" and "tool_choice". Tools of a kind that only their own server can explain to a model are
// left out, with a warning. Of the tools with "defer_loading" those stay that `messages` refer to
// ("loaded_tools") or that "tool_choice" names.
ToolFields read_message_tools(const Fields& body, std::span<const ChatMessage> messages);

}  // namespace pelton::api
