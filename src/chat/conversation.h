// A conversation in Harmony's terms: who said what, to whom, on which channel. Plain values, filled
// by the server (or the terminal chat) and read by the renderer; no thread owns them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"

namespace pelton::chat {

enum class Role : uint8_t { kSystem, kDeveloper, kUser, kAssistant, kTool };

std::string_view role_name(Role role);
std::optional<Role> role_from_name(std::string_view name);

inline constexpr std::string_view kAnalysis = "analysis";
inline constexpr std::string_view kCommentary = "commentary";
inline constexpr std::string_view kFinal = "final";

enum class ReasoningEffort : uint8_t { kLow, kMedium, kHigh };

std::string_view effort_name(ReasoningEffort effort);
std::optional<ReasoningEffort> effort_from_name(std::string_view name);

struct FunctionTool {
  std::string name;                // without "functions."
  std::string description;         // may have several lines, may be empty
  std::optional<Json> parameters;  // a JSON Schema; none: the function takes nothing
};

struct ToolNamespace {
  std::string name;
  std::string description;  // plain text if there are no functions, else comment lines
  std::vector<FunctionTool> functions;
};

// The two tools the model was trained with, word for word as in its training.
ToolNamespace browser_namespace();
ToolNamespace python_namespace();

struct SystemContent {
  std::optional<std::string> model_identity =
      "You are ChatGPT, a large language model trained by OpenAI.";
  std::optional<std::string> knowledge_cutoff = "2024-06";
  // YYYY-MM-DD. From the caller's clock: this room never asks the time.
  std::optional<std::string> current_date;
  std::optional<ReasoningEffort> reasoning_effort = ReasoningEffort::kMedium;
  // None: the line about channels is left out.
  std::vector<std::string> valid_channels = {std::string(kAnalysis), std::string(kCommentary),
                                             std::string(kFinal)};
  std::vector<ToolNamespace> tools;  // built-in ones; rendered in order of name
};

// Structured output, told to the model at the end of the developer message.
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

// Text parts are tokenised one by one, and by ordinary encoding only: whatever they contain, no
// control token comes of it.
using Content = std::variant<std::string, SystemContent, DeveloperContent>;

struct Message {
  Role role = Role::kUser;
  // A tool's full name ("functions.get_weather", "python"); for other roles an optional ":name".
  std::string name;
  std::vector<Content> content;
  std::optional<std::string> channel;
  std::optional<std::string> recipient;     // "functions.f", "python", "assistant"; "all" = none
  std::optional<std::string> content_type;  // "<|constrain|>json", "json", "code"
  // Which of the caller's turns this is a part of; the renderer does not look at it.
  int turn = -1;
};

struct Conversation {
  std::vector<Message> messages;
};

Message text_message(Role role, std::string text);
Message channel_message(std::string_view channel, std::string text);  // by the assistant
Message function_call(std::string_view function, std::string arguments);
Message function_result(std::string_view function, std::string output);

// What the cookbook asks for: an analysis message (one without a recipient) by the assistant that
// stands before the last final message is never shown to the model again. Analysis of the open turn
// (since the last final) stays, as its tool calls would be senseless without it. Call this before
// rendering with dropping off.
void drop_past_analysis(Conversation& conversation);

}  // namespace pelton::chat
