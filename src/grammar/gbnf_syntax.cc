// GBNF, the notation of llama.cpp: name ::= alternatives, one rule after the other; "text",
// [characters], ., (group), * + ? {n,m}, # comment. The rule `root` is the grammar.
#include <fmt/format.h>

#include "base/utf8.h"
#include "grammar/ebnf_syntax.h"

namespace pelton::grammar {
namespace {

using Kind = EbnfNode::Kind;

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class GbnfParser : public EbnfText {
 public:
  using EbnfText::EbnfText;

  Result<EbnfTree> parse() {
    TRY(check_text());
    skip(Lines::kMany);
    while (!done()) {
      TRY(rule());
      skip(Lines::kMany);
    }
    TRY(check_text());  // the number of rules
    const auto root = tree_.rule_numbers.find("root");
    if (root == tree_.rule_numbers.end() || tree_.rules[root->second].body == kNoBody) {
      return Error{ErrorCode::kInvalidArgument, "the grammar has no rule 'root'", ""};
    }
    tree_.start = root->second;
    return std::move(tree_);
  }

 private:
  enum class Lines : uint8_t { kOne, kMany };

  void skip(Lines lines) {
    while (!done()) {
      const char c = peek();
      if (c == '#') {
        while (!done() && peek() != '\n') ++at_;
      } else if (c == ' ' || c == '\t' || c == '\r' || (c == '\n' && lines == Lines::kMany)) {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string name() {
    const size_t began = at_;
    while (is_name_character(peek())) ++at_;
    return tree_.source.substr(began, at_ - began);
  }

  Result<void> rule() {
    const uint32_t began = here();
    const std::string rule_name = name();
    if (rule_name.empty()) return invalid("a rule's name should stand here");
    skip(Lines::kOne);
    if (!take("::=")) return invalid("::= should stand here");
    skip(Lines::kMany);
    TRY_ASSIGN(const uint32_t body, alternatives(0));
    EbnfRule& rule = tree_.rules[tree_.rule_number(rule_name, began)];
    if (rule.body != kNoBody) {
      return tree_.error(ErrorCode::kInvalidArgument, began,
                         fmt::format("the rule '{:.60}' is there twice", rule_name));
    }
    rule.body = body;
    rule.at = began;
    if (!done() && peek() != '\n') return invalid("a line should end here");
    return {};
  }

  Result<uint32_t> alternatives(int depth) {
    if (depth > kDepthMax) {
      return tree_.error(ErrorCode::kDoesNotFit, at_,
                         fmt::format("groups nested deeper than {}", kDepthMax));
    }
    const uint32_t began = here();
    std::vector<uint32_t> branches;
    while (true) {
      TRY_ASSIGN(const uint32_t branch, sequence(depth));
      branches.push_back(branch);
      // A bar may also begin the next line.
      const size_t after = at_;
      skip(Lines::kMany);
      if (!take("|")) {
        at_ = after;
        break;
      }
      skip(Lines::kMany);
    }
    return tree_.add_parent(Kind::kAlternatives, std::move(branches), began);
  }

  Result<uint32_t> sequence(int depth) {
    const Lines lines = depth > 0 ? Lines::kMany : Lines::kOne;
    const uint32_t began = here();
    std::vector<uint32_t> items;
    skip(lines);
    while (!done() && peek() != '|' && peek() != ')' && peek() != '\n') {
      TRY_ASSIGN(uint32_t item, atom(depth));
      TRY_ASSIGN(item, repeated(item));
      items.push_back(item);
      skip(lines);
    }
    return tree_.add_parent(Kind::kSequence, std::move(items), began);
  }

  Result<uint32_t> repeated(uint32_t item) {
    for (int times = 0; times <= kRepeatsInARowMax; ++times) {
      const uint32_t began = here();
      if (take("*")) {
        TRY_ASSIGN(item, repeat(item, 0, kUnlimited, began));
      } else if (take("+")) {
        TRY_ASSIGN(item, repeat(item, 1, kUnlimited, began));
      } else if (take("?")) {
        TRY_ASSIGN(item, repeat(item, 0, 1, began));
      } else if (peek() == '{') {
        TRY_ASSIGN(EbnfNode node, take_braces(item));
        item = tree_.add(std::move(node));
      } else {
        return item;
      }
    }
    return invalid("too many repeats in a row");
  }

  Result<uint32_t> atom(int depth) {
    const uint32_t began = here();
    const char c = peek();
    if (c == '"') return text();
    if (c == '[') return char_class();
    if (c == '.') {
      ++at_;
      tree_.sets.push_back(CodePointSet::all());
      return tree_.add({.kind = Kind::kSet, .index = last_set(), .at = began});
    }
    if (c == '(') {
      ++at_;
      skip(Lines::kMany);
      TRY_ASSIGN(const uint32_t inside, alternatives(depth + 1));
      skip(Lines::kMany);
      if (!take(")")) {
        at_ = began;
        return invalid("a ( that is not closed");
      }
      return inside;
    }
    if (c == '<' || (c == '!' && peek(1) == '<')) return unsupported("tokens in a grammar");
    if (!is_name_character(c))
      return invalid("a name, a text, a class or a group should stand here");
    const std::string rule_name = name();
    return tree_.add(
        {.kind = Kind::kRule, .index = tree_.rule_number(rule_name, began), .at = began});
  }

  uint32_t last_set() const { return static_cast<uint32_t>(tree_.sets.size() - 1); }

  Result<uint32_t> character() {
    if (take("\\")) return take_escape();
    return take_code_point();
  }

  Result<uint32_t> text() {
    const uint32_t began = here();
    EbnfNode node{.at = began};
    ++at_;
    while (!take("\"")) {
      if (done() || peek() == '\n') {
        at_ = began;
        return invalid("a text that is not closed");
      }
      TRY_ASSIGN(const uint32_t point, character());
      base::append_utf8(node.text, point);
    }
    return tree_.add(std::move(node));
  }

  Result<uint32_t> char_class() {
    const uint32_t began = here();
    ++at_;
    const bool negated = take("^");
    CodePointSet set;
    while (!take("]")) {
      if (done()) {
        at_ = began;
        return invalid("a [ that is not closed");
      }
      TRY_ASSIGN(const uint32_t low, character());
      uint32_t high = low;
      if (peek() == '-' && peek(1) != ']' && at_ + 1 < tree_.source.size()) {
        ++at_;
        TRY_ASSIGN(high, character());
        if (high < low) return invalid("a range that is out of order");
      }
      set.add({low, high});
    }
    tree_.sets.push_back(negated ? set.complement() : std::move(set));
    return tree_.add({.kind = Kind::kSet, .index = last_set(), .at = began});
  }
};

}  // namespace

Result<EbnfTree> parse_gbnf(std::string_view text) {
  return GbnfParser(text).parse();
}

}  // namespace pelton::grammar
