#include "eval/judge.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "eval/instruction_checks.h"
#include "grammar/json_schema.h"
#include "grammar/matcher.h"
#include "grammar/token_trie.h"

namespace pelton::eval {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string lowered(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), lower);
  return out;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// "0012.50" -> "12.5".
std::string shortest_decimal(std::string_view digits, bool negative) {
  std::string out;
  for (const char c : digits) {
    if (c != ',') out += c;
  }
  if (const size_t point = out.find('.'); point != std::string::npos) {
    out.erase(out.find_last_not_of('0') + 1);
    if (out.ends_with('.')) out.pop_back();
  }
  out.erase(0, std::min(out.find_first_not_of('0'), out.size()));
  if (out.empty() || out.front() == '.') out.insert(0, "0");
  if (negative && out != "0") out.insert(0, "-");
  return out;
}

// The end of the number that begins at `begin`: digits, commas between groups of three, one point
// with digits behind it.
size_t number_end(std::string_view text, size_t begin) {
  size_t end = begin;
  bool has_point = false;
  while (end < text.size()) {
    if (is_digit(text[end])) {
      ++end;
      continue;
    }
    const auto digits_behind = [&](size_t count) {
      if (end + count >= text.size()) return false;
      for (size_t i = 1; i <= count; ++i) {
        if (!is_digit(text[end + i])) return false;
      }
      return true;
    };
    if (text[end] == '.' && !has_point && digits_behind(1)) {
      has_point = true;
      ++end;
    } else if (text[end] == ',' && !has_point && digits_behind(3) &&
               (end + 4 == text.size() || !is_digit(text[end + 4]))) {
      ++end;
    } else {
      break;
    }
  }
  return end;
}

// What an exponent that begins at `at` multiplies by: "e+05" -> 5. None: it is a word, or so large
// that nobody means it.
struct Exponent {
  int value = 0;
  size_t end = 0;
};
std::optional<Exponent> exponent_at(std::string_view text, size_t at) {
  constexpr size_t kDigitsMax = 3;
  if (at >= text.size() || lower(text[at]) != 'e') return std::nullopt;
  size_t digits = at + 1;
  const bool has_sign = digits < text.size() && (text[digits] == '+' || text[digits] == '-');
  const bool is_negative = has_sign && text[digits] == '-';
  digits += has_sign ? 1 : 0;
  Exponent exponent{.end = digits};
  while (exponent.end < text.size() && is_digit(text[exponent.end])) {
    if (exponent.end - digits == kDigitsMax) return std::nullopt;
    exponent.value = 10 * exponent.value + (text[exponent.end++] - '0');
  }
  if (exponent.end == digits) return std::nullopt;
  if (exponent.end < text.size() && is_letter(text[exponent.end])) return std::nullopt;
  if (is_negative) exponent.value = -exponent.value;
  return exponent;
}

// "1.25" by 10^3 -> "1250".
std::string shifted(std::string_view digits, int places) {
  std::string whole;
  for (const char c : digits) {
    if (is_digit(c)) whole += c;
  }
  const size_t point = std::min(digits.find('.'), digits.size());
  const auto before = std::count_if(digits.begin(), digits.begin() + static_cast<int64_t>(point),
                                    [](char c) { return is_digit(c); });
  const int64_t at = before + places;
  if (at <= 0) return "0." + std::string(static_cast<size_t>(-at), '0') + whole;
  whole.append(static_cast<size_t>(std::max<int64_t>(at - std::ssize(whole), 0)), '0');
  if (at < std::ssize(whole)) whole.insert(static_cast<size_t>(at), ".");
  return whole;
}

bool same_number(const ExpectNumber& expected, const Answer& answer) {
  const std::optional<std::string> said = last_number(answer.content);
  const std::optional<std::string> wanted = last_number(expected.number);
  return said && wanted && *said == *wanted;
}

std::string plain_text(std::string_view text) {
  std::string_view plain = trimmed(text);
  if (plain.ends_with('.')) plain.remove_suffix(1);
  return lowered(trimmed(plain));
}

bool same_text(const ExpectText& expected, const Answer& answer) {
  const std::string said = plain_text(answer.content);
  return std::ranges::any_of(expected.accepted,
                             [&](const std::string& text) { return plain_text(text) == said; });
}

// Members in any order, 3 equal to 3.0.
bool equal_json(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a.as_number() == b.as_number();
  if (a.is_array() && b.is_array()) {
    return std::ranges::equal(a.as_array(), b.as_array(), equal_json);
  }
  if (!a.is_object() || !b.is_object()) return a == b;
  if (a.as_object().size() != b.as_object().size()) return false;
  return std::ranges::all_of(a.as_object(), [&](const Json::Member& member) {
    const Json* other = b.find(member.key);
    return other != nullptr && equal_json(member.value, *other);
  });
}

