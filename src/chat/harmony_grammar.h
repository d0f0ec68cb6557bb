// What an answer in Harmony may look like when its body must follow a grammar: the headers that
// the model knows, reasoning free, and the grammar from <|message|> to the message's end. The final
// message ends in <|return|>, a call in <|call|>. Pure functions; any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "chat/harmony_tokens.h"
#include "grammar/matcher.h"
#include "grammar/token_guide.h"

namespace pelton::chat {

struct HarmonyRules {
  // Of the final message; null: free.
  std::shared_ptr<const grammar::TokenGrammar> final_text;
  struct Function {
    std::string name;
    std::shared_ptr<const grammar::TokenGrammar> arguments;  // null: free
  };
  std::vector<Function> functions;  // that may be called
  // Where the prompt ends: after "<|start|>assistant", or after the call_opening() of any function
  // or of the first one.
  enum class Begin : uint8_t { kTurn, kAnyCall, kFirstCall };
  Begin begin = Begin::kTurn;
};

// Error kUnsupported: the vocabulary lacks a token for a byte.
Result<std::shared_ptr<const grammar::TokenNetwork>> harmony_network(
    const HarmonyRules& rules, const HarmonyTokens& tokens,
    std::shared_ptr<const grammar::TokenTrie> trie);

// An answer without messages (a completion of text): all of it follows the grammar, then one of
// `ends` comes.
std::shared_ptr<const grammar::TokenNetwork> text_network(
    std::shared_ptr<const grammar::TokenGrammar> grammar, const std::vector<TokenId>& ends);

}  // namespace pelton::chat
