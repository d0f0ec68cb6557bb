// What a turn may look like in a dialect when parts of it must follow grammars: reasoning free,
// then the answer or one call. Pure functions; any thread.
//
// A call is a row of tokens up to the arguments (markers, then the text with the name as it is
// encoded), the arguments with what text stands behind them, and the markers behind that.
//
//   mistral_args, f(a: integer), after the prompt's "[TOOL_CALLS]f[ARGS]":
//     arguments, then a stop token
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/dialect.h"
#include "chat/format.h"

namespace pelton::chat {

struct DialectGrammarParts {
  const Dialect& dialect;
  const tokenizer::Tokenizer& tokenizer;
  bool opens_reasoning = false;  // the prompt does
};

// Error kUnsupported: calls are wanted, and the dialect has none.
Result<std::shared_ptr<const TurnGrammar>> dialect_grammar(
    const TurnRules& rules, const DialectGrammarParts& parts,
    std::shared_ptr<const grammar::TokenTrie> trie);

// What a prompt opens a call with: up to the arguments, or up to the name if there is none.
std::vector<TokenId> forced_call_opening(const CallSyntax& syntax, std::string_view function_name,
                                         const tokenizer::Tokenizer& tokenizer);

// The text behind arguments, as far as it is no token.
CallFrame dialect_call_frame(const CallSyntax& syntax, const tokenizer::Tokenizer& tokenizer);

}  // namespace pelton::chat
