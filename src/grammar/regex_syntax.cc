#include "grammar/regex_syntax.h"

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "base/utf8.h"

namespace pelton::grammar {
namespace {

constexpr size_t kPatternBytesMax = 64 << 10;
constexpr int kDepthMax = 200;
constexpr uint32_t kRepeatMax = 1'000'000;

using Kind = RegexNode::Kind;

std::optional<uint32_t> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<uint32_t>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<uint32_t>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<uint32_t>(c - 'A' + 10);
  return std::nullopt;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

class Parser {
 public:
  Parser(std::string_view text, RegexDialect dialect) : text_(text), dialect_(dialect) {}

  Result<RegexTree> parse() {
    if (text_.size() > kPatternBytesMax) {
      return Error{ErrorCode::kDoesNotFit,
                   fmt::format("a regular expression has {} bytes; at most {} are compiled",
                               text_.size(), kPatternBytesMax),
                   ""};
    }
    if (!base::is_valid_utf8(text_)) return invalid("the regular expression is not UTF-8");
    TRY_ASSIGN(tree_.root, alternatives(0));
    if (at_ < text_.size()) return invalid("a ) that closes nothing");
    return std::move(tree_);
  }

 private:
  // What an escape or a class member stands for: one code point, or a set.
  struct Member {
    CodePointSet set;
    std::optional<uint32_t> point;
  };

  Error at_fault(ErrorCode code, std::string_view what, size_t at) const {
    return {code, fmt::format("regular expression, byte {}: {}", at, what), ""};
  }
  Error invalid(std::string_view what) const {
    return at_fault(ErrorCode::kInvalidArgument, what, at_);
  }
  Error unsupported(std::string_view what) const {
    return at_fault(ErrorCode::kUnsupported, what, at_);
  }

  bool done() const { return at_ >= text_.size(); }
  char peek() const { return text_[at_]; }
  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  uint32_t take_code_point() {
    const base::Utf8Step step = base::utf8_step(text_.substr(at_));
    at_ += step.bytes;
    return step.code_point;
  }

  uint32_t add(RegexNode node) {
    tree_.nodes.push_back(node);
    return static_cast<uint32_t>(tree_.nodes.size() - 1);
  }
  uint32_t add_set(CodePointSet set) {
    const std::vector<CodePointRange> key(set.ranges().begin(), set.ranges().end());
    const auto [at, fresh] = set_numbers_.emplace(key, tree_.sets.size());
    if (fresh) tree_.sets.push_back(std::move(set));
    return add({.kind = Kind::kSet, .set = at->second});
  }
  // A parent over children in order; one child is itself.
  uint32_t add_parent(Kind kind, const std::vector<uint32_t>& children) {
    if (children.empty()) return add({});
    if (children.size() == 1) return children[0];
    for (size_t i = 0; i + 1 < children.size(); ++i) {
      tree_.nodes[children[i]].sibling = children[i + 1];
    }
    return add({.kind = kind, .child = children[0]});
  }

  Result<uint32_t> alternatives(int depth) {
    if (depth > kDepthMax) {
      return at_fault(ErrorCode::kDoesNotFit,
                      fmt::format("groups nested deeper than {}", kDepthMax), at_);
    }
    std::vector<uint32_t> branches;
    do {
      TRY_ASSIGN(const uint32_t branch, sequence(depth));
      branches.push_back(branch);
    } while (take("|"));
    return add_parent(Kind::kAlternatives, branches);
  }

  Result<uint32_t> sequence(int depth) {
    std::vector<uint32_t> terms;
    while (!done() && peek() != '|' && peek() != ')') {
      TRY_ASSIGN(uint32_t term, atom(depth));
      TRY_ASSIGN(term, repeated(term));
      terms.push_back(term);
    }
    return add_parent(Kind::kSequence, terms);
  }

  Result<uint32_t> atom(int depth) {
    const size_t began = at_;
    switch (peek()) {
      case '(':
        return group(depth);
      case '[':
        return char_class();
      case '\\':
        return escape();
      case '.':
        ++at_;
        return add_set(all_but_line_ends());
      case '^':
        ++at_;
        return add({.kind = Kind::kTextStart});
      case '$':
        ++at_;
        return add({.kind = Kind::kTextEnd});
      case '*':
      case '+':
      case '?':
        return invalid("nothing to repeat");
      case '{':
        if (bounds()) {
          at_ = began;
          return invalid("nothing to repeat");
        }
        break;
      default:
        break;
    }
    const uint32_t point = take_code_point();
    return add_set({{point, point}});
  }

