// What a ChatML turn may look like when parts of it must follow grammars: reasoning free, then the
// answer or calls. Markers have to be tokens. Pure functions; any thread.
//
// The grammar of a call's arguments holds the JSON around them, too: see call_frame().
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "chat/chatml_tokens.h"
#include "chat/format.h"

namespace pelton::chat {

// Error kUnsupported: calls are wanted, and the vocabulary has no tokens for their markers.
Result<std::shared_ptr<const TurnGrammar>> chatml_grammar(
    const TurnRules& rules, const ChatMlTokens& tokens,
    std::shared_ptr<const grammar::TokenTrie> trie);

// What a prompt opens a call with behind its marker, and what the frame around its arguments is
// from there.
std::string chatml_call_opening(std::string_view function_name);
CallFrame chatml_call_frame(std::string_view function_name, TurnRules::Begin begin);

}  // namespace pelton::chat
