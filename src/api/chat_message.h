// The messages of a chat request, validated: roles, texts, calls, their results. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/fields.h"
#include "api/unread_part.h"

namespace pelton::api {

enum class ChatRole { kSystem, kDeveloper, kUser, kAssistant, kTool };

struct ToolCallFields {
  std::string id;
  std::string name;
  std::string arguments;  // the model's own text, perhaps not JSON: it comes back as it went out
};

// A block of thinking that came back without its text, as Anthropic's `display: omitted` gives it.
struct SignedThinking {
  std::string signature;
  std::string path;  // for errors
};

struct ChatMessage {
  ChatRole role = ChatRole::kUser;
  std::string name;          // of a user, or of the function whose result this is; may be empty
  std::string tool_call_id;  // tool only
  std::string content;       // text parts joined
  std::string reasoning;     // assistant only
  // assistant only: reasoning that only its signature says, in the order of the blocks
  std::vector<SignedThinking> signed_thinking;
  std::vector<ToolCallFields> tool_calls;  // assistant only
  std::vector<std::string> loaded_tools;   // tool, system: deferred tools that this one refers to
  std::vector<std::string> replaced;  // tool, user: paths of parts that a placeholder stands for
};

inline constexpr size_t kMessagesMax = 65536;

std::vector<ChatMessage> read_messages(const Fields& body);

// A text, and the paths of the parts that a placeholder stands for in it.
struct PartsText {
  std::string text;
  std::vector<std::string> replaced;
};

// The words of a field that is a string or an array of text parts; nothing if it is absent. What is
// no text (images, files, sound) is refused by name, or replaced by a placeholder.
std::optional<PartsText> read_parts(const Fields& fields, std::string_view key, UnreadParts unread);

}  // namespace pelton::api
