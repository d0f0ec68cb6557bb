#include "chat/harmony_tokens.h"

#include <string>

namespace pelton::chat {

Result<HarmonyTokens> HarmonyTokens::find(const tokenizer::Tokenizer& tokenizer) {
  HarmonyTokens tokens;
  struct Wanted {
    std::string_view text;
    TokenId& id;
  };
  const Wanted wanted[] = {
      {"<|start|>", tokens.start},     {"<|message|>", tokens.message},
      {"<|channel|>", tokens.channel}, {"<|constrain|>", tokens.constrain},
      {"<|end|>", tokens.end},         {"<|call|>", tokens.call},
      {"<|return|>", tokens.return_},  {"<|endoftext|>", tokens.end_of_text},
  };
  for (const Wanted& token : wanted) {
    const std::optional<TokenId> id = tokenizer.special_id(token.text);
    if (!id) {
      return Error{.code = ErrorCode::kUnsupported,
                   .message = "the tokenizer lacks the control token " + std::string(token.text) +
                              ", which the Harmony chat format of gpt-oss needs",
                   .field = "tokenizer"};
    }
    token.id = *id;
  }
  return tokens;
}

}  // namespace pelton::chat
