// A regular expression's tree as a nondeterministic program over letters (Thompson's construction):
// each step reads one letter of a set, forks, or asks something of the place it stands at.
// Immutable once built; any thread.
//
// a(?:b|c)* from end to end (kWhole), written back to front, begins at step 5:
//   0  kEnd                     3  kLetters {b}, then 1
//   1  kFork to 4 or 0          4  kFork to 3 or 2
//   2  kLetters {c}, then 1     5  kLetters {a}, then 1
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "grammar/regex_syntax.h"

namespace pelton::grammar {

struct RegexStep {
  enum class Kind : uint8_t {
    kLetters,  // one letter of set `arg`, then `to`
    kAny,      // any letter, then `to`
    kFork,     // `to` or `other`
    kTextStart,
    kTextEnd,
    kWordEdge,
    kNoWordEdge,
    kAhead,  // `arg`: the node of the tree
    kNotAhead,
    kBehind,  // `arg`: the place in RegexProgram::behinds
    kNotBehind,
    kEnd,      // matched, if the text ends here
    kMatched,  // matched, whatever follows
  };
  Kind kind = Kind::kEnd;
  uint32_t arg = 0;
  uint32_t to = 0;
  uint32_t other = 0;
};

struct RegexProgram {
  std::vector<RegexStep> steps;
  std::vector<uint32_t> behinds;  // nodes of the tree: what may stand before
  uint32_t start = 0;
};

// kWhole: the text is a match. kSearch: it contains one. kPrefix: it begins with one. kSuffix: it
// ends with one.
enum class RegexReach : uint8_t { kWhole, kSearch, kPrefix, kSuffix };

// The program for the part of `tree` below `root`. Error: kDoesNotFit past 200 000 steps.
Result<RegexProgram> regex_program(const RegexTree& tree, uint32_t root, RegexReach reach);

}  // namespace pelton::grammar
