// "thinking", by which Anthropic's clients, and those of DeepSeek, GLM and Kimi in their chats, say
// how a model is to reason: {"type": "enabled" | "adaptive" | "disabled", "budget_tokens",
// "display"}. A value.
#pragma once

#include <cstdint>
#include <optional>

#include "api/fields.h"

namespace pelton::api {

// none and minimal have no trained equivalent and mean low; xhigh and max mean high.
enum class ReasoningEffort { kLow, kMedium, kHigh };

struct ThinkingFields {
  enum class Type { kEnabled, kAdaptive, kDisabled };
  Type type = Type::kEnabled;
  bool omitted = false;  // the answer has its thinking without the text
  std::optional<int64_t> budget_tokens;
  std::optional<ReasoningEffort> effort;  // that the type or the budget comes to
};

// Nothing where it is absent, or after a complaint.
std::optional<ThinkingFields> read_thinking(const Fields& body);

// Its budget becomes the thinking budget; one that "thinking_token_budget" has given must agree.
void apply_thinking_budget(const Fields& body, const ThinkingFields& thinking,
                           std::optional<int64_t>& budget);

}  // namespace pelton::api
