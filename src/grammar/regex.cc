#include "grammar/regex.h"

#include "grammar/letters.h"
#include "grammar/regex_automaton.h"

namespace pelton::grammar {

Result<ByteDfa> compile_regex(std::string_view pattern, const RegexOptions& options) {
  TRY_ASSIGN(RegexTree tree, parse_regex(pattern, options.dialect));
  // Word edges distinguish word characters even if no set does.
  if (tree.has_word_edges) tree.sets.push_back(word_characters());
  TRY_ASSIGN(const Letters letters, Letters::of_sets(tree.sets, options.limits.cells_max));
  const RegexReach reach =
      options.match == RegexOptions::Match::kSearch ? RegexReach::kSearch : RegexReach::kWhole;
  TRY_ASSIGN(const DfaTable table,
             RegexAutomata(tree, letters, options.limits).build(tree.root, reach));
  return letters.to_bytes(table, options.limits);
}

}  // namespace pelton::grammar
