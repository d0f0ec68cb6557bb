// Answers of /v1/chat/completions: the whole object, and the chunks of a stream. A chunk is what is
// written for every few tokens of every request, so its frame is formatted once. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/answer_extras.h"
#include "api/logprobs.h"
#include "api/usage.h"

namespace pelton::api {

// What all objects of one answer share.
struct ChatAnswerHead {
  std::string id;  // "chatcmpl-…"
  int64_t created = 0;
  std::string model;
  std::string reasoning_field;  // "reasoning_content" or "reasoning"; empty: not shown
  bool legacy_calls = false;    // a call is a message's "function_call", as before there were tools
};

struct ChatToolCall {
  std::string id;
  std::string name;
  std::string arguments;
};

struct ChatChoice {
  std::optional<std::string> content;
  std::optional<std::string> reasoning;
  std::vector<ChatToolCall> tool_calls;
  std::optional<std::vector<TokenLogprobs>> logprobs;  // of the content
  std::string_view finish_reason;                      // "stop", "length", "tool_calls"
  StopReason stop_reason;
  std::optional<std::vector<TokenId>> token_ids;  // sampled
};

// Beside the choices of a whole answer; null: not reported.
struct ChatAnswerExtras {
  const Timings* timings = nullptr;
  const std::vector<TokenId>* prompt_token_ids = nullptr;
  const std::vector<PromptTokenLogprobs>* prompt_logprobs = nullptr;
};

std::string chat_answer_body(const ChatAnswerHead& head, std::span<const ChatChoice> choices,
                             const Usage& usage, const ChatAnswerExtras& extras);

struct ChatToolCallDelta {
  int index = 0;
  std::string_view id;  // with `name`: the call begins
  std::string_view name;
  std::string_view arguments;
};

struct ChatDelta {
  int choice = 0;
  bool role = false;  // the first one says who speaks
  std::string_view reasoning;
  std::string_view content;
  std::span<const ChatToolCallDelta> tool_calls;
  const std::vector<TokenLogprobs>* logprobs = nullptr;  // of the content
  const std::vector<TokenId>* token_ids = nullptr;       // sampled; null: not reported
  const std::vector<TokenId>* prompt_token_ids = nullptr;

  bool empty() const { return !role && reasoning.empty() && content.empty() && tool_calls.empty(); }
};

class ChatChunks {
 public:
  ChatChunks(const ChatAnswerHead& head, bool usage_follows);

  // Each appends one JSON object to `out`.
  void delta(const ChatDelta& delta, std::string& out) const;
  void finish(int choice, std::string_view finish_reason, const StopReason& stop_reason,
              std::string& out) const;
  // One without a choice.
  void prompt_logprobs(const std::vector<PromptTokenLogprobs>& tokens, std::string& out) const;
  // The last one: either may be null.
  void last(const Usage* usage, const Timings* timings, std::string& out) const;

  // The chunks from now on have this usage, as far as it has come.
  void add_usage(const Usage& usage);

 private:
  // Up to and with "choices":
  std::string_view head() const { return std::string_view(opening_).substr(0, head_bytes_); }
  bool append_plain(const ChatDelta& delta, std::string& out) const;
  void append_choice(int choice, std::string& out) const;

  const std::string opening_;  // of a delta of the first choice
  const size_t head_bytes_;
  const std::string reasoning_field_;  // quoted; empty: not shown
  const bool legacy_calls_;
  std::string tail_;  // after the choices
};

}  // namespace pelton::api