bool same_json(const ExpectJson& expected, const Answer& answer) {
  const Result<Json> said = Json::parse(json_in(answer.content));
  return said.ok() && equal_json(*said, expected.value);
}

// Byte by byte through the schema's grammar: the very one that constrains answers.
bool follows_schema(const ExpectSchema& expected, const Answer& answer) {
  static const std::shared_ptr<const grammar::TokenTrie> kBytes = [] {
    static std::vector<std::string> texts;  // which the trie looks at
    for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    return std::make_shared<const grammar::TokenTrie>(views);
  }();
  const std::string_view document = trimmed(json_in(answer.content));
  if (!Json::parse(document).ok()) return false;
  const auto grammar = grammar::compile_json_schema(expected.schema, {});
  if (!grammar.ok()) return false;  // tasks with such a schema are refused when they are read
  auto token_grammar = grammar::TokenGrammar::make(*grammar, kBytes);
  if (!token_grammar.ok()) return false;
  grammar::Matcher matcher(std::move(*token_grammar));
  return matcher.accept_bytes(document) && matcher.can_end();
}

bool accepts(const std::vector<Json>& accepted, const Json& value) {
  return std::ranges::any_of(accepted, [&](const Json& one) {
    if (one.is_string() && value.is_string()) {
      return plain_text(one.as_string()) == plain_text(value.as_string());
    }
    return equal_json(one, value);
  });
}

bool may_be_left_out(const ExpectCalls::Argument& argument) {
  return std::ranges::any_of(argument.accepted, [](const Json& one) {
    return one.is_string() && one.as_string().empty();
  });
}

bool same_call(const ExpectCalls::Call& expected, const Answer::Call& call) {
  if (expected.name != call.name) return false;
  const Result<Json> arguments = Json::parse(call.arguments.empty() ? "{}" : call.arguments);
  if (!arguments.ok() || !arguments->is_object()) return false;
  for (const Json::Member& given : arguments->as_object()) {
    const auto known =
        std::ranges::find(expected.arguments, given.key, &ExpectCalls::Argument::name);
    if (known == expected.arguments.end() || !accepts(known->accepted, given.value)) return false;
  }
  return std::ranges::all_of(expected.arguments, [&](const ExpectCalls::Argument& argument) {
    return arguments->find(argument.name) != nullptr || may_be_left_out(argument);
  });
}

bool same_calls(const ExpectCalls& expected, const Answer& answer) {
  if (expected.calls.size() != answer.calls.size()) return false;
  std::vector<bool> taken(answer.calls.size());
  return std::ranges::all_of(expected.calls, [&](const ExpectCalls::Call& wanted) {
    for (size_t i = 0; i < answer.calls.size(); ++i) {
      if (taken[i] || !same_call(wanted, answer.calls[i])) continue;
      taken[i] = true;
      return true;
    }
    return false;
  });
}

// As a client could use it: not cut off, a document that can be read where one was asked for, calls
// of tools that there are with arguments that can be read.
bool is_whole(const ExpectAnswer& expected, const Answer& answer) {
  if (answer.finish_reason == "length" || answer.finish_reason == "content_filter") return false;
  for (const Answer::Call& call : answer.calls) {
    if (std::ranges::find(expected.tools, call.name) == expected.tools.end()) return false;
    if (!Json::parse(call.arguments.empty() ? "{}" : call.arguments).ok()) return false;
  }
  if (!answer.calls.empty()) return true;
  if (expected.schema) return follows_schema({*expected.schema}, answer);
  if (expected.is_json) return Json::parse(json_in(answer.content)).ok();
  return !trimmed(answer.content).empty();
}

// A letter that stands alone: neither letter, digit nor apostrophe beside it.
bool stands_alone(std::string_view text, size_t at) {
  const auto is_part = [](char c) { return is_letter(c) || is_digit(c) || c == '\''; };
  return (at == 0 || !is_part(text[at - 1])) && (at + 1 == text.size() || !is_part(text[at + 1]));
}

}  // namespace

std::string_view kind_name(const Expectation& expected) {
  constexpr std::string_view kNames[] = {"a number",     "a choice",   "a text",
                                         "a JSON value", "a document", "tool calls",
                                         "instructions", "a program",  "an answer"};
  return kNames[expected.index()];
}

