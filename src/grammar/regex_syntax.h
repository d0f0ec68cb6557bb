// The text of a regular expression as a tree. Nodes lie in one vector and name each other by
// number; equal sets are one. Written by parse_regex, read by regex_automaton.h; a plain value.
//
// ab{2,} is kSequence, whose child is kSet {a}, whose sibling is kRepeat, least 2, most kEndless,
// whose child is kSet {b}.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/code_point_set.h"

namespace pelton::grammar {

// kEcma262: as JSON Schema's `pattern` means it, in Unicode mode, but forgiving where that mode is
// stricter than what schemas hold: \- and other escaped punctuation, a lone { } or ].
// kEngines: also what users of other engines write: (?P<name>...), \A, \Z, \z.
enum class RegexDialect : uint8_t { kEcma262, kEngines };

inline constexpr uint32_t kNoRegexNode = UINT32_MAX;
inline constexpr uint32_t kEndless = UINT32_MAX;

struct RegexNode {
  enum class Kind : uint8_t {
    kEmpty,
    kSet,           // one code point of sets[set]
    kSequence,      // children
    kAlternatives,  // children
    kRepeat,        // one child, least to most times (kEndless)
    kTextStart,
    kTextEnd,
    kWordEdge,  // negated: \B
    kAhead,     // one child: what follows matches it (negated: does not)
    kBehind,    // one child: what stands before
  };
  Kind kind = Kind::kEmpty;
  bool negated = false;
  uint32_t set = 0;
  uint32_t child = kNoRegexNode;    // the first one
  uint32_t sibling = kNoRegexNode;  // the next child of the same parent
  uint32_t least = 0;
  uint32_t most = 0;
};

struct RegexTree {
  std::vector<RegexNode> nodes;
  std::vector<CodePointSet> sets;
  uint32_t root = 0;
  bool has_word_edges = false;
};

// Errors name the place as a count of bytes: kInvalidArgument for what is no regular expression,
// kUnsupported for what is one that is not regular (backreferences) or not ours, kDoesNotFit for
// one past 64 KiB or nested deeper than 200.
Result<RegexTree> parse_regex(std::string_view pattern, RegexDialect dialect);

}  // namespace pelton::grammar
