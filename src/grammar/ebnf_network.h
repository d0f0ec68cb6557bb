// A grammar's tree as what the machine runs: rules without recursion become automata where they are
// small, the others a network of states and calls. No rule of the result accepts the empty text but
// the root, so a call always reads something, and none calls itself first. One use; one thread.
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
