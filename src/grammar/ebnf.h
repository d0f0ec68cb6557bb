// Context-free grammars and choice lists -> Grammar. GBNF (name ::= ...) and Lark's EBNF
// (name: ...); which one it is shows from the first rule. Errors name line and column:
// kInvalidArgument for no grammar (unknown rules, rules without an end, left recursion through
// other rules), kUnsupported for what we do not do, kDoesNotFit past the limits. Left recursion of
// a rule into itself is rewritten as a repeat. Pure functions; any thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "grammar/compile_deadline.h"
#include "grammar/grammar.h"

namespace pelton::grammar {

// `deadline`: of the request that the grammar is a part of; null: none.
Result<std::shared_ptr<const Grammar>> compile_ebnf(std::string_view text,
                                                    const CompileDeadline* deadline);
inline Result<std::shared_ptr<const Grammar>> compile_ebnf(std::string_view text) {
  return compile_ebnf(text, nullptr);
}

// Exactly one of these texts.
Result<std::shared_ptr<const Grammar>> compile_choice(std::span<const std::string> texts,
                                                      const CompileDeadline* deadline);
inline Result<std::shared_ptr<const Grammar>> compile_choice(std::span<const std::string> texts) {
  return compile_choice(texts, nullptr);
}

}  // namespace pelton::grammar
