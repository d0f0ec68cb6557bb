#include "api/thinking.h"

#include <fmt/format.h>

namespace pelton::api {
namespace {

// A budget is followed, and it says how much to think besides: models know efforts, not numbers.
constexpr int64_t kBudgetMin = 1024;
constexpr int64_t kMediumBudgetMin = 4096;
constexpr int64_t kHighBudgetMin = 16384;

ReasoningEffort effort_of_budget(int64_t tokens) {
  if (tokens >= kHighBudgetMin) return ReasoningEffort::kHigh;
  return tokens >= kMediumBudgetMin ? ReasoningEffort::kMedium : ReasoningEffort::kLow;
}

std::optional<ThinkingFields::Type> read_type(const Fields& thinking) {
  using Type = ThinkingFields::Type;
  const std::string* type = thinking.text("type", 64);
  if (type != nullptr && *type == "enabled") return Type::kEnabled;
  if (type != nullptr && *type == "adaptive") return Type::kAdaptive;
  if (type != nullptr && *type == "disabled") return Type::kDisabled;
  thinking.refuse("type", fmt::format("'{}' must be 'enabled', 'adaptive' or 'disabled'",
                                      thinking.path("type")));
  return std::nullopt;
}

bool read_omitted(const Fields& thinking) {
  const std::string* display = thinking.text("display", 64);
  if (display == nullptr || *display == "summarized") return false;
  // "updates" are short reports between blocks of thinking; this model writes none.
  if (*display != "omitted" && *display != "updates") {
    thinking.refuse("display", fmt::format("'{}' must be 'summarized', 'omitted' or 'updates'",
                                           thinking.path("display")));
  }
  return true;
}

}  // namespace

void apply_thinking_budget(const Fields& body, const ThinkingFields& thinking,
                           std::optional<int64_t>& budget) {
  if (!thinking.budget_tokens) return;
  if (budget && *budget != *thinking.budget_tokens) {
    refuse_two_values(body, "thinking_token_budget", "thinking.budget_tokens");
  }
  budget = thinking.budget_tokens;
}

std::optional<ThinkingFields> read_thinking(const Fields& body) {
  const Json* thinking = body.object("thinking");
  if (thinking == nullptr) return std::nullopt;
  const Fields fields(*thinking, body.path("thinking"), body.complaint());
  ThinkingFields read;
  const std::optional<ThinkingFields::Type> type = read_type(fields);
  if (!type) return std::nullopt;
  read.type = *type;
  read.omitted = read_omitted(fields);
  if (read.type == ThinkingFields::Type::kDisabled) {
    read.effort = ReasoningEffort::kLow;  // it cannot be switched off; the least there is
    if (fields.integer("budget_tokens", {.low = 0}).value_or(0) > 0) {
      fields.refuse("budget_tokens",
                    fmt::format("'{}' is only allowed where '{}' is not 'disabled'",
                                fields.path("budget_tokens"), fields.path("type")));
    }
  } else if (const auto budget = fields.integer("budget_tokens", {.low = kBudgetMin})) {
    read.budget_tokens = budget;
    read.effort = effort_of_budget(*budget);
  }
  if (fields.failed()) return std::nullopt;
  return read;
}

}  // namespace pelton::api
