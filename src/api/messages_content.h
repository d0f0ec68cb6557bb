// The turns of an Anthropic request, made of blocks, as chat messages. Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/chat_request.h"
#include "api/fields.h"

namespace pelton::api {

struct MessageTurns {
  std::vector<ChatMessage> messages;
  std::optional<ReasoningEffort> effort;  // the last that a system message among them says
  std::vector<std::string> warnings;      // what was replaced or ignored, for a response header
};

// "system" and "messages". A user's turn with tool results becomes several messages, in the order
// of its blocks. Blocks of text are joined by empty lines, those of the assistant by nothing: so
// they went out. A system message stands where it was said.
MessageTurns read_message_turns(const Fields& body);

// "output_config": {"effort": …}, of the body or of a system message.
std::optional<ReasoningEffort> read_config_effort(const Fields& owner);

}  // namespace pelton::api
