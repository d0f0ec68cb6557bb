// A conversation in Harmony's terms: who said what, to whom, on which channel. Plain values, made
// by harmony_conversation() and read by the renderer; no thread owns them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "chat/conversation.h"

namespace pelton::chat {

enum class Role : uint8_t { kSystem, kDeveloper, kUser, kAssistant, kTool };

std::string_view role_name(Role role);
std::optional<Role> role_from_name(std::string_view name);

inline constexpr std::string_view kAnalysis = "analysis";
inline constexpr std::string_view kCommentary = "commentary";
inline constexpr std::string_view kFinal = "final";

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

// Text parts are tokenised one by one, and by ordinary encoding only: whatever they contain, no
// control token comes of it.
using Content = std::variant<std::string, SystemContent, DeveloperContent>;

struct HarmonyMessage {
  Role role = Role::kUser;
  // A tool's full name ("functions.get_weather", "python"); for other roles an optional ":name".
  std::string name;
  std::vector<Content> content;
  std::optional<std::string> channel;
  std::optional<std::string> recipient;     // "functions.f", "python", "assistant"; "all" = none
  std::optional<std::string> content_type;  // "<|constrain|>json", "json", "code"
  // Message::turn if that may stand as it was sampled; the renderer does not look at it.
  int turn = -1;
};

struct HarmonyConversation {
  std::vector<HarmonyMessage> messages;
};

HarmonyMessage text_message(Role role, std::string text);
HarmonyMessage channel_message(std::string_view channel, std::string text);  // by the assistant
HarmonyMessage function_call(std::string_view function, std::string arguments);
HarmonyMessage function_result(std::string_view function, std::string output);

}  // namespace pelton::chat
