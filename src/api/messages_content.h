// What an Anthropic request says and offers: its turns, made of blocks, as chat messages; its tools
// as functions.
#pragma once

#include <vector>

#include "api/chat_message.h"
#include "api/fields.h"
#include "api/tool.h"

namespace pelton::api {

// "system" and "messages". A user's turn with tool results becomes several messages, in the order
// of its blocks. Blocks of text are joined by empty lines, those of the assistant by nothing: so
// they went out.
std::vector<ChatMessage> read_message_turns(const Fields& body);

// "tools" and "tool_choice". Tools of a kind that only their own server can explain to a model are
// left out, with a warning.
ToolFields read_message_tools(const Fields& body);

}  // namespace pelton::api
