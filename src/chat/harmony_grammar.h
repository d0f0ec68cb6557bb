// What an answer in Harmony may look like when its body must follow a grammar: the headers that
// the model knows, reasoning free, and the grammar from <|message|> to the message's end. The final
// message ends in <|return|>, a call in <|call|>. Pure functions; any thread.
#pragma once

#include <memory>

#include "base/result.h"
#include "chat/format.h"
#include "chat/harmony_tokens.h"

namespace pelton::chat {

// Error kUnsupported: the vocabulary lacks a token for a byte.
Result<std::shared_ptr<const TurnGrammar>> harmony_network(
    const TurnRules& rules, const HarmonyTokens& tokens,
    std::shared_ptr<const grammar::TokenTrie> trie);

}  // namespace pelton::chat