bool is_right(const Expectation& expected, const Answer& answer) {
  struct Judge {
    const Answer& answer;
    bool operator()(const ExpectCalls& calls) const { return same_calls(calls, answer); }
    bool operator()(const ExpectProgram&) const { return false; }
    bool operator()(const ExpectAnswer& whole) const { return is_whole(whole, answer); }
    bool operator()(const ExpectNumber& number) const { return same_number(number, answer); }
    bool operator()(const ExpectText& text) const { return same_text(text, answer); }
    bool operator()(const ExpectJson& json) const { return same_json(json, answer); }
    bool operator()(const ExpectSchema& schema) const { return follows_schema(schema, answer); }
    bool operator()(const ExpectChoice& choice) const {
      return chosen_letter(answer.content, choice.count) == choice.letter;
    }
    bool operator()(const ExpectInstructions& all) const {
      return std::ranges::all_of(all.instructions, [&](const auto& instruction) {
        return follows_instruction(instruction, answer.content);
      });
    }
  };
  // Whoever calls a tool where an answer is wanted has not answered.
  const bool may_call = std::holds_alternative<ExpectCalls>(expected) ||
                        std::holds_alternative<ExpectAnswer>(expected);
  if (!answer.calls.empty() && !may_call) return false;
  return std::visit(Judge{answer}, expected);
}

std::optional<std::string> last_number(std::string_view text) {
  std::optional<std::string> last;
  for (size_t at = 0; at < text.size();) {
    if (!is_digit(text[at])) {
      ++at;
      continue;
    }
    const size_t end = number_end(text, at);
    // A minus is a sign where nothing stands before it that could be subtracted from.
    const bool negative =
        at > 0 && text[at - 1] == '-' &&
        (at == 1 || (!is_digit(text[at - 2]) && !is_letter(text[at - 2]) && text[at - 2] != ')'));
    const std::optional<Exponent> exponent = exponent_at(text, end);
    const std::string_view digits = text.substr(at, end - at);
    last = exponent ? shortest_decimal(shifted(digits, exponent->value), negative)
                    : shortest_decimal(digits, negative);
    at = exponent ? exponent->end : end;
  }
  return last;
}

char chosen_letter(std::string_view text, int count) {
  const char most = static_cast<char>('A' + count - 1);
  const auto letter_at = [&](size_t at) -> char {
    if (at >= text.size() || text[at] < 'A' || text[at] > most || !stands_alone(text, at)) return 0;
    return text[at];
  };
  const std::string low = lowered(text);
  // "answer is (B)", "Answer: **B**": the last one counts.
  char said = 0;
  for (size_t at = low.find("answer"); at != std::string::npos; at = low.find("answer", at + 1)) {
    size_t next = at + 6;
    for (const std::string_view word : {" is", ":", " "}) {
      if (std::string_view(low).substr(next).starts_with(word)) next += word.size();
    }
    next = text.find_first_not_of(" \t\n:(*[\"$\\", next);
    if (next == std::string_view::npos) continue;
    if (const char letter = letter_at(next); letter != 0) said = letter;
  }
  if (said != 0) return said;
  // A line that is a letter alone, perhaps in brackets or bold.
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const size_t first = text.find_first_not_of(" \t(*[", begin);
    if (first < end && letter_at(first) != 0) {
      const size_t rest = text.find_first_not_of(" \t\r)*].", first + 1);
      if (rest == std::string_view::npos || rest >= end) said = text[first];
    }
    begin = end + 1;
  }
  if (said != 0) return said;
  // "B) Paris", "B. Paris" at the very beginning.
  const size_t first = text.find_first_not_of(" \t\n(*[");
  if (first != std::string_view::npos && letter_at(first) != 0 && first + 1 < text.size() &&
      std::string_view(").:]*").find(text[first + 1]) != std::string_view::npos) {
    return text[first];
  }
  for (size_t at = 0; at < text.size(); ++at) {
    const char letter = letter_at(at);
    // "A or", "I think": words of their own.
    const bool is_word =
        (letter == 'A' || letter == 'I') && at + 1 < text.size() && text[at + 1] == ' ';
    if (letter == 0 || is_word) continue;
    if (said != 0 && said != letter) return 0;
    said = letter;
  }
  return said;
}

std::string_view json_in(std::string_view text) {
  const size_t fence = text.find("```");
  if (fence == std::string_view::npos) return text;
  const size_t line = text.find('\n', fence);
  if (line == std::string_view::npos) return text;
  const size_t end = text.find("```", line);
  return text.substr(line + 1, end == std::string_view::npos ? end : end - line - 1);
}

}  // namespace pelton::eval
