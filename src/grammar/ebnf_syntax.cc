#include "grammar/ebnf_syntax.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/utf8.h"

namespace pelton::grammar {
namespace {

constexpr size_t kTextBytesMax = 128 << 10;
constexpr uint32_t kRulesMax = 10'000;
constexpr uint32_t kNumberMax = 1'000'000;

// GBNF's ::= stands outside of texts and comments before any Lark rule's colon can.
bool is_gbnf(std::string_view text) {
  bool quoted = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted) {
      if (c == '\\') ++at;
      if (c == '"' || c == '\n') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '#' || text.substr(at, 2) == "//") {
      at = std::min(text.find('\n', at), text.size());
    } else if (c == ':') {
      return text.substr(at, 3) == "::=";
    }
  }
  return true;
}

}  // namespace

uint32_t EbnfTree::add_parent(EbnfNode::Kind kind, std::vector<uint32_t> children, uint32_t at) {
  if (children.size() == 1) return children[0];
  EbnfNode node{.at = at};
  if (!children.empty()) {
    node.kind = kind;
    node.children = std::move(children);
  }
  return add(std::move(node));
}

uint32_t EbnfTree::rule_number(std::string_view name, uint32_t at) {
  const auto known = rule_numbers.find(name);
  if (known != rule_numbers.end()) return known->second;
  const uint32_t number = static_cast<uint32_t>(rules.size());
  rules.push_back({.name = std::string(name), .at = at});
  rule_numbers.emplace(name, number);
  return number;
}

Error EbnfTree::error(ErrorCode code, size_t at, std::string_view what) const {
  const std::string_view before = std::string_view(source).substr(0, at);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  return {code, fmt::format("line {}, column {}: {}", line, at - line_start + 1, what), ""};
}

bool EbnfText::take(std::string_view word) {
  if (std::string_view(tree_.source).substr(at_, word.size()) != word) return false;
  at_ += word.size();
  return true;
}

uint32_t EbnfText::take_code_point() {
  const base::Utf8Step step = base::utf8_step(std::string_view(tree_.source).substr(at_));
  at_ += step.bytes;
  return step.code_point;
}

std::optional<uint32_t> EbnfText::take_number() {
  if (peek() < '0' || peek() > '9') return std::nullopt;
  uint32_t value = 0;
  for (; peek() >= '0' && peek() <= '9'; ++at_) {
    value = std::min(value * 10 + static_cast<uint32_t>(peek() - '0'), kNumberMax + 1);
  }
  return value;
}

Result<uint32_t> EbnfText::take_escape() {
  const size_t began = at_ - 1;
  if (done()) return invalid("a \\ at the end");
  const uint32_t c = take_code_point();
  const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  if (digits == 0) {
    constexpr std::string_view kNames = "nrtfvb0", kMeanings("\n\r\t\f\v\b\0", 7);
    if (c < 0x80) {
      const size_t at = kNames.find(static_cast<char>(c));
      if (at != std::string_view::npos) return static_cast<uint32_t>(kMeanings[at]);
      const bool letter = (c | 32) >= 'a' && (c | 32) <= 'z';
      if (letter || (c >= '0' && c <= '9')) {
        at_ = began;
        return invalid("an escape that is not known");
      }
    }
    return c;
  }
  uint32_t value = 0;
  for (int i = 0; i < digits; ++i, ++at_) {
    const char h = peek();
    const int digit = h >= '0' && h <= '9'   ? h - '0'
                      : h >= 'a' && h <= 'f' ? h - 'a' + 10
                      : h >= 'A' && h <= 'F' ? h - 'A' + 10
                                             : -1;
    if (digit < 0 || value > kLastCodePoint) {
      at_ = began;
      return invalid(fmt::format("an escape wants {} hexadecimal digits", digits));
    }
    value = value * 16 + static_cast<uint32_t>(digit);
  }
  if (value > kLastCodePoint || (value >= 0xD800 && value < 0xE000)) {
    at_ = began;
    return invalid("an escape that is no character");
  }
  return value;
}

Result<EbnfNode> EbnfText::take_braces(uint32_t child) {
  const uint32_t began = here();
  const auto blanks = [&] {
    while (peek() == ' ' || peek() == '\t') ++at_;
  };
  ++at_;
  blanks();
  const std::optional<uint32_t> least = take_number();
  blanks();
  std::optional<uint32_t> most = least;
  if (take(",")) {
    blanks();
    most = take_number();
    blanks();
    if (!most && least) most = kUnlimited;
  }
  if (!take("}") || !most) {
    at_ = began;
    return invalid("a repeat is {n}, {n,}, {,m} or {n,m}");
  }
  if (least.value_or(0) > *most || least.value_or(0) > kNumberMax ||
      (*most > kNumberMax && *most != kUnlimited)) {
    at_ = began;
    return invalid(fmt::format("the bounds of a repeat are out of order, or above {}", kNumberMax));
  }
  return EbnfNode{.kind = EbnfNode::Kind::kRepeat,
                  .least = least.value_or(0),
                  .most = *most,
                  .at = began,
                  .children = {child}};
}

Result<uint32_t> EbnfText::repeat(uint32_t child, uint32_t least, uint32_t most, uint32_t at) {
  return tree_.add({.kind = EbnfNode::Kind::kRepeat,
                    .least = least,
                    .most = most,
                    .at = at,
                    .children = {child}});
}

Result<void> EbnfText::check_text() const {
  const std::string& text = tree_.source;
  if (text.size() > kTextBytesMax) {
    return Error{
        ErrorCode::kDoesNotFit,
        fmt::format("a grammar has {} bytes; at most {} are compiled", text.size(), kTextBytesMax),
        ""};
  }
  if (!base::is_valid_utf8(text)) {
    return Error{ErrorCode::kInvalidArgument, "the grammar is not UTF-8", ""};
  }
  const size_t nul = text.find('\0');
  if (nul != std::string::npos) {
    return tree_.error(ErrorCode::kInvalidArgument, nul, "a NUL in a grammar");
  }
  if (tree_.rules.size() > kRulesMax) {
    return Error{ErrorCode::kDoesNotFit, fmt::format("a grammar has more than {} rules", kRulesMax),
                 ""};
  }
  return {};
}

Result<EbnfTree> parse_ebnf(std::string_view text, const CompileDeadline* deadline) {
  return is_gbnf(text) ? parse_gbnf(text) : parse_lark(text, deadline);
}

}  // namespace pelton::grammar
