#include "jinja/parser.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "jinja/filters.h"
#include "jinja/lexer.h"

namespace pelton::jinja {
namespace {

using Kind = Expression::Kind;
using Parsed = Result<ExpressionPtr>;
using Names = std::initializer_list<std::string_view>;

bool one_of(std::string_view word, Names names) {
  return std::find(names.begin(), names.end(), word) != names.end();
}

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Result<Body> run() {
    Body body;
    TRY(read_body({}, body));
    return body;
  }

 private:
  // Tokens.
  const Token& now() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is(Token::Kind kind, std::string_view text) const {
    return now().kind == kind && now().text == text;
  }
  bool is_operator(std::string_view text) const { return is(Token::Kind::kOperator, text); }
  bool is_name(std::string_view text) const { return is(Token::Kind::kName, text); }
  bool take_operator(std::string_view text) { return is_operator(text) && (take(), true); }
  bool take_name(std::string_view text) { return is_name(text) && (take(), true); }
  Error bad(std::string_view message) const { return at_line(now().line, message); }

  std::string found() const {
    switch (now().kind) {
      case Token::Kind::kEnd:
        return "the end of the template";
      case Token::Kind::kText:
        return "text";
      case Token::Kind::kPrintBegin:
      case Token::Kind::kBlockBegin:
        return "the beginning of a tag";
      case Token::Kind::kPrintEnd:
      case Token::Kind::kBlockEnd:
        return "the end of the tag";
      default:
        return "'" + now().text + "'";
    }
  }
  Result<void> expect_operator(std::string_view text) {
    if (take_operator(text)) return {};
    return bad(fmt::format("expected '{}', not {}", text, found()));
  }
  Result<void> expect_name(std::string_view text) {
    if (take_name(text)) return {};
    return bad(fmt::format("expected '{}', not {}", text, found()));
  }
  Result<std::string> expect_any_name() {
    if (now().kind != Token::Kind::kName) {
      return bad(fmt::format("expected a name, not {}", found()));
    }
    return take().text;
  }
  Result<void> expect_block_end() {
    if (now().kind != Token::Kind::kBlockEnd) {
      return bad(fmt::format("expected the end of the tag, not {}", found()));
    }
    take();
    return {};
  }

  // Statements.
  Result<void> read_body(Names ends, Body& body);
  Result<Statement> read_block();
  Result<Statement> read_if(int line);
  Result<Statement> read_for(int line);
  Result<Statement> read_set(int line);
  Result<Statement> read_macro(int line);
  Result<Statement> read_call_block(int line);
  Result<Statement> read_filter_block(int line);
  Result<Statement> read_with(int line);
  Result<void> read_parameters(std::vector<Parameter>& parameters);
  Result<void> read_targets(bool attributes, std::vector<Target>& targets);
  // The body up to {% end %}, and that tag.
  Result<void> read_whole_body(std::string_view end, Body& body) {
    TRY(expect_block_end());
    TRY(read_body({end}, body));
    take();
    return expect_block_end();
  }

  // Expressions, from the loosest operators to the tightest.
  Parsed read_expression();
  Parsed read_tuple();
  Parsed read_or();
  Parsed read_and();
  Parsed read_not();
  Parsed read_compare();
  Parsed read_sum();
  Parsed read_concatenation();
  Parsed read_product();
  Parsed read_power();
  Parsed read_unary(bool with_filters);
  Parsed read_primary();
  Parsed read_literal();
  Parsed read_parenthesis();
  Parsed read_list();
  Parsed read_dict();
  Parsed read_postfix(ExpressionPtr value);
  Parsed read_subscript(ExpressionPtr value);
  Parsed read_call(ExpressionPtr callee);
  Parsed read_filters(ExpressionPtr value);
  Parsed read_filter(ExpressionPtr value);
  Parsed read_test(ExpressionPtr value);
  Result<void> read_arguments(Expression& call);

  ExpressionPtr make(Kind kind, std::string name = {}) const {
    auto made = std::make_unique<Expression>();
    made->kind = kind;
    made->line = now().line;
    made->name = std::move(name);
    return made;
  }
  // Behind everything that has got parts.
  Parsed checked(ExpressionPtr made) const {
    for (const ExpressionPtr& part : made->parts) {
      if (part) made->height = std::max(made->height, part->height + 1);
    }
    for (const NamedArgument& argument : made->named) {
      made->height = std::max(made->height, argument.value->height + 1);
    }
    if (made->height > kTreeDepthMax) return at_line(made->line, "an expression nests too deeply");
    return made;
  }
  Parsed binary(Kind kind, std::string name, ExpressionPtr left, ExpressionPtr right) const {
    ExpressionPtr made = make(kind, std::move(name));
    made->line = left->line;
    made->parts.push_back(std::move(left));
    made->parts.push_back(std::move(right));
    return checked(std::move(made));
  }
  Parsed unary(Kind kind, ExpressionPtr part) const {
    ExpressionPtr made = make(kind);
    made->parts.push_back(std::move(part));
    return checked(std::move(made));
  }

