#include "grammar/ebnf.h"

#include "grammar/ebnf_network.h"

namespace pelton::grammar {

Result<std::shared_ptr<const Grammar>> compile_ebnf(std::string_view text,
                                                    const CompileDeadline* deadline) {
  TRY_ASSIGN(EbnfTree tree, parse_ebnf(text, deadline));
  TRY_ASSIGN(EbnfResult result, ebnf_network(std::move(tree), deadline));
  if (result.regular) return Grammar::from_dfa(std::move(*result.regular));
  return Grammar::from_rules(std::move(result.rules));
}

Result<std::shared_ptr<const Grammar>> compile_choice(std::span<const std::string> texts,
                                                      const CompileDeadline* deadline) {
  if (texts.empty()) return Error{ErrorCode::kInvalidArgument, "a choice of nothing", ""};
  TRY_ASSIGN(ByteDfa dfa,
             ByteDfa::any_of(
                 texts, {.states_max = 200'000, .cells_max = 4'000'000, .deadline = deadline}));
  return Grammar::from_dfa(std::move(dfa));
}

}  // namespace pelton::grammar
