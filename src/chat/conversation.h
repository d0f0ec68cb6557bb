// A conversation, whatever the model's chat format: who said what, in order, the model's own turns
// in the parts that clients know. Plain values, filled by the server (or the terminal chat) and
// rendered by a ChatFormat; no thread owns them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace pelton::chat {

enum class ReasoningEffort : uint8_t { kLow, kMedium, kHigh };

std::string_view effort_name(ReasoningEffort effort);
std::optional<ReasoningEffort> effort_from_name(std::string_view name);

struct FunctionTool {
  std::string name;
  std::string description;         // may have several lines, may be empty
  std::optional<Json> parameters;  // a JSON Schema; none: the function takes nothing
};

// Structured output, shown to the model by formats that have a place for it.
struct ResponseFormat {
  std::string name;
  std::string description;  // may be empty
  Json schema;
};

struct DeveloperContent {
  std::optional<std::string> instructions;
  std::vector<FunctionTool> functions;
  std::vector<ResponseFormat> response_formats;

  bool empty() const { return !instructions && functions.empty() && response_formats.empty(); }
};

struct Message {
  enum class Kind : uint8_t {
    kDeveloper,  // what the model sees: instructions, functions
    kUser,
    // Of the model's turns:
    kReasoning,
    kPreamble,  // said before a call
    kAnswer,
    kCall,
    // And what a call gave.
    kResult,
  };
  Kind kind = Kind::kUser;
  std::string text = {};     // kCall: its arguments, as they were sampled
  std::string name = {};     // kCall, kResult: the function's; kUser: the speaker's, often empty
  std::string call_id = {};  // kCall, kResult
  bool builtin = false;      // kCall, kResult: of one of the model's own tools
  // kDeveloper; kResult: functions that it makes known, declared behind it.
  DeveloperContent developer = {};
  // The model's: which of the caller's turns this is a part of.
  int turn = -1;
  // The turn may stand as it was sampled. Otherwise it is what a client made of it (it says
  // several calls of one turn, say), and is rendered.
  bool as_sampled = true;

  bool is_models() const { return kind >= Kind::kReasoning && kind <= Kind::kCall; }
};

// What some models were trained to call without a caller declaring it.
enum class BuiltinTool : uint8_t { kBrowser, kPython };

// Off: the model is to answer at once, where its format can make it.
enum class Thinking : uint8_t { kOn, kOff };

struct Conversation {
  // YYYY-MM-DD. From the caller's clock: this room never asks the time.
  std::optional<std::string> current_date;
  std::optional<ReasoningEffort> effort;  // none: the format's own
  Thinking thinking = Thinking::kOn;
  // Offered to the model; formats without a place for them have none (ChatFormat).
  std::vector<BuiltinTool> builtin_tools = {};
  std::vector<Message> messages;
  // For formats that are templates: more variables by name, and documents (null: none).
  Json::Object template_arguments = {};
  Json documents = {};
  bool begins_turn = true;      // the prompt ends where the model's turn begins
  bool continues_last = false;  // it ends with the last message, which the model goes on with
};

// Of one that continues_last: its last message must be text of the model's. Error kInvalidArgument.
Result<void> check_continued(const Conversation& conversation);

// One past the last message of this kind; 0: there is none.
size_t end_of_last(const std::vector<Message>& messages, Message::Kind kind);

}  // namespace pelton::chat
