#include "grammar/ebnf.h"

#include <algorithm>

#include "grammar/ebnf_network.h"

namespace pelton::grammar {
namespace {

// GBNF's ::= stands outside of texts and comments before any Lark rule's colon can.
bool is_gbnf(std::string_view text) {
  bool quoted = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted) {
      if (c == '\\') ++at;
      if (c == '"' || c == '\n') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '#' || text.substr(at, 2) == "//") {
      at = std::min(text.find('\n', at), text.size());
    } else if (c == ':') {
      return text.substr(at, 3) == "::=";
    }
  }
  return true;
}

}  // namespace

Result<std::shared_ptr<const Grammar>> compile_ebnf(std::string_view text) {
  TRY_ASSIGN(EbnfTree tree, is_gbnf(text) ? parse_gbnf(text) : parse_lark(text));
  TRY_ASSIGN(EbnfResult result, ebnf_network(std::move(tree)));
  if (result.regular) return Grammar::from_dfa(std::move(*result.regular));
  return Grammar::from_rules(std::move(result.rules));
}

Result<std::shared_ptr<const Grammar>> compile_choice(std::span<const std::string> texts) {
  if (texts.empty()) return Error{ErrorCode::kInvalidArgument, "a choice of nothing", ""};
  TRY_ASSIGN(ByteDfa dfa, ByteDfa::any_of(texts, {.states_max = 200'000, .cells_max = 4'000'000}));
  return Grammar::from_dfa(std::move(dfa));
}

}  // namespace pelton::grammar