  // How deep this parser recurses.
  class Nesting {
   public:
    explicit Nesting(int& depth) : depth_(depth) { ++depth_; }
    ~Nesting() { --depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    int& depth_;
  };
  bool too_deep() const { return depth_ > kTreeDepthMax; }

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

// Up to a block tag of one of these names, which is not taken but for its beginning.
Result<void> Parser::read_body(Names ends, Body& body) {
  const Nesting nesting(depth_);
  if (too_deep()) return bad("blocks nest too deeply");
  const int line = tokens_[at_ > 0 ? at_ - 1 : 0].line;  // of the tag before
  while (now().kind != Token::Kind::kEnd) {
    const int begin = now().line;
    Token token = take();
    if (token.kind == Token::Kind::kText) {
      body.push_back(
          {.kind = Statement::Kind::kText, .line = begin, .text = std::move(token.text)});
    } else if (token.kind == Token::Kind::kPrintBegin) {
      TRY_ASSIGN(ExpressionPtr value, read_tuple());
      if (now().kind != Token::Kind::kPrintEnd) {
        return bad(fmt::format("expected '}}}}', not {}", found()));
      }
      take();
      body.push_back({.kind = Statement::Kind::kPrint, .line = begin, .value = std::move(value)});
    } else {
      if (now().kind == Token::Kind::kName && one_of(now().text, ends)) return {};
      TRY_ASSIGN(Statement statement, read_block());
      body.push_back(std::move(statement));
    }
  }
  if (ends.size() == 0) return {};
  return at_line(line,
                 fmt::format("the block has no end: {{% {} %}} is missing", *(ends.end() - 1)));
}

Result<Statement> Parser::read_block() {
  const int line = now().line;
  TRY_ASSIGN(const std::string name, expect_any_name());
  if (name == "if") return read_if(line);
  if (name == "for") return read_for(line);
  if (name == "set") return read_set(line);
  if (name == "macro") return read_macro(line);
  if (name == "call") return read_call_block(line);
  if (name == "filter") return read_filter_block(line);
  if (name == "with") return read_with(line);
  if (name == "generation") {
    Statement statement{.kind = Statement::Kind::kBody, .line = line};
    TRY(read_whole_body("endgeneration", statement.body));
    return statement;
  }
  if (name == "break" || name == "continue") {
    TRY(expect_block_end());
    return Statement{.kind = name == "break" ? Statement::Kind::kBreak : Statement::Kind::kContinue,
                     .line = line};
  }
  if (one_of(name,
             {"include", "import", "from", "extends", "block", "do", "autoescape", "trans"})) {
    return at_line(line,
                   fmt::format("{{% {} %}} is not supported here: a chat template is one file "
                               "of expressions, if, for, set, macro, call, filter and with",
                               name));
  }
  return at_line(line, fmt::format("unknown tag '{}'", name));
}

Result<Statement> Parser::read_if(int line) {
  Statement statement{.kind = Statement::Kind::kIf, .line = line};
  while (true) {
    Branch& branch = statement.branches.emplace_back();
    TRY_ASSIGN(branch.condition, read_tuple());
    TRY(expect_block_end());
    TRY(read_body({"elif", "else", "endif"}, branch.body));
    if (take_name("elif")) continue;
    if (take_name("else")) {
      TRY(expect_block_end());
      TRY(read_body({"endif"}, statement.otherwise));
    }
    take();
    TRY(expect_block_end());
    return statement;
  }
}

Result<Statement> Parser::read_for(int line) {
  Statement statement{.kind = Statement::Kind::kFor, .line = line};
  TRY(read_targets(false, statement.targets));
  TRY(expect_name("in"));
  // Without "a if b": the if belongs to the loop.
  TRY_ASSIGN(statement.value, read_or());
  if (is_operator(",")) {
    ExpressionPtr tuple = make(Kind::kTuple);
    tuple->parts.push_back(std::move(statement.value));
    while (take_operator(",")) {
      TRY_ASSIGN(ExpressionPtr part, read_or());
      tuple->parts.push_back(std::move(part));
    }
    TRY_ASSIGN(statement.value, checked(std::move(tuple)));
  }
  if (take_name("if")) {
    TRY_ASSIGN(statement.condition, read_expression());
  }
  take_name("recursive");  // loop() itself is refused where it is called
  TRY(expect_block_end());
  TRY(read_body({"else", "endfor"}, statement.body));
  if (take_name("else")) {
    TRY(expect_block_end());
    TRY(read_body({"endfor"}, statement.otherwise));
  }
  take();
  TRY(expect_block_end());
  return statement;
}

Result<void> Parser::read_targets(bool attributes, std::vector<Target>& targets) {
  const bool in_parenthesis = take_operator("(");
  do {
    if (!targets.empty() && now().kind != Token::Kind::kName) break;  // "a, = b"
    TRY_ASSIGN(std::string name, expect_any_name());
    if (one_of(name, {"true", "false", "none", "True", "False", "None"})) {
      return bad(fmt::format("'{}' cannot be assigned to", name));
    }
    Target& target = targets.emplace_back(Target{std::move(name)});
    if (attributes && take_operator(".")) {
      TRY_ASSIGN(target.attribute, expect_any_name());
    }
  } while (take_operator(","));
  if (in_parenthesis) TRY(expect_operator(")"));
  return {};
}

Result<Statement> Parser::read_set(int line) {
  Statement statement{.kind = Statement::Kind::kSet, .line = line};
  TRY(read_targets(true, statement.targets));
  if (take_operator("=")) {
    TRY_ASSIGN(statement.value, read_tuple());
    TRY(expect_block_end());
    return statement;
  }
  statement.kind = Statement::Kind::kSetBlock;
  if (statement.targets.size() != 1) return bad("a block is assigned to one name");
  while (take_operator("|")) {
    TRY_ASSIGN(statement.value, read_filter(std::move(statement.value)));
  }
  TRY(read_whole_body("endset", statement.body));
  return statement;
}

Result<void> Parser::read_parameters(std::vector<Parameter>& parameters) {
  TRY(expect_operator("("));
  while (!is_operator(")")) {
    if (!parameters.empty()) {
      TRY(expect_operator(","));
      if (is_operator(")")) break;
    }
    TRY_ASSIGN(std::string name, expect_any_name());
    Parameter& parameter = parameters.emplace_back(Parameter{std::move(name)});
    if (!take_operator("=")) continue;
    TRY_ASSIGN(parameter.value, read_expression());
  }
  take();
  return {};
}

Result<Statement> Parser::read_macro(int line) {
  Statement statement{.kind = Statement::Kind::kMacro, .line = line};
  TRY_ASSIGN(statement.text, expect_any_name());
  TRY(read_parameters(statement.parameters));
  TRY(read_whole_body("endmacro", statement.body));
  return statement;
}

Result<Statement> Parser::read_call_block(int line) {
  Statement statement{.kind = Statement::Kind::kCallBlock, .line = line};
  if (is_operator("(")) TRY(read_parameters(statement.parameters));
  TRY_ASSIGN(statement.value, read_expression());
  if (statement.value->kind != Kind::kCall) return bad("expected a call of a macro");
  TRY(read_whole_body("endcall", statement.body));
  return statement;
}

Result<Statement> Parser::read_filter_block(int line) {
  Statement statement{.kind = Statement::Kind::kFilterBlock, .line = line};
  do {
    TRY_ASSIGN(statement.value, read_filter(std::move(statement.value)));
  } while (take_operator("|"));
  TRY(read_whole_body("endfilter", statement.body));
  return statement;
}

Result<Statement> Parser::read_with(int line) {
  Statement statement{.kind = Statement::Kind::kWith, .line = line};
  while (now().kind != Token::Kind::kBlockEnd) {
    if (!statement.parameters.empty()) TRY(expect_operator(","));
    TRY_ASSIGN(std::string name, expect_any_name());
    TRY(expect_operator("="));
    TRY_ASSIGN(ExpressionPtr value, read_expression());
    statement.parameters.push_back({std::move(name), std::move(value)});
  }
  TRY(read_whole_body("endwith", statement.body));
  return statement;
}

Parsed Parser::read_expression() {
  const Nesting nesting(depth_);
  if (too_deep()) return bad("an expression nests too deeply");
  TRY_ASSIGN(ExpressionPtr value, read_or());
  while (take_name("if")) {
    ExpressionPtr made = make(Kind::kConditional);
    made->parts.push_back(std::move(value));
    TRY_ASSIGN(ExpressionPtr condition, read_or());
    made->parts.push_back(std::move(condition));
    made->parts.push_back(nullptr);
    if (take_name("else")) {
      TRY_ASSIGN(made->parts[2], read_expression());
    }
    TRY_ASSIGN(value, checked(std::move(made)));
  }
  return value;
}

// "a, b" is a tuple, also without parentheses.
Parsed Parser::read_tuple() {
  TRY_ASSIGN(ExpressionPtr first, read_expression());
  if (!is_operator(",")) return first;
  ExpressionPtr tuple = make(Kind::kTuple);
  tuple->parts.push_back(std::move(first));
  while (take_operator(",")) {
    const bool ends = is_operator(")") || is_operator("=") ||
                      now().kind == Token::Kind::kPrintEnd || now().kind == Token::Kind::kBlockEnd;
    if (ends) break;
    TRY_ASSIGN(ExpressionPtr part, read_expression());
    tuple->parts.push_back(std::move(part));
  }
  return checked(std::move(tuple));
}

Parsed Parser::read_or() {
  TRY_ASSIGN(ExpressionPtr left, read_and());
  while (take_name("or")) {
    TRY_ASSIGN(ExpressionPtr right, read_and());
    TRY_ASSIGN(left, binary(Kind::kOr, {}, std::move(left), std::move(right)));
  }
  return left;
}

Parsed Parser::read_and() {
  TRY_ASSIGN(ExpressionPtr left, read_not());
  while (take_name("and")) {
    TRY_ASSIGN(ExpressionPtr right, read_not());
    TRY_ASSIGN(left, binary(Kind::kAnd, {}, std::move(left), std::move(right)));
  }
  return left;
}

Parsed Parser::read_not() {
  int count = 0;
  while (take_name("not")) ++count;
  TRY_ASSIGN(ExpressionPtr value, read_compare());
  for (; count > 0; --count) {
    TRY_ASSIGN(value, unary(Kind::kNot, std::move(value)));
  }
  return value;
}

Parsed Parser::read_compare() {
  TRY_ASSIGN(ExpressionPtr first, read_sum());
  ExpressionPtr made;
  while (true) {
    std::string word;
    if (now().kind == Token::Kind::kOperator &&
        one_of(now().text, {"==", "!=", "<", "<=", ">", ">="})) {
      word = take().text;
    } else if (take_name("in")) {
      word = "in";
    } else if (is_name("not") && next().kind == Token::Kind::kName && next().text == "in") {
      take();
      take();
      word = "not in";
    } else {
      break;
    }
    if (!made) {
      made = make(Kind::kCompare);
      made->parts.push_back(std::move(first));
    }
    made->operators.push_back(std::move(word));
    TRY_ASSIGN(ExpressionPtr right, read_sum());
    made->parts.push_back(std::move(right));
  }
  if (!made) return first;
  return checked(std::move(made));
}

Parsed Parser::read_sum() {
  TRY_ASSIGN(ExpressionPtr left, read_concatenation());
  while (is_operator("+") || is_operator("-")) {
    std::string word = take().text;
    TRY_ASSIGN(ExpressionPtr right, read_concatenation());
    TRY_ASSIGN(left, binary(Kind::kArithmetic, std::move(word), std::move(left), std::move(right)));
  }
  return left;
}

Parsed Parser::read_concatenation() {
  TRY_ASSIGN(ExpressionPtr first, read_product());
  if (!is_operator("~")) return first;
  ExpressionPtr made = make(Kind::kConcatenate);
  made->parts.push_back(std::move(first));
  while (take_operator("~")) {
    TRY_ASSIGN(ExpressionPtr part, read_product());
    made->parts.push_back(std::move(part));
  }
  return checked(std::move(made));
}

Parsed Parser::read_product() {
  TRY_ASSIGN(ExpressionPtr left, read_power());
  while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
    std::string word = take().text;
    TRY_ASSIGN(ExpressionPtr right, read_power());
    TRY_ASSIGN(left, binary(Kind::kArithmetic, std::move(word), std::move(left), std::move(right)));
  }
  return left;
}

// -2 ** 2 is 4, in Jinja.
Parsed Parser::read_power() {
  TRY_ASSIGN(ExpressionPtr left, read_unary(true));
  while (take_operator("**")) {
    TRY_ASSIGN(ExpressionPtr right, read_unary(true));
    TRY_ASSIGN(left, binary(Kind::kArithmetic, "**", std::move(left), std::move(right)));
  }
  return left;
}

Parsed Parser::read_unary(bool with_filters) {
  const Nesting nesting(depth_);
  if (too_deep()) return bad("an expression nests too deeply");
  ExpressionPtr value;
  if (is_operator("-") || is_operator("+")) {
    const Kind kind = take().text == "-" ? Kind::kNegative : Kind::kPositive;
    TRY_ASSIGN(ExpressionPtr part, read_unary(false));
    TRY_ASSIGN(value, unary(kind, std::move(part)));
  } else {
    TRY_ASSIGN(ExpressionPtr primary, read_primary());
    TRY_ASSIGN(value, read_postfix(std::move(primary)));
  }
  if (!with_filters) return value;
  return read_filters(std::move(value));
}

Parsed Parser::read_primary() {
  if (is_operator("(")) return read_parenthesis();
  if (is_operator("[")) return read_list();
  if (is_operator("{")) return read_dict();
  return read_literal();
}

Parsed Parser::read_literal() {
  const bool is_one = now().kind == Token::Kind::kName || now().kind == Token::Kind::kString ||
                      now().kind == Token::Kind::kInteger || now().kind == Token::Kind::kFloat;
  if (!is_one) return bad(fmt::format("expected an expression, not {}", found()));
  ExpressionPtr made = make(Kind::kConstant);
  const Token token = take();
  const char* const end = token.text.data() + token.text.size();
  if (token.kind == Token::Kind::kString) {
    std::string text = token.text;
    while (now().kind == Token::Kind::kString) text += take().text;
    made->constant = Text(std::move(text));
  } else if (token.kind == Token::Kind::kInteger) {
    int64_t value = 0;
    const auto [stop, failed] = std::from_chars(token.text.data(), end, value);
    if (failed != std::errc() || stop != end) {
      return at_line(token.line, fmt::format("the number {} is too large", token.text));
    }
    made->constant = value;
  } else if (token.kind == Token::Kind::kFloat) {
    double value = 0;
    if (std::from_chars(token.text.data(), end, value).ec != std::errc()) {
      return at_line(token.line, fmt::format("the number {} is too large", token.text));
    }
    made->constant = value;
  } else if (token.text == "true" || token.text == "True") {
    made->constant = true;
  } else if (token.text == "false" || token.text == "False") {
    made->constant = false;
  } else if (token.text == "none" || token.text == "None") {
    made->constant = None{};
  } else {
    made->kind = Kind::kName;
    made->name = token.text;
  }
  return made;
}

Parsed Parser::read_parenthesis() {
  take();
  if (take_operator(")")) return make(Kind::kTuple);
  TRY_ASSIGN(ExpressionPtr value, read_tuple());
  TRY(expect_operator(")"));
  return value;
}

Parsed Parser::read_list() {
  ExpressionPtr made = make(Kind::kList);
  take();
  while (!is_operator("]")) {
    if (!made->parts.empty()) {
      TRY(expect_operator(","));
      if (is_operator("]")) break;
    }
    TRY_ASSIGN(ExpressionPtr part, read_expression());
    made->parts.push_back(std::move(part));
  }
  take();
  return checked(std::move(made));
}

Parsed Parser::read_dict() {
  ExpressionPtr made = make(Kind::kDict);
  take();
  while (!is_operator("}")) {
    if (!made->parts.empty()) {
      TRY(expect_operator(","));
      if (is_operator("}")) break;
    }
    TRY_ASSIGN(ExpressionPtr key, read_expression());
    TRY(expect_operator(":"));
    TRY_ASSIGN(ExpressionPtr value, read_expression());
    made->parts.push_back(std::move(key));
    made->parts.push_back(std::move(value));
  }
  take();
  return checked(std::move(made));
}

Parsed Parser::read_postfix(ExpressionPtr value) {
  while (true) {
    if (take_operator(".")) {
      ExpressionPtr made = make(Kind::kAttribute);
      made->parts.push_back(std::move(value));
      if (now().kind == Token::Kind::kInteger) {
        made->kind = Kind::kItem;
        TRY_ASSIGN(ExpressionPtr index, read_literal());
        made->parts.push_back(std::move(index));
      } else {
        TRY_ASSIGN(made->name, expect_any_name());
      }
      TRY_ASSIGN(value, checked(std::move(made)));
    } else if (is_operator("[")) {
      TRY_ASSIGN(value, read_subscript(std::move(value)));
    } else if (is_operator("(")) {
      TRY_ASSIGN(value, read_call(std::move(value)));
    } else {
      return value;
    }
  }
}

Parsed Parser::read_subscript(ExpressionPtr value) {
  ExpressionPtr made = make(Kind::kItem);
  take();
  made->parts.push_back(std::move(value));
  if (!is_operator(":")) {
    TRY_ASSIGN(ExpressionPtr index, read_expression());
    made->parts.push_back(std::move(index));
  } else {
    made->parts.push_back(nullptr);
  }
  if (is_operator(":")) made->kind = Kind::kSlice;
  while (made->parts.size() < 4 && take_operator(":")) {
    made->parts.push_back(nullptr);
    if (is_operator(":") || is_operator("]")) continue;
    TRY_ASSIGN(made->parts.back(), read_expression());
  }
  if (made->kind == Kind::kSlice) made->parts.resize(4);
  TRY(expect_operator("]"));
  return checked(std::move(made));
}

Parsed Parser::read_call(ExpressionPtr callee) {
  ExpressionPtr made = make(Kind::kCall);
  made->parts.push_back(std::move(callee));
  TRY(read_arguments(*made));
  return checked(std::move(made));
}

Parsed Parser::read_filters(ExpressionPtr value) {
  while (true) {
    if (take_operator("|")) {
      TRY_ASSIGN(value, read_filter(std::move(value)));
    } else if (take_name("is")) {
      TRY_ASSIGN(value, read_test(std::move(value)));
    } else if (is_operator("(")) {
      TRY_ASSIGN(value, read_call(std::move(value)));
    } else {
      return value;
    }
  }
}

// Behind the bar. `value` may be null: what a block prints.
Parsed Parser::read_filter(ExpressionPtr value) {
  ExpressionPtr made = make(Kind::kFilter);
  TRY_ASSIGN(made->name, expect_any_name());
  if (find_filter(made->name) == nullptr) {
    return at_line(made->line, fmt::format("no filter named '{}'", made->name));
  }
  made->parts.push_back(std::move(value));
  if (is_operator("(")) TRY(read_arguments(*made));
  return checked(std::move(made));
}

// Behind "is". The argument of a test needs no parentheses: "x is divisibleby 3".
Parsed Parser::read_test(ExpressionPtr value) {
  ExpressionPtr made = make(Kind::kTest);
  made->negated = take_name("not");
  TRY_ASSIGN(made->name, expect_any_name());
  if (find_test(made->name) == nullptr) {
    return at_line(made->line, fmt::format("no test named '{}'", made->name));
  }
  made->parts.push_back(std::move(value));
  const bool begins_value =
      now().kind == Token::Kind::kString || now().kind == Token::Kind::kInteger ||
      now().kind == Token::Kind::kFloat || is_operator("[") || is_operator("{");
  const bool is_word =
      now().kind == Token::Kind::kName &&
      !one_of(now().text, {"else", "or", "and", "if", "is", "in", "not", "recursive"});
  if (is_operator("(")) {
    TRY(read_arguments(*made));
  } else if (begins_value || is_word) {
    TRY_ASSIGN(ExpressionPtr primary, read_primary());
    TRY_ASSIGN(ExpressionPtr argument, read_postfix(std::move(primary)));
    made->parts.push_back(std::move(argument));
  }
  return checked(std::move(made));
}

Result<void> Parser::read_arguments(Expression& call) {
  take();
  bool first = true;
  while (!is_operator(")")) {
    if (!first) {
      TRY(expect_operator(","));
      if (is_operator(")")) break;
    }
    first = false;
    if (is_operator("*") || is_operator("**")) return bad("'*' arguments are not supported here");
    const bool is_named = now().kind == Token::Kind::kName &&
                          next().kind == Token::Kind::kOperator && next().text == "=";
    if (is_named) {
      std::string name = take().text;
      take();
      TRY_ASSIGN(ExpressionPtr value, read_expression());
      call.named.push_back({std::move(name), std::move(value)});
    } else {
      TRY_ASSIGN(ExpressionPtr value, read_expression());
      if (!call.named.empty()) return bad("an argument without a name behind one with a name");
      call.parts.push_back(std::move(value));
    }
  }
  take();
  return {};
}

}  // namespace

Result<Body> parse(std::string_view source) {
  TRY_ASSIGN(std::vector<Token> tokens, tokenize(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace pelton::jinja
