// A context-free grammar as its author wrote it, as a tree: what the two notations' parsers
// (gbnf_syntax.cc, lark_syntax.cc) give, and ebnf_network.h turns into rules for the machine. A
// plain value that outlives the text.
//
// root ::= "a" [0-9]* is the rule root, whose body is kSequence of kText "a" and kRepeat, least 0,
// most kUnlimited, of kSet [0-9].
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/byte_dfa.h"
#include "grammar/code_point_set.h"

namespace pelton::grammar {

struct EbnfNode {
  enum class Kind : uint8_t {
    kText,          // these bytes; none is the empty text
    kSet,           // one character of sets[index]
    kDfa,           // a text of dfas[index]
    kRule,          // rules[index]
    kValue,         // a JSON value, by its number in tables that stand beside the tree
    kSequence,      // children
    kAlternatives,  // children
    kRepeat,        // one child, least to most times
  };
  Kind kind = Kind::kText;
  uint32_t index = 0;
  uint32_t least = 0;
  uint32_t most = 0;
  uint32_t at = 0;  // the byte of the source where it begins
  std::string text;
  std::vector<uint32_t> children;
};

inline constexpr uint32_t kNoBody = UINT32_MAX;
inline constexpr uint32_t kUnlimited = UINT32_MAX;

struct EbnfRule {
  std::string name;
  uint32_t body = kNoBody;  // a node; none as long as the rule is only spoken of
  uint32_t at = 0;
  bool terminal = false;  // Lark's: a word of the language, within which nothing is ignored
};

struct EbnfTree {
  std::string source;
  std::vector<EbnfNode> nodes;
  std::vector<CodePointSet> sets;
  std::vector<ByteDfa> dfas;
  std::vector<EbnfRule> rules;
  std::map<std::string, uint32_t, std::less<>> rule_numbers;
  uint32_t start = 0;

  uint32_t add(EbnfNode node) {
    nodes.push_back(std::move(node));
    return static_cast<uint32_t>(nodes.size() - 1);
  }
  // Children of a parent are put into one of their own kind; one child is itself.
  uint32_t add_parent(EbnfNode::Kind kind, std::vector<uint32_t> children, uint32_t at);
  uint32_t rule_number(std::string_view name, uint32_t at);

  // "line 3, column 7: what"
  Error error(ErrorCode code, size_t at, std::string_view what) const;
};

// Reads what both notations share: a text with a place in it, blanks and comments, numbers, errors.
class EbnfText {
 public:
  explicit EbnfText(std::string_view text) { tree_.source = text; }

 protected:
  bool done() const { return at_ >= tree_.source.size(); }
  char peek(size_t ahead = 0) const {
    return at_ + ahead < tree_.source.size() ? tree_.source[at_ + ahead] : '\0';
  }
  bool take(std::string_view word);
  uint32_t here() const { return static_cast<uint32_t>(at_); }
  Error invalid(std::string_view what) const {
    return tree_.error(ErrorCode::kInvalidArgument, at_, what);
  }
  Error unsupported(std::string_view what) const {
    return tree_.error(ErrorCode::kUnsupported, at_, what);
  }
  uint32_t take_code_point();
  // A decimal number up to a million; none if no digit is here.
  std::optional<uint32_t> take_number();
  // After a backslash: the character that n, t, x41, u0041, U00000041 and the like stand for.
  Result<uint32_t> take_escape();
  // {n}, {n,}, {,m} or {n,m} from its brace on, blanks allowed.
  Result<EbnfNode> take_braces(uint32_t child);
  Result<uint32_t> repeat(uint32_t child, uint32_t least, uint32_t most, uint32_t at);
  // Text size, UTF-8, no NUL.
  Result<void> check_text() const;

  // Both bound how deep whoever walks the tree goes.
  static constexpr int kDepthMax = 200;
  static constexpr int kRepeatsInARowMax = 8;

  EbnfTree tree_;
  size_t at_ = 0;
};

Result<EbnfTree> parse_gbnf(std::string_view text);
// Its regular expressions are compiled on the way. `deadline`: of the request; null: none.
Result<EbnfTree> parse_lark(std::string_view text, const CompileDeadline* deadline);
// Whichever of the two it is.
Result<EbnfTree> parse_ebnf(std::string_view text, const CompileDeadline* deadline);

}  // namespace pelton::grammar
