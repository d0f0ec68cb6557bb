// A grammar's tree as what the machine runs: rules without recursion become automata where they are
// small, the others a network of states and calls. No rule of the result accepts the empty text but
// the root, so a call always reads something, and none calls itself first. One use; one thread.
//
// root ::= "a" root "b" | "c" is recursive, so it becomes a network of two rules: the root, which
// begins at state 0, and the same once more as rule 1, which is called and begins at state 4.
//   0  a -> 1, c -> 2             4  a -> 5, c -> 6
//   1  call of rule 1 -> 3        5  call of rule 1 -> 7
//   2  accepts                    6  accepts
//   3  b -> 2                     7  b -> 6
// root ::= root "+" [0-9] | [0-9] is first rewritten as [0-9] ("+" [0-9])*, and then is one
// automaton.
#pragma once

#include <optional>

#include "base/result.h"
#include "grammar/ebnf_syntax.h"
#include "grammar/rules.h"

namespace pelton::grammar {

struct EbnfResult {
  std::optional<ByteDfa> regular;  // if the whole grammar is one automaton
  RuleNetwork rules;               // else
};

// `deadline`: of the request; null: none.
Result<EbnfResult> ebnf_network(EbnfTree tree, const CompileDeadline* deadline);

}  // namespace pelton::grammar
