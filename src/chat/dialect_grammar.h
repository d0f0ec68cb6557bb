// What a turn may look like in a dialect when parts of it must follow grammars: reasoning free,
// then the answer or calls. Pure functions; any thread.
//
// A call is a row of tokens up to its last marker before the arguments, then one text that a
// grammar holds: what the dialect writes around the arguments (CallFrame), and the arguments
// themselves; then the row of tokens from the closing marker on. Text is left to the grammar and
// not to a row, because a model may cut it into tokens in other ways than the tokenizer does.
//
//   hermes, f(a: integer), from the turn's beginning:
//     token <tool_call> | text \n{"name": "f", "arguments": ARGUMENTS}\n | token </tool_call> |
//     stop
//   mistral_args, after the prompt's "[TOOL_CALLS]f[ARGS]":
//     text ARGUMENTS | stop
//
// Where the prompt has opened the reasoning, its marker is gone over before the first token.
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
};

// Error kUnsupported: calls are wanted, and the dialect has none.
Result<std::shared_ptr<const TurnGrammar>> dialect_grammar(
    const TurnRules& rules, const DialectGrammarParts& parts,
    std::shared_ptr<const grammar::TokenTrie> trie);

// What a prompt opens a call with: up to the arguments, or up to the name if there is none.
std::vector<TokenId> forced_call_opening(const CallSyntax& syntax, std::string_view function_name,
                                         const tokenizer::Tokenizer& tokenizer);

// The text around the arguments of a call, up to the markers beside it, without what the prompt has
// written.
CallFrame dialect_call_frame(const CallSyntax& syntax, const tokenizer::Tokenizer& tokenizer,
                             std::string_view function_name, TurnRules::Begin begin);

}  // namespace pelton::chat
