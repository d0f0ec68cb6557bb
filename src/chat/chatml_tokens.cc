#include "chat/chatml_tokens.h"

#include <string>

namespace pelton::chat {
namespace {

std::optional<TokenId> one_token(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  if (const std::optional<TokenId> special = tokenizer.special_id(text)) return special;
  const std::vector<TokenId> tokens = tokenizer.encode(text);
  return tokens.size() == 1 ? std::optional(tokens[0]) : std::nullopt;
}

}  // namespace

Result<ChatMlTokens> ChatMlTokens::find(const tokenizer::Tokenizer& tokenizer) {
  ChatMlTokens tokens;
  struct Wanted {
    std::string_view text;
    TokenId& id;
  };
  for (const Wanted& token :
       {Wanted{"<|im_start|>", tokens.start}, Wanted{"<|im_end|>", tokens.end}}) {
    const std::optional<TokenId> id = tokenizer.special_id(token.text);
    if (!id) {
      return Error{.code = ErrorCode::kUnsupported,
                   .message = "the tokenizer lacks the control token " + std::string(token.text) +
                              ", which the ChatML format needs",
                   .field = "tokenizer"};
    }
    token.id = *id;
  }
  tokens.end_of_text = tokenizer.special_id("<|endoftext|>");
  tokens.think = one_token(tokenizer, kThink);
  tokens.think_end = one_token(tokenizer, kThinkEnd);
  tokens.tool_call = one_token(tokenizer, kToolCall);
  tokens.tool_call_end = one_token(tokenizer, kToolCallEnd);
  tokens.tool_response = one_token(tokenizer, kToolResponse);
  tokens.tool_response_end = one_token(tokenizer, kToolResponseEnd);
  return tokens;
}

std::optional<TokenId> ChatMlTokens::marker(std::string_view text) const {
  if (text == kThink) return think;
  if (text == kThinkEnd) return think_end;
  if (text == kToolCall) return tool_call;
  if (text == kToolCallEnd) return tool_call_end;
  if (text == kToolResponse) return tool_response;
  return text == kToolResponseEnd ? tool_response_end : std::nullopt;
}

}  // namespace pelton::chat