  Result<uint32_t> group(int depth) {
    const size_t began = at_++;
    RegexNode around{.kind = Kind::kEmpty};
    if (take("?")) {
      if (take("=")) {
        around.kind = Kind::kAhead;
      } else if (take("!")) {
        around = {.kind = Kind::kAhead, .negated = true};
      } else if (take("<=")) {
        around.kind = Kind::kBehind;
      } else if (take("<!")) {
        around = {.kind = Kind::kBehind, .negated = true};
      } else if (take("<") || (dialect_ == RegexDialect::kEngines && take("P<"))) {
        TRY(group_name());
      } else if (!take(":")) {
        at_ = began;
        return unsupported(
            "only the groups (...), (?:...), (?<name>...), (?=...), (?!...), "
            "(?<=...) and (?<!...) are known");
      }
    }
    TRY_ASSIGN(const uint32_t inside, alternatives(depth + 1));
    if (!take(")")) {
      at_ = began;
      return invalid("a ( that is not closed");
    }
    if (around.kind == Kind::kEmpty) {
      // A node of its own, so that the group's place among siblings is free to be set.
      return add({.kind = Kind::kSequence, .child = inside});
    }
    around.child = inside;
    return add(around);
  }

  Result<void> group_name() {
    const size_t began = at_;
    while (!done() && peek() != '>') {
      const char c = peek();
      const bool ok = is_letter(c) || c == '_' || c == '$' || (at_ > began && is_digit(c)) ||
                      static_cast<unsigned char>(c) >= 0x80;
      if (!ok) return invalid("a group's name has letters, digits, _ and $ only");
      ++at_;
    }
    if (at_ == began) return invalid("a group without a name");
    if (!take(">")) return invalid("a group's name that does not end");
    return {};
  }

  struct Bounds {
    uint64_t least, most;
  };

  // {n}, {n,} or {n,m}, taken; or nothing taken.
  std::optional<Bounds> bounds() {
    const size_t began = at_;
    const auto number = [&]() -> std::optional<uint64_t> {
      if (done() || !is_digit(peek())) return std::nullopt;
      uint64_t value = 0;
      for (; !done() && is_digit(peek()); ++at_) {
        value = std::min<uint64_t>(value * 10 + static_cast<uint64_t>(peek() - '0'), UINT32_MAX);
      }
      return value;
    };
    if (!take("{")) return std::nullopt;
    const std::optional<uint64_t> least = number();
    if (least) {
      if (take("}")) return Bounds{*least, *least};
      if (take(",}")) return Bounds{*least, kEndless};
      if (take(",")) {
        const std::optional<uint64_t> most = number();
        if (most && take("}")) return Bounds{*least, *most};
      }
    }
    at_ = began;
    return std::nullopt;
  }

  Result<uint32_t> repeated(uint32_t term) {
    const size_t began = at_;
    Bounds times{1, 1};
    if (take("*")) {
      times = {0, kEndless};
    } else if (take("+")) {
      times = {1, kEndless};
    } else if (take("?")) {
      times = {0, 1};
    } else if (const std::optional<Bounds> given = bounds()) {
      times = *given;
      const bool endless = times.most == kEndless && text_[at_ - 2] == ',';
      if (times.least > kRepeatMax || (!endless && times.most > kRepeatMax)) {
        return at_fault(ErrorCode::kDoesNotFit, fmt::format("more than {} repeats", kRepeatMax),
                        began);
      }
      if (times.least > times.most) {
        return at_fault(ErrorCode::kInvalidArgument, "the bounds of a repeat are out of order",
                        began);
      }
    } else {
      return term;
    }
    const Kind kind = tree_.nodes[term].kind;
    if (kind == Kind::kTextStart || kind == Kind::kTextEnd || kind == Kind::kWordEdge ||
        kind == Kind::kAhead || kind == Kind::kBehind) {
      return at_fault(ErrorCode::kInvalidArgument, "an assertion cannot be repeated", began);
    }
    // A lazy repeat has the same language.
    if (!take("?") && !done() && (peek() == '+' || peek() == '*')) {
      return invalid("a repeat of a repeat, or a possessive one");
    }
    return add({.kind = Kind::kRepeat,
                .child = term,
                .least = static_cast<uint32_t>(times.least),
                .most = static_cast<uint32_t>(times.most)});
  }

  Result<uint32_t> escape() {
    if (at_ + 1 >= text_.size()) return invalid("a \\ at the end");
    const char c = text_[at_ + 1];
    if (c == 'b' || c == 'B') {
      at_ += 2;
      tree_.has_word_edges = true;
      return add({.kind = Kind::kWordEdge, .negated = c == 'B'});
    }
    if (c >= '1' && c <= '9') return unsupported("backreferences are not regular");
    if (c == 'k') return unsupported("backreferences are not regular");
    if (dialect_ == RegexDialect::kEngines && (c == 'A' || c == 'z' || c == 'Z')) {
      at_ += 2;
      return add({.kind = c == 'A' ? Kind::kTextStart : Kind::kTextEnd});
    }
    TRY_ASSIGN(Member member, escaped_member());
    return add_set(std::move(member.set));
  }

  static Member one(uint32_t point) { return {.set = {{point, point}}, .point = point}; }

