// JSON numbers between bounds, as automata over their text. Texts without an exponent; the value
// counts, so 7, 7.0 and 7.00 are the same number, and -0 is 0. Any thread.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "grammar/byte_dfa.h"

namespace pelton::grammar {

struct NumericBounds {
  // As JSON spells them ("-1.5e3").
  std::optional<std::string> minimum, maximum;
  // An excluded bound also excludes what is nearer to it than the next double (for 0: than 1e-17),
  // since a reader of doubles would take that for the bound itself.
  bool minimum_excluded = false;
  bool maximum_excluded = false;
};

// Errors: kInvalidArgument for a bound that is no number, kDoesNotFit for one of more than 400
// digits. Bounds that no number meets give an empty automaton.
Result<ByteDfa> numbers_between(const NumericBounds& bounds);

}  // namespace pelton::grammar
