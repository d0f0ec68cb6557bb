// The ids of Harmony's control tokens in one model's vocabulary, found by name. A value; any
// thread.
#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "tokenizer/tokenizer.h"

namespace pelton::chat {

struct HarmonyTokens {
  TokenId start = -1;        // <|start|>
  TokenId message = -1;      // <|message|>
  TokenId channel = -1;      // <|channel|>
  TokenId constrain = -1;    // <|constrain|>
  TokenId end = -1;          // <|end|>: of a message, not of the answer
  TokenId call = -1;         // <|call|>
  TokenId return_ = -1;      // <|return|>
  TokenId end_of_text = -1;  // <|endoftext|>

  // Error kUnsupported, naming the token, if the vocabulary lacks one.
  static Result<HarmonyTokens> find(const tokenizer::Tokenizer& tokenizer);

  // Sampling ends after these. <|end|> is not one of them: the final message may still follow.
  std::vector<TokenId> stop_tokens() const { return {return_, call, end_of_text}; }

  bool ends_message(TokenId id) const {
    return id == end || id == call || id == return_ || id == end_of_text;
  }
};

}  // namespace pelton::chat
