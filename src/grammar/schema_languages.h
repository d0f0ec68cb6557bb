// The regular languages that a schema speaks of: patterns, formats, numbers. Those that every
// schema uses are made once for the process (they are constants). Any thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "grammar/byte_dfa.h"

namespace pelton::grammar {

using Language = std::shared_ptr<const ByteDfa>;

// Texts are decoded UTF-8.
const Language& any_text();
// ECMA-262, unanchored. Errors: kInvalidArgument (no pattern), kUnsupported (look-around that is
// not regular here, backreferences), kDoesNotFit.
Result<Language> texts_matching(std::string_view pattern, const CompileDeadline* deadline);
// Empty: not a format we know; then it means nothing.
std::optional<Result<Language>> texts_of_format(std::string_view format);
Result<Language> texts_with_length(uint64_t chars_min, uint64_t chars_max);

// Numbers as JSON spells them. All numbers may have an exponent, and so may those on one side of
// zero; every other set is of those without one, so that sets can be cut and complemented.
const Language& all_numbers();
const Language& plain_numbers();  // without an exponent
const Language& integers();       // 1, 1.0, -0
const Language& whole_numbers();  // draft 4's integers: without a fraction, however small
// Without those that a reader of doubles takes for something else. kFinite: for infinity.
// kDistinct: also for one of their neighbours, which counts where a number is to differ from
// another or to be a multiple. kUnique: likewise, but where that leaves few numbers or none, all of
// the set in their shortest spelling. (Sets too large for that stay as they are: true to the letter
// of the text.)
enum class Doubles { kFinite, kDistinct, kUnique };
Language fit_for_doubles(const Language& numbers, Doubles doubles);
struct NumberBounds {
  std::optional<Json> minimum;
  std::optional<Json> maximum;
  bool minimum_excluded = false;
  bool maximum_excluded = false;
};
Result<Language> numbers_within(const NumberBounds& bounds);
Result<Language> multiples_of(const Json& number);
// Exactly the values of these, however they are written.
Result<Language> numbers_among(std::span<const Json> values);

}  // namespace pelton::grammar
