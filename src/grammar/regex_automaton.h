// A regular expression as a deterministic automaton over its letters: the subset construction, with
// what regular expressions ask besides: the text's ends, word edges, what follows (each thread
// carries the automata that the rest of the text has yet to satisfy) and what stands before (an
// automaton that runs along). One use, one thread.
//
// (?!ab)[ab]{2} from end to end. The look ahead is an automaton of the texts that do not begin with
// ab: N0 -a-> N1, N1 -b-> dead, all else is satisfied whatever follows. Threads are (letters still
// to come, demands):
//   start {(2, N0)} -a-> {(1, N1)} -a-> {(0)}, which accepts; -b-> nothing: the demand died
//                   -b-> {(1)}     -a-> {(0)}                 -b-> {(0)}
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/result.h"
#include "grammar/dfa_table.h"
#include "grammar/letters.h"
#include "grammar/regex_program.h"
#include "grammar/regex_syntax.h"

namespace pelton::grammar {

class RegexAutomata {
 public:
  // What stands before a place, as far as an assertion can ask.
  enum class Before : uint8_t { kTextStart, kNoWord, kWord };

  RegexAutomata(const RegexTree& tree, const Letters& letters, const DfaLimits& limits);

  // The smallest automaton of the part of the tree below `root`.
  Result<DfaTable> build(uint32_t root, RegexReach reach);

 private:
  class Subsets;

  // What the rest of a text must satisfy after a place: `ahead` is the tree's node.
  struct Ahead {
    DfaTable table;
    std::vector<uint8_t> satisfied;  // by state: whatever follows will do
  };
  Result<DfaTable> build(uint32_t root, RegexReach reach, Before before, int depth);
  // Its place in aheads_.
  Result<uint32_t> ahead(uint32_t node, Before before, int depth);

  const RegexTree& tree_;
  const Letters& letters_;
  const DfaLimits& limits_;
  std::vector<uint8_t> is_word_;  // by letter
  std::map<std::pair<uint32_t, Before>, uint32_t> ahead_numbers_;
  std::vector<Ahead> aheads_;
  uint64_t work_ = 0;
};

}  // namespace pelton::grammar
