// Answers of /v1/messages: the whole message, and the events of a stream, each with its name as
// Anthropic's clients need it. Tokens found in the cache are counted apart there. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "api/answer_extras.h"
#include "api/error.h"
#include "api/usage.h"

namespace pelton::api {

struct MessageHead {
  std::string id;  // "msg_…"
  std::string model;
};

struct MessageBlock {
  enum class Kind { kThinking, kText, kToolUse };
  Kind kind = Kind::kText;
  std::string text;       // a tool's input as sampled; not necessarily JSON
  std::string id;         // kToolUse
  std::string name;       // kToolUse
  std::string signature;  // kThinking, at its end: the text once more, for this server to read
};

struct MessageStop {
  std::string_view reason;    // "end_turn", "max_tokens", "stop_sequence", "tool_use"
  std::string stop_sequence;  // empty: none
};

// How an answer ended and what it took; `timings`: null if they were not asked for.
struct MessageEnd {
  const MessageStop& stop;
  const Usage& usage;
  const Timings* timings = nullptr;
};

std::string message_body(const MessageHead& head, std::span<const MessageBlock> blocks,
                         const MessageEnd& end);

// One server-sent event each, appended to `out`.
void append_message_start(const MessageHead& head, int64_t prompt_tokens, std::string& out);
void append_block_start(size_t index, const MessageBlock& block, std::string& out);
void append_block_delta(size_t index, MessageBlock::Kind kind, std::string_view text,
                        std::string& out);
void append_block_stop(size_t index, const MessageBlock& block, std::string& out);
void append_message_end(const MessageEnd& end, std::string& out);
inline constexpr std::string_view kMessagePing = "event: ping\ndata: {\"type\": \"ping\"}\n\n";

std::string message_tokens_body(int64_t tokens);

// {"type":"error","error":{"type":…,"message":…},"request_id":…}
std::string message_error_body(const ApiError& error, std::string_view request_id);

}  // namespace pelton::api
