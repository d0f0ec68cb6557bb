// Lark's EBNF, as users of llguidance and vLLM write it: rules (lower case) and terminals (upper
// case), name: alternatives; "text"i, /regex/, "a".."z", (group), [maybe], * + ? ~n..m {n,m},
// %ignore, %import common.X, // comment. The rule `start` is the grammar. Read as a context-free
// grammar over characters: no lexer chooses the longest terminal, and what %ignore names may stand
// before every terminal outside of terminals.
#include <array>

#include <fmt/format.h>

#include "base/utf8.h"
#include "grammar/ebnf_syntax.h"
#include "grammar/regex.h"

namespace pelton::grammar {
namespace {

using Kind = EbnfNode::Kind;

struct CommonTerminal {
  std::string_view name, regex;
};

// Lark's grammars/common.lark, as expressions.
constexpr CommonTerminal kCommon[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[a-fA-F0-9]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+\\-]?[0-9]+"},
    {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
    {"FLOAT", "[0-9]+[eE][+\\-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+\\-]?[0-9]+)?"},
    {"SIGNED_FLOAT",
     "[+\\-]?(?:[0-9]+[eE][+\\-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+\\-]?[0-9]+)?)"},
    {"NUMBER", "(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[eE][+\\-]?[0-9]+)?"},
    {"SIGNED_NUMBER", "[+\\-]?(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[eE][+\\-]?[0-9]+)?"},
    {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[a-zA-Z]"},
    {"WORD", "[a-zA-Z]+"},
    {"CNAME", "[a-zA-Z_][a-zA-Z0-9_]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(?:\\r?\\n)+"},
};

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_name_character(char c) {
  return is_name_start(c) || (c >= '0' && c <= '9');
}

// Terminals have a name in upper case.
bool is_terminal_name(std::string_view name) {
  for (const char c : name) {
    if (c != '_') return c >= 'A' && c <= 'Z';
  }
  return false;
}

class LarkParser : public EbnfText {
 public:
  LarkParser(std::string_view text, const CompileDeadline* deadline)
      : EbnfText(text), deadline_(deadline) {}

  Result<EbnfTree> parse() {
    TRY(check_text());
    skip();
    while (!done()) {
      TRY(statement());
      skip();
    }
    TRY(check_text());  // the number of rules
    const auto start = tree_.rule_numbers.find("start");
    if (start == tree_.rule_numbers.end() || tree_.rules[start->second].body == kNoBody) {
      return Error{ErrorCode::kInvalidArgument, "the grammar has no rule 'start'", ""};
    }
    tree_.start = start->second;
    if (!ignored_.empty()) ignore_between_terminals();
    return std::move(tree_);
  }

 private:
  // Blanks, line ends and comments.
  void skip() {
    while (!done()) {
      if (peek() == ' ' || peek() == '\t' || peek() == '\r' || peek() == '\n') {
        ++at_;
      } else if (peek() == '#' || (peek() == '/' && peek(1) == '/')) {
        while (!done() && peek() != '\n') ++at_;
      } else {
        return;
      }
    }
  }
  void skip_blanks() {
    while (peek() == ' ' || peek() == '\t') ++at_;
  }

  std::string name() {
    const size_t began = at_;
    if (is_name_start(peek())) {
      while (is_name_character(peek())) ++at_;
    }
    return tree_.source.substr(began, at_ - began);
  }

  // Whether a new statement begins here: name [.priority] : or a directive.
  bool at_statement() const {
    const std::string& text = tree_.source;
    size_t at = at_;
    if (at < text.size() && text[at] == '%') return true;
    while (at < text.size() && (text[at] == '?' || text[at] == '!')) ++at;
    if (at >= text.size() || !is_name_start(text[at])) return false;
    while (at < text.size() && is_name_character(text[at])) ++at;
    const auto blanks = [&] {
      while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) ++at;
    };
    blanks();
    if (at < text.size() && (text[at] == '{' || text[at] == '[')) return false;
    if (at + 1 < text.size() && text[at] == '.' && text[at + 1] >= '0' && text[at + 1] <= '9') {
      ++at;
      while (at < text.size() && text[at] >= '0' && text[at] <= '9') ++at;
      blanks();
    }
    return at < text.size() && text[at] == ':';
  }

  Result<void> statement() {
    if (peek() == '%') return directive();
    const uint32_t began = here();
    while (peek() == '?' || peek() == '!') ++at_;
    const std::string rule_name = name();
    if (rule_name.empty()) return invalid("a rule's name should stand here");
    skip_blanks();
    if (take(".")) {
      if (!take_number()) return invalid("a priority is a number");
      skip_blanks();
    }
    if (peek() == '{' || peek() == '[') return unsupported("rules with parameters or attributes");
    if (!take(":")) return invalid("a : should stand here");
    in_terminal_ = is_terminal_name(rule_name);
    TRY_ASSIGN(const uint32_t body, alternatives(0));
    return define(rule_name, body, began);
  }

  Result<void> define(const std::string& rule_name, uint32_t body, uint32_t at) {
    EbnfRule& rule = tree_.rules[tree_.rule_number(rule_name, at)];
    if (rule.body != kNoBody) {
      return tree_.error(ErrorCode::kInvalidArgument, at,
                         fmt::format("'{:.60}' is defined twice", rule_name));
    }
    rule.body = body;
    rule.at = at;
    rule.terminal = is_terminal_name(rule_name);
    return {};
  }

  Result<void> directive() {
    const uint32_t began = here();
    ++at_;
    const std::string what = name();
    skip_blanks();
    if (what == "ignore") {
      in_terminal_ = true;
      TRY_ASSIGN(const uint32_t body, alternatives(0));
      ignored_.push_back(body);
      return {};
    }
    if (what == "import") return import();
    at_ = began;
    return unsupported(fmt::format("the directive %{:.40}", what));
  }

  Result<void> import() {
    if (name() != "common") return unsupported("imports from elsewhere than common");
    skip_blanks();
    if (take(".")) {
      const uint32_t began = here();
      const std::string terminal = name();
      skip_blanks();
      std::string as = terminal;
      if (take("->")) {
        skip_blanks();
        as = name();
      }
      return import_one(terminal, as, began);
    }
    if (!take("(")) return invalid("%import common.NAME or common (NAME, ...)");
    do {
      skip();
      const uint32_t began = here();
      const std::string terminal = name();
      TRY(import_one(terminal, terminal, began));
      skip();
    } while (take(","));
    if (!take(")")) return invalid("a ) should stand here");
    return {};
  }

  Result<void> import_one(std::string_view terminal, const std::string& as, uint32_t at) {
    for (const CommonTerminal& known : kCommon) {
      if (known.name != terminal) continue;
      TRY_ASSIGN(const uint32_t body, regex_node(known.regex, at));
      return define(as, body, at);
    }
    return tree_.error(ErrorCode::kInvalidArgument, at,
                       fmt::format("common has no terminal '{:.60}'", terminal));
  }

  Result<uint32_t> alternatives(int depth) {
    if (depth > kDepthMax) {
      return tree_.error(ErrorCode::kDoesNotFit, at_,
                         fmt::format("groups nested deeper than {}", kDepthMax));
    }
    const uint32_t began = here();
    std::vector<uint32_t> branches;
    do {
      TRY_ASSIGN(const uint32_t branch, sequence(depth));
      branches.push_back(branch);
    } while (take("|"));
    return tree_.add_parent(Kind::kAlternatives, std::move(branches), began);
  }

  Result<uint32_t> sequence(int depth) {
    const uint32_t began = here();
    std::vector<uint32_t> items;
    skip();
    while (!done() && peek() != '|' && peek() != ')' && peek() != ']' && !at_statement()) {
      if (take("->")) {  // the branch's name in a parse tree
        skip_blanks();
        if (name().empty()) return invalid("-> wants a name");
        skip();
        break;
      }
      TRY_ASSIGN(uint32_t item, atom(depth));
      TRY_ASSIGN(item, repeated(item));
      items.push_back(item);
      skip();
    }
    return tree_.add_parent(Kind::kSequence, std::move(items), began);
  }

  Result<uint32_t> repeated(uint32_t item) {
    for (int times = 0; times <= kRepeatsInARowMax; ++times) {
      skip_blanks();
      const uint32_t began = here();
      if (take("*")) {
        TRY_ASSIGN(item, repeat(item, 0, kUnlimited, began));
      } else if (take("+")) {
        TRY_ASSIGN(item, repeat(item, 1, kUnlimited, began));
      } else if (peek() == '?' && !at_statement()) {
        ++at_;
        TRY_ASSIGN(item, repeat(item, 0, 1, began));
      } else if (peek() == '{') {
        TRY_ASSIGN(EbnfNode node, take_braces(item));
        item = tree_.add(std::move(node));
      } else if (take("~")) {
        TRY_ASSIGN(item, tilde(item, began));
      } else {
        return item;
      }
    }
    return invalid("too many repeats in a row");
  }

  // ~n or ~n..m
  Result<uint32_t> tilde(uint32_t item, uint32_t began) {
    skip_blanks();
    const std::optional<uint32_t> least = take_number();
    std::optional<uint32_t> most = least;
    skip_blanks();
    if (take("..")) {
      skip_blanks();
      most = take_number();
    }
    if (!least || !most || *least > *most || *most > 1'000'000) {
      return tree_.error(ErrorCode::kInvalidArgument, began, "a repeat is ~n or ~n..m");
    }
    return repeat(item, *least, *most, began);
  }

  Result<uint32_t> atom(int depth) {
    const uint32_t began = here();
    switch (peek()) {
      case '(':
      case '[': {
        const bool maybe = peek() == '[';
        ++at_;
        TRY_ASSIGN(const uint32_t inside, alternatives(depth + 1));
        if (!take(maybe ? "]" : ")")) {
          at_ = began;
          return invalid("a group that is not closed");
        }
        if (!maybe) return inside;
        return repeat(inside, 0, 1, began);
      }
      case '"':
        return text_or_range();
      case '/':
        return regex();
      case '<':
        return unsupported("tokens in a grammar");
      case '%':
        return unsupported("a grammar of another kind within this one");
      default:
        break;
    }
    const std::string rule_name = name();
    if (rule_name.empty()) {
      return invalid("a name, a text, an expression or a group should stand here");
    }
    if (in_terminal_ && !is_terminal_name(rule_name)) {
      at_ = began;
      return invalid("a terminal cannot speak of a rule");
    }
    return tree_.add(
        {.kind = Kind::kRule, .index = tree_.rule_number(rule_name, began), .at = began});
  }

  Result<std::string> quoted() {
    const uint32_t began = here();
    std::string text;
    ++at_;
    while (!take("\"")) {
      if (done() || peek() == '\n') {
        at_ = began;
        return invalid("a text that is not closed");
      }
      uint32_t point = 0;
      if (take("\\")) {
        TRY_ASSIGN(point, take_escape());
      } else {
        point = take_code_point();
      }
      base::append_utf8(text, point);
    }
    return text;
  }

  Result<uint32_t> text_or_range() {
    const uint32_t began = here();
    TRY_ASSIGN(std::string text, quoted());
    if (peek() == '.' && peek(1) == '.' && peek(2) == '"') {
      at_ += 2;
      TRY_ASSIGN(const std::string last, quoted());
      return range(text, last, began);
    }
    if (peek() == 'i' && !is_name_character(peek(1))) {
      ++at_;
      return any_case(text, began);
    }
    return terminal(tree_.add({.at = began, .text = std::move(text)}));
  }

  Result<uint32_t> range(const std::string& first, const std::string& last, uint32_t began) {
    const auto single = [](const std::string& text) -> std::optional<uint32_t> {
      if (text.empty()) return std::nullopt;
      const base::Utf8Step step = base::utf8_step(text);
      if (step.bytes != text.size()) return std::nullopt;
      return step.code_point;
    };
    if (!single(first) || !single(last) || *single(first) > *single(last)) {
      return tree_.error(ErrorCode::kInvalidArgument, began,
                         "a range goes from one character to a later one");
    }
    tree_.sets.push_back(CodePointSet{{*single(first), *single(last)}});
    return terminal(tree_.add({.kind = Kind::kSet, .index = last_set(), .at = began}));
  }

  Result<uint32_t> any_case(const std::string& text, uint32_t began) {
    std::vector<uint32_t> parts;
    for (const char c : text) {
      const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      if (static_cast<unsigned char>(c) >= 0x80) {
        return tree_.error(ErrorCode::kUnsupported, began, "a text past ASCII in any case");
      }
      CodePointSet set;
      set.add({static_cast<uint32_t>(c), static_cast<uint32_t>(c)});
      if (letter) set.add({static_cast<uint32_t>(c ^ 32), static_cast<uint32_t>(c ^ 32)});
      tree_.sets.push_back(std::move(set));
      parts.push_back(tree_.add({.kind = Kind::kSet, .index = last_set(), .at = began}));
    }
    return terminal(tree_.add_parent(Kind::kSequence, std::move(parts), began));
  }

  Result<uint32_t> regex() {
    const uint32_t began = here();
    std::string pattern;
    for (++at_; peek() != '/'; ++at_) {
      if (done() || peek() == '\n') {
        at_ = began;
        return invalid("an expression that is not closed");
      }
      if (peek() == '\\') {
        pattern += peek();
        ++at_;
        if (done()) continue;
      }
      pattern += peek();
    }
    ++at_;
    while (peek() == 'u') ++at_;
    if (is_name_character(peek())) return unsupported("an expression's flags, other than u");
    TRY_ASSIGN(const uint32_t node, regex_node(pattern, began));
    return terminal(node);
  }

  Result<uint32_t> regex_node(std::string_view pattern, uint32_t at) {
    Result<ByteDfa> dfa = compile_regex(pattern, {.match = RegexOptions::Match::kWhole,
                                                  .dialect = RegexDialect::kEngines,
                                                  .limits = {.deadline = deadline_}});
    if (!dfa.ok()) return tree_.error(dfa.error().code, at, dfa.error().message);
    automata_bytes_ += dfa->bytes_held();
    if (automata_bytes_ > kAutomataBytesMax) {
      return tree_.error(
          ErrorCode::kDoesNotFit, at,
          fmt::format("the grammar's expressions come to automata of more than {} MB",
                      kAutomataBytesMax >> 20));
    }
    tree_.dfas.push_back(std::move(dfa).value());
    return tree_.add(
        {.kind = Kind::kDfa, .index = static_cast<uint32_t>(tree_.dfas.size() - 1), .at = at});
  }

  uint32_t last_set() const { return static_cast<uint32_t>(tree_.sets.size() - 1); }

  // A terminal written in place, remembered for what may be ignored before it.
  uint32_t terminal(uint32_t node) {
    if (!in_terminal_) written_terminals_.push_back(node);
    return node;
  }

  // Every terminal outside of terminals becomes a sequence: what is ignored, then itself. With
  // %ignore " ", start: A B becomes " "* A " "* B " "*, and within A: "x" "y" nothing is ignored.
  void ignore_between_terminals() {
    const uint32_t any = tree_.add_parent(Kind::kAlternatives, ignored_, 0);
    const uint32_t ignored =
        tree_.add({.kind = Kind::kRepeat, .most = kUnlimited, .children = {any}});
    const auto prefix = [&](uint32_t node) {
      const uint32_t itself = tree_.add(tree_.nodes[node]);
      EbnfNode& around = tree_.nodes[node];
      around = {.kind = Kind::kSequence, .at = around.at, .children = {ignored, itself}};
    };
    for (const uint32_t node : written_terminals_) prefix(node);
    // Where a rule speaks of a terminal by name. Those within terminals are left as they are.
    std::vector<uint32_t> todo;
    std::vector<uint8_t> seen(tree_.nodes.size(), 0);
    for (const EbnfRule& rule : tree_.rules) {
      if (!rule.terminal && rule.body != kNoBody) todo.push_back(rule.body);
    }
    const uint32_t written = static_cast<uint32_t>(tree_.nodes.size());
    while (!todo.empty()) {
      const uint32_t node = todo.back();
      todo.pop_back();
      if (node >= written || seen[node] != 0 || node == ignored) continue;
      seen[node] = 1;
      if (tree_.nodes[node].kind == Kind::kRule) {
        if (is_terminal_name(tree_.rules[tree_.nodes[node].index].name)) prefix(node);
        continue;
      }
      const std::vector<uint32_t>& children = tree_.nodes[node].children;
      todo.insert(todo.end(), children.begin(), children.end());
    }
    EbnfRule& start = tree_.rules[tree_.start];
    // The start may be called by others, within which nothing more is ignored at its end.
    const uint32_t inside = tree_.rule_number("start with what is ignored after it", start.at);
    tree_.rules[inside].body = tree_.add({.kind = Kind::kSequence,
                                          .at = tree_.rules[tree_.start].at,
                                          .children = {tree_.rules[tree_.start].body, ignored}});
    tree_.start = inside;
  }

  static constexpr size_t kAutomataBytesMax = 16 << 20;

  const CompileDeadline* const deadline_;
  bool in_terminal_ = false;
  size_t automata_bytes_ = 0;
  std::vector<uint32_t> ignored_;
  std::vector<uint32_t> written_terminals_;
};

}  // namespace

Result<EbnfTree> parse_lark(std::string_view text, const CompileDeadline* deadline) {
  return LarkParser(text, deadline).parse();
}

}  // namespace pelton::grammar
