#include "grammar/decimal.h"

#include <cstdlib>

namespace pelton::grammar {

Decimal decimal_of(const Json& number) {
  Decimal result;
  const std::string text = number.dump();  // reads back equal, so it is the number's own digits
  size_t at = 0;
  if (at < text.size() && text[at] == '-') {
    result.negative = true;
    ++at;
  }
  bool fraction = false;
  for (; at < text.size() && text[at] != 'e' && text[at] != 'E'; ++at) {
    if (text[at] == '.') {
      fraction = true;
    } else {
      result.digits += text[at];
      if (!fraction) ++result.point;
    }
  }
  if (at < text.size()) result.point += std::atoll(text.c_str() + at + 1);
  const size_t first = result.digits.find_first_not_of('0');
  if (first == std::string::npos) return {};
  result.digits.erase(0, first);
  result.point -= static_cast<int64_t>(first);
  result.digits.erase(result.digits.find_last_not_of('0') + 1);
  return result;
}

std::optional<std::string> Decimal::text(size_t length_max) const {
  if (is_zero()) return "0";
  const int64_t size = static_cast<int64_t>(digits.size());
  if (point > static_cast<int64_t>(length_max) || -point > static_cast<int64_t>(length_max) ||
      digits.size() > length_max) {
    return std::nullopt;
  }
  std::string result = negative ? "-" : "";
  if (point <= 0) {
    result += "0." + std::string(static_cast<size_t>(-point), '0') + digits;
  } else if (point >= size) {
    result += digits + std::string(static_cast<size_t>(point - size), '0');
  } else {
    result += digits.substr(0, static_cast<size_t>(point)) + "." +
              digits.substr(static_cast<size_t>(point));
  }
  return result;
}

}  // namespace pelton::grammar
