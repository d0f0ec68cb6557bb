#include <algorithm>

#include "base/json.h"
#include "chat/python_values.h"

namespace pelton::chat {
namespace {

// A number's digits in another base become as many, about: longer ones are none.
constexpr size_t kOtherBaseDigitsMax = 1024;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

int digit_of(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 16;
}

// Digits from `at` on, which is moved behind them, with single underscores between them.
std::string digits(std::string_view text, size_t& at, int base) {
  std::string out;
  while (at < text.size()) {
    const bool is_gap = text[at] == '_' && !out.empty() && at + 1 < text.size();
    const size_t next = is_gap ? at + 1 : at;
    if (digit_of(text[next]) >= base) break;
    out += text[next];
    at = next + 1;
  }
  return out;
}

std::string without_leading_zeros(std::string digits) {
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
  return digits;
}

// Schoolbook: times the base and plus a digit, decimal digits from the last to the first.
std::string as_decimal(std::string_view digits, int base) {
  std::string out = "0";
  for (const char c : digits) {
    int carry = digit_of(c);
    for (char& place : out) {
      carry += (place - '0') * base;
      place = static_cast<char>('0' + carry % 10);
      carry /= 10;
    }
    for (; carry > 0; carry /= 10) out += static_cast<char>('0' + carry % 10);
  }
  std::reverse(out.begin(), out.end());
  return out;
}

int base_of(std::string_view text) {
  if (text.size() < 2 || text[0] != '0') return 10;
  switch (text[1] | 0x20) {
    case 'x':
      return 16;
    case 'o':
      return 8;
    case 'b':
      return 2;
    default:
      return 10;
  }
}

// "1e5", "E-3" from `at` on, which is moved behind it; empty if there is none.
std::string exponent(std::string_view text, size_t& at) {
  if (at >= text.size() || (text[at] | 0x20) != 'e') return {};
  size_t end = at + 1;
  std::string out = "e";
  if (end < text.size() && (text[end] == '-' || text[end] == '+')) out += text[end++];
  const std::string of = digits(text, end, 10);
  if (of.empty()) return {};
  at = end;
  return out + of;
}

}  // namespace

std::optional<PythonNumber> read_python_number(std::string_view text) {
  size_t at = 0;
  PythonNumber number;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    if (text[at++] == '-') number.json = "-";
  }
  const int base = base_of(text.substr(at));
  if (base != 10) {
    at += 2;
    if (at < text.size() && text[at] == '_') ++at;
    const std::string of = digits(text, at, base);
    if (of.empty() || of.size() > kOtherBaseDigitsMax) return std::nullopt;
    number.json += as_decimal(of, base);
  } else {
    const std::string whole = digits(text, at, 10);
    const bool has_point = at < text.size() && text[at] == '.';
    if (has_point) ++at;
    const std::string fraction = has_point ? digits(text, at, 10) : "";
    if (whole.empty() && fraction.empty()) return std::nullopt;
    const std::string power = exponent(text, at);
    const bool is_whole = !has_point && power.empty();
    // 007 is an error in Python, 00 is not.
    const bool odd_zeros =
        whole.size() > 1 && whole[0] == '0' && whole.find_first_not_of('0') != std::string::npos;
    if (is_whole && odd_zeros) return std::nullopt;
    number.json += whole.empty() ? "0" : without_leading_zeros(whole);
    if (has_point) number.json += "." + (fraction.empty() ? "0" : fraction);
    number.json += power;
  }
  const bool ends = at >= text.size() || (!is_digit(text[at]) && text[at] != '_' &&
                                          ((text[at] | 0x20) < 'a' || (text[at] | 0x20) > 'z'));
  if (!ends || !Json::parse(number.json).ok()) return std::nullopt;
  number.size = at;
  return number;
}

}  // namespace pelton::chat