  // An escape inside or outside of a class, from its backslash on.
  Result<Member> escaped_member() {
    const size_t began = at_;
    if (at_ + 1 >= text_.size()) return invalid("a \\ at the end");
    at_ += 1;
    const uint32_t c = take_code_point();
    switch (c) {
      case 'd':
        return Member{.set = digit_characters(), .point = {}};
      case 'D':
        return Member{.set = digit_characters().complement(), .point = {}};
      case 'w':
        return Member{.set = word_characters(), .point = {}};
      case 'W':
        return Member{.set = word_characters().complement(), .point = {}};
      case 's':
        return Member{.set = space_characters(), .point = {}};
      case 'S':
        return Member{.set = space_characters().complement(), .point = {}};
      case 't':
        return one('\t');
      case 'n':
        return one('\n');
      case 'v':
        return one('\v');
      case 'f':
        return one('\f');
      case 'r':
        return one('\r');
      case '0':
        if (!done() && is_digit(peek())) return invalid("an octal escape");
        return one(0);
      case 'c':
        if (done() || !is_letter(peek())) return invalid("\\c without a letter");
        return one(static_cast<uint32_t>(text_[at_++]) % 32);
      case 'x':
        return hex_escape(2);
      case 'u':
        return unicode_escape();
      case 'p':
      case 'P':
        return property(c == 'P');
      default:
        break;
    }
    if (c < 0x80 && (is_letter(static_cast<char>(c)) || is_digit(static_cast<char>(c)))) {
      at_ = began;
      return invalid(
          fmt::format("an escape that ECMA-262 does not have: \\{}", static_cast<char>(c)));
    }
    return one(c);
  }

  Result<Member> hex_escape(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const std::optional<uint32_t> digit = done() ? std::nullopt : hex_digit(peek());
      if (!digit) return invalid(fmt::format("an escape wants {} hexadecimal digits", digits));
      value = value * 16 + *digit;
    }
    return one(value);
  }

  Result<Member> unicode_escape() {
    if (take("{")) {
      uint32_t value = 0;
      const size_t began = at_;
      for (; !done() && hex_digit(peek()); ++at_) {
        value = std::min(value * 16 + *hex_digit(peek()), kLastCodePoint + 1);
      }
      if (at_ == began || !take("}")) return invalid("\\u{ wants hexadecimal digits and a }");
      if (value > kLastCodePoint) return invalid("a code point past 10FFFF");
      return one(value);
    }
    TRY_ASSIGN(const Member first, hex_escape(4));
    const size_t after = at_;
    if (*first.point >= 0xD800 && *first.point < 0xDC00 && take("\\u")) {
      const Result<Member> second = hex_escape(4);
      if (second.ok() && *second->point >= 0xDC00 && *second->point < 0xE000) {
        return one(0x10000 + ((*first.point - 0xD800) << 10) + (*second->point - 0xDC00));
      }
      at_ = after;
    }
    return first;
  }

  Result<Member> property(bool negated) {
    std::string_view name;
    if (take("{")) {
      const size_t end = text_.find('}', at_);
      if (end == std::string_view::npos) return invalid("\\p{ without its }");
      name = text_.substr(at_, end - at_);
      at_ = end + 1;
    }
    std::optional<CodePointSet> set = unicode_property(name);
    if (!set) return invalid(fmt::format("no Unicode property is called '{}'", name.substr(0, 40)));
    return Member{.set = negated ? set->complement() : std::move(*set), .point = {}};
  }

  Result<uint32_t> char_class() {
    const size_t began = at_++;
    const bool negated = take("^");
    CodePointSet set;
    while (!take("]")) {
      if (done()) {
        at_ = began;
        return invalid("a [ that is not closed");
      }
      TRY_ASSIGN(const Member low, class_member());
      // A dash is a range if it stands between two single characters.
      if (low.point && at_ + 1 < text_.size() && peek() == '-' && text_[at_ + 1] != ']') {
        const size_t dash = at_++;
        TRY_ASSIGN(const Member high, class_member());
        if (high.point) {
          if (*low.point > *high.point) {
            return at_fault(ErrorCode::kInvalidArgument, "a range that is out of order", dash);
          }
          set.add({*low.point, *high.point});
          continue;
        }
        set.add({'-', '-'});
        set.add(high.set);
      }
      set.add(low.set);
    }
    return add_set(negated ? set.complement() : std::move(set));
  }

  Result<Member> class_member() {
    if (done()) return invalid("a [ that is not closed");
    const std::string_view rest = text_.substr(at_, 2);
    if (rest == "[:" || rest == "[." || rest == "[=") {
      return unsupported("POSIX classes are not in ECMA-262");
    }
    if (peek() != '\\') return one(take_code_point());
    if (rest == "\\b") {
      at_ += 2;
      return one('\b');
    }
    if (rest == "\\-") {
      at_ += 2;
      return one('-');
    }
    if (rest.size() == 2 && is_digit(rest[1]) && rest[1] != '0') return invalid("an octal escape");
    return escaped_member();
  }

  const std::string_view text_;
  const RegexDialect dialect_;
  size_t at_ = 0;
  RegexTree tree_;
  std::map<std::vector<CodePointRange>, uint32_t> set_numbers_;
};

}  // namespace

Result<RegexTree> parse_regex(std::string_view pattern, RegexDialect dialect) {
  return Parser(pattern, dialect).parse();
}

}  // namespace pelton::grammar
