// ChatML's control tokens in one model's vocabulary, and the markers that Qwen3 has between them,
// found by their text. A marker that is no token of its own is written as ordinary ones. A value;
// any thread.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "tokenizer/tokenizer.h"

namespace pelton::chat {

inline constexpr std::string_view kThink = "<think>";
inline constexpr std::string_view kThinkEnd = "</think>";
inline constexpr std::string_view kToolCall = "<tool_call>";
inline constexpr std::string_view kToolCallEnd = "</tool_call>";
inline constexpr std::string_view kToolResponse = "<tool_response>";
inline constexpr std::string_view kToolResponseEnd = "</tool_response>";

struct ChatMlTokens {
  TokenId start = -1;                  // <|im_start|>
  TokenId end = -1;                    // <|im_end|>
  std::optional<TokenId> end_of_text;  // <|endoftext|>
  std::optional<TokenId> think;
  std::optional<TokenId> think_end;
  std::optional<TokenId> tool_call;
  std::optional<TokenId> tool_call_end;
  std::optional<TokenId> tool_response;
  std::optional<TokenId> tool_response_end;

  // Error kUnsupported, naming the token, if the vocabulary lacks <|im_start|> or <|im_end|>.
  static Result<ChatMlTokens> find(const tokenizer::Tokenizer& tokenizer);

  // Of one of the markers above.
  std::optional<TokenId> marker(std::string_view text) const;

  bool stops(TokenId id) const { return id == end || id == end_of_text; }
};

}  // namespace pelton::chat
