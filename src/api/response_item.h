// The items of the Responses API that a request brings along: messages, reasoning, calls and their
// results, validated. Plain values.
#pragma once

#include <string>
#include <vector>

#include "api/chat_message.h"
#include "api/fields.h"
#include "base/function_ref.h"

namespace pelton::api {

struct ResponseItem {
  enum class Kind { kMessage, kReasoning, kCall, kResult };
  // Of an assistant's message: where the client still knows on which channel it was said.
  enum class Phase { kUnknown, kPreamble, kAnswer };

  Kind kind = Kind::kMessage;
  ChatRole role = ChatRole::kUser;  // of a message; never kTool
  Phase phase = Phase::kUnknown;
  std::string text;                   // of a message or of reasoning; a call's arguments; a result
  std::string encrypted_content;      // of reasoning, for whoever has its key; empty: none
  std::string call_id;                // of a call or a result
  std::string name;                   // of the called function
  std::string path;                   // in the request, for complaints: "input[3]"
  std::vector<std::string> replaced;  // paths of parts that a placeholder stands for

  // Whether the model itself may have made it.
  bool is_models() const {
    return kind == Kind::kReasoning || kind == Kind::kCall ||
           (kind == Kind::kMessage && role == ChatRole::kAssistant);
  }
};

inline constexpr size_t kResponseItemsMax = 65536;

// `input`: a string (one message of the user's) or an array of items.
std::vector<ResponseItem> read_response_items(const Fields& body, std::string_view key);

// Errors: kInvalidArgument. For items that were validated before and kept as JSON.
Result<std::vector<ResponseItem>> parse_response_items(const Json& items);

// The same input as /input_items lists it: an array of whole items, each with an id. `new_id` makes
// one that begins so.
Json listed_items(const Json& input, base::FunctionRef<std::string(std::string_view)> new_id);

}  // namespace pelton::api
