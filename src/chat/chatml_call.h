// What stands between <tool_call> and </tool_call>: {"name": "f", "arguments": {...}}. Pure
// functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pelton::chat {

struct ChatMlCall {
  std::string name;
  std::string arguments;  // as the model wrote them, where it wrote an object; never empty
};

// Nothing if it is no call: no JSON object, one without a name, or one with other members besides.
std::optional<ChatMlCall> read_call(std::string_view text);

// Of a call that was cut off: its name and as much of its arguments as there is, maybe nothing.
// Nothing if its name has not come yet.
std::optional<ChatMlCall> read_cut_call(std::string_view text);

}  // namespace pelton::chat
