#include "eval/usage.h"

#include <string_view>

#include <fmt/format.h>

namespace pelton::eval {
namespace {

constexpr int64_t kTokensMax = 1'000'000'000;
// No vocabulary that we know of has a longer token.
constexpr int64_t kTokenBytesMax = 256;

// A member that counts: absent is none, anything but a number of tokens is a fault.
struct Count {
  std::optional<int64_t> tokens;
  bool is_wrong = false;
};
Count count_of(const Json& object, std::string_view key) {
  const Json* const found = object.find(key);
  if (found == nullptr || found->is_null()) return {};
  const bool is_count =
      found->is_integer() && found->as_integer() >= 0 && found->as_integer() <= kTokensMax;
  if (!is_count) return {.is_wrong = true};
  return {.tokens = found->as_integer()};
}

// A part that is counted for itself, and cannot be more than the whole.
std::string part_fault(const Json& usage, std::string_view details, std::string_view key,
                       std::string_view whole_key, const std::optional<int64_t>& whole) {
  const Json* const object = usage.find(details);
  if (object == nullptr || !object->is_object() || !whole) return {};
  const Count part = count_of(*object, key);
  if (part.is_wrong) return fmt::format("{} is no number of tokens", key);
  if (!part.tokens || *part.tokens <= *whole) return {};
  return fmt::format("{} {} of {} {}", key, *part.tokens, whole_key, *whole);
}

// So few tokens cannot be so much text.
std::string text_fault(std::string_view key, int64_t tokens, int64_t bytes, std::string_view what) {
  if (bytes <= tokens * kTokenBytesMax) return {};
  return fmt::format("{} {} for {} of {} bytes", key, tokens, what, bytes);
}

int64_t text_bytes(const Json& content) {
  if (content.is_string()) return std::ssize(content.as_string());
  if (!content.is_array()) return 0;
  int64_t bytes = 0;
  for (const Json& part : content.as_array()) {
    if (part.is_object()) bytes += std::ssize(part.string("text").value_or(""));
  }
  return bytes;
}

}  // namespace

AskedTokens asked_tokens(const Json& request) {
  AskedTokens asked;
  for (const char* key : {"max_completion_tokens", "max_tokens"}) {
    if (!asked.completion_max) asked.completion_max = request.integer(key);
  }
  const Json* const messages = request.find("messages");
  if (messages == nullptr || !messages->is_array()) return asked;
  for (const Json& message : messages->as_array()) {
    const Json* const content = message.is_object() ? message.find("content") : nullptr;
    if (content != nullptr) asked.text_bytes += text_bytes(*content);
  }
  return asked;
}

std::string usage_fault(const Json& usage, const Answer& answer, const AskedTokens& asked) {
  if (usage.is_null()) return {};
  if (!usage.is_object()) return "usage is no object";
  const Count prompt = count_of(usage, "prompt_tokens");
  const Count completion = count_of(usage, "completion_tokens");
  const Count total = count_of(usage, "total_tokens");
  if (prompt.is_wrong) return "prompt_tokens is no number of tokens";
  if (completion.is_wrong) return "completion_tokens is no number of tokens";
  if (total.is_wrong) return "total_tokens is no number of tokens";
  // Some count reasoning beside the completion, and into the total.
  const Json* const details = usage.find("completion_tokens_details");
  int64_t reasoning = -1;  // not said
  if (details != nullptr && details->is_object()) {
    reasoning = count_of(*details, "reasoning_tokens").tokens.value_or(-1);
  }
  const bool all_there = prompt.tokens && completion.tokens && total.tokens;
  const bool is_beside = all_there && reasoning >= 0 &&
                         *total.tokens == *prompt.tokens + *completion.tokens + reasoning;
  if (all_there && !is_beside && *total.tokens != *prompt.tokens + *completion.tokens) {
    return fmt::format("total_tokens {} of {} and {}", *total.tokens, *prompt.tokens,
                       *completion.tokens);
  }
  std::string fault =
      part_fault(usage, "prompt_tokens_details", "cached_tokens", "prompt_tokens", prompt.tokens);
  if (fault.empty() && !is_beside) {
    fault = part_fault(usage, "completion_tokens_details", "reasoning_tokens", "completion_tokens",
                       completion.tokens);
  }
  if (!fault.empty()) return fault;
  if (completion.tokens) {
    if (asked.completion_max && *completion.tokens > *asked.completion_max) {
      return fmt::format("completion_tokens {}, more than the {} asked for", *completion.tokens,
                         *asked.completion_max);
    }
    int64_t bytes = std::ssize(answer.content);
    for (const Answer::Call& call : answer.calls) {
      bytes += std::ssize(call.name) + std::ssize(call.arguments);
    }
    fault = text_fault("completion_tokens", *completion.tokens, bytes, "an answer");
  }
  if (fault.empty() && prompt.tokens) {
    fault = text_fault("prompt_tokens", *prompt.tokens, asked.text_bytes, "messages");
  }
  return fault;
}

}  // namespace pelton::eval
