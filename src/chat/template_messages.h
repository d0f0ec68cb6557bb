// A conversation -> the variables of a chat template, as OpenAI's messages. Pure functions; any
// thread.
#pragma once

#include "chat/conversation.h"
#include "jinja/value.h"

namespace pelton::chat {

struct MessageShape {
  bool content_as_parts = false;  // [{"type": "text", "text": ...}] instead of a string
  bool short_call_ids = false;    // nine letters and digits, which Mistral's templates demand
  // Of calls alone the content is none, not an empty text: DeepSeek's write calls only there.
  bool empty_is_none = false;
  // Calls' arguments are a text, which DeepSeek's put together with others, not an object.
  bool arguments_as_text = false;
};

// `messages`, `tools` (none if there are no functions), and the rest.
jinja::Dict template_variables(const Conversation& conversation, const MessageShape& shape);

// Nine letters and digits for an id; such ids stay.
std::string short_call_id(std::string_view id);

}  // namespace pelton::chat
