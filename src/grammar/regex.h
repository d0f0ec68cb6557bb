// Regular expressions -> automata over UTF-8. Patterns as ECMA-262 has them (the dialect of JSON
// Schema's `pattern`), with look ahead and look behind, since those are regular; backreferences are
// not and are refused. A pure function of the text: bounded in states, memory and steps, so a bomb
// is an Error within a second. Any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "grammar/byte_dfa.h"
#include "grammar/regex_syntax.h"

namespace pelton::grammar {

struct RegexOptions {
  // kSearch: texts in which the expression matches somewhere, as `pattern` means it. kWhole: texts
  // that it matches from end to end, as `structured_outputs.regex` does.
  enum class Match : uint8_t { kSearch, kWhole };
  Match match = Match::kSearch;
  RegexDialect dialect = RegexDialect::kEcma262;
  DfaLimits limits = {};
};

// Errors: kInvalidArgument for no regular expression, kUnsupported for one that we do not do,
// kDoesNotFit for one past the limits; with the place, in bytes, where there is one. An expression
// that nothing matches is an empty automaton, not an error.
Result<ByteDfa> compile_regex(std::string_view pattern, const RegexOptions& options);

}  // namespace pelton::grammar
