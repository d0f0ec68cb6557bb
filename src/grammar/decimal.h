// A finite decimal number as its digits: what a JSON number says, exactly. A plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"

namespace pelton::grammar {

// 0.digits times 10^point, digits without zeros at either end; 0 has none. -12.50 is negative,
// digits "125", point 2; 4e-3 is digits "4", point -2, and its text "0.004".
struct Decimal {
  bool negative = false;
  std::string digits;
  int64_t point = 0;

  bool is_zero() const { return digits.empty(); }
  bool is_integer() const { return point >= static_cast<int64_t>(digits.size()); }
  // As JSON spells it without an exponent; empty if that takes more than `length_max` characters.
  std::optional<std::string> text(size_t length_max) const;
};

// `number` must be a number (finite, as all of JSON's are).
Decimal decimal_of(const Json& number);

}  // namespace pelton::grammar
