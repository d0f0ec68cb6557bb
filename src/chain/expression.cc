#include "chain/expression.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "chain/scanner.h"
#include "cli/command_line.h"

namespace pelton::chain {
namespace {

constexpr size_t kJsonTextMax = size_t{32} << 20;

using Kind = Expression::Kind;
using PartKind = Expression::Part::Kind;

Error bad(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), {}};
}

struct Function {
  std::string_view name;
  size_t operands;
};
constexpr Function kFunctions[] = {
    {"length", 1}, {"contains", 2}, {"starts_with", 2}, {"text", 1}, {"json", 1}};

const Function* find_function(std::string_view name) {
  for (const Function& function : kFunctions) {
    if (function.name == name) return &function;
  }
  return nullptr;
}

constexpr std::pair<std::string_view, Kind> kComparisons[] = {
    {"==", Kind::kEqual},        {"!=", Kind::kNotEqual}, {"<=", Kind::kLessEqual},
    {">=", Kind::kGreaterEqual}, {"<", Kind::kLess},      {">", Kind::kGreater}};

// Recursive descent: or, and, not, comparison, default, primary.
class Parser {
 public:
  explicit Parser(std::string_view text) : scanner_(text) {}

  Result<Expression> whole() {
    TRY_ASSIGN(Expression expression, alternatives(0));
    if (!scanner_.at_end()) return unexpected("the end");
    return expression;
  }

 private:
  static constexpr int kDepthMax = 32;

  Error unexpected(std::string_view wanted) {
    return bad(fmt::format("expected {} at {}", wanted, scanner_.here()));
  }

  Result<Expression> alternatives(int depth) {
    TRY_ASSIGN(Expression left, conjunction(depth));
    while (scanner_.take_word("or")) {
      TRY_ASSIGN(Expression right, conjunction(depth));
      left = pair(Kind::kOr, std::move(left), std::move(right));
    }
    return left;
  }

  Result<Expression> conjunction(int depth) {
    TRY_ASSIGN(Expression left, negation(depth));
    while (scanner_.take_word("and")) {
      TRY_ASSIGN(Expression right, negation(depth));
      left = pair(Kind::kAnd, std::move(left), std::move(right));
    }
    return left;
  }

  Result<Expression> negation(int depth) {
    if (!scanner_.take_word("not")) return comparison(depth);
    if (depth == kDepthMax) return bad("is nested too deeply");
    TRY_ASSIGN(Expression operand, negation(depth + 1));
    Expression negated;
    negated.kind = Kind::kNot;
    negated.operands.push_back(std::move(operand));
    return negated;
  }

  Result<Expression> comparison(int depth) {
    TRY_ASSIGN(Expression left, with_default(depth));
    for (const auto& [sign, kind] : kComparisons) {
      if (!scanner_.take(sign)) continue;
      TRY_ASSIGN(Expression right, with_default(depth));
      return pair(kind, std::move(left), std::move(right));
    }
    return left;
  }

  Result<Expression> with_default(int depth) {
    TRY_ASSIGN(Expression left, primary(depth));
    while (scanner_.take("?\?")) {
      TRY_ASSIGN(Expression right, primary(depth));
      left = pair(Kind::kDefault, std::move(left), std::move(right));
    }
    return left;
  }

  Result<Expression> primary(int depth) {
    if (depth == kDepthMax) return bad("is nested too deeply");
    if (scanner_.take("(")) {
      TRY_ASSIGN(Expression inner, alternatives(depth + 1));
      if (!scanner_.take(")")) return unexpected("')'");
      return inner;
    }
    TRY_ASSIGN(std::optional<Json> literal, scanner_.take_literal());
    if (literal) {
      Expression expression;
      expression.value = *std::move(literal);
      return expression;
    }
    Expression path;
    path.name = scanner_.take_name();
    if (path.name.empty()) return unexpected("a name, a number or a text in single quotes");
    if (scanner_.take("(")) return call(std::move(path), depth);
    path.kind = Kind::kPath;
    TRY(parts(path));
    return path;
  }

  Result<Expression> call(Expression call, int depth) {
    call.kind = Kind::kCall;
    const Function* const function = find_function(call.name);
    if (function == nullptr) {
      std::vector<std::string> names;
      for (const Function& one : kFunctions) names.emplace_back(one.name);
      const std::optional<std::string> near = cli::nearest(call.name, names);
      return bad(fmt::format("there is no function '{}'{}", call.name,
                             near ? fmt::format("; did you mean '{}'?", *near) : ""));
    }
    for (size_t i = 0; i < function->operands; ++i) {
      if (i > 0 && !scanner_.take(",")) return unexpected("','");
      TRY_ASSIGN(Expression operand, alternatives(depth + 1));
      call.operands.push_back(std::move(operand));
    }
    if (!scanner_.take(")")) return unexpected("')'");
    return call;
  }

  Result<void> parts(Expression& path) {
    constexpr size_t kPartsMax = 32;
    while (path.parts.size() < kPartsMax) {
      Expression::Part part;
      if (scanner_.take_adjacent(".")) {
        part.field = scanner_.take_name();
        if (part.field.empty()) return unexpected("a field's name");
      } else if (scanner_.take_adjacent("[")) {
        if (scanner_.take("*")) {
          part.kind = PartKind::kEach;
        } else {
          part.kind = PartKind::kIndex;
          TRY_ASSIGN(const std::optional<Json> index, scanner_.take_literal());
          if (!index || !index->is_integer()) return unexpected("a whole number or '*'");
          part.index = index->as_integer();
        }
        if (!scanner_.take("]")) return unexpected("']'");
      } else {
        return {};
      }
      path.parts.push_back(std::move(part));
    }
    return bad("has too many parts");
  }

  static Expression pair(Kind kind, Expression left, Expression right) {
    Expression both;
    both.kind = kind;
    both.operands.push_back(std::move(left));
    both.operands.push_back(std::move(right));
    return both;
  }

  Scanner scanner_;
};

// --- types ---

Result<Type> type_of_parts(Type type, const std::vector<Expression::Part>& parts, size_t at,
                           std::string so_far) {
  if (at == parts.size()) return type;
  const Expression::Part& part = parts[at];
  const bool optional = type.optional;
  const auto maybe = [&](Type found) { return optional ? found.or_null() : found; };
  if (part.kind == PartKind::kField) {
    so_far += "." + part.field;
    if (type.kind == Type::Kind::kAny ||
        (type.kind == Type::Kind::kObject && type.fields.empty())) {
      return Type();
    }
    if (type.kind != Type::Kind::kObject) {
      return bad(fmt::format("'{}': the value before it is {}, which has no fields", so_far,
                             type_text(type)));
    }
    const Type* const field = type.find(part.field);
    if (field == nullptr) {
      const std::optional<std::string> near = cli::nearest(part.field, type.field_names());
      return bad(fmt::format("there is no '{}'; {}{}", so_far, type_text(type),
                             near ? fmt::format("; did you mean '{}'?", *near) : ""));
    }
    return type_of_parts(maybe(*field), parts, at + 1, std::move(so_far));
  }
  so_far += part.kind == PartKind::kEach ? "[*]" : fmt::format("[{}]", part.index);
  if (type.kind == Type::Kind::kAny) return Type();
  if (type.kind != Type::Kind::kList) {
    return bad(fmt::format("'{}': the value before it is {}, no list", so_far, type_text(type)));
  }
  const bool each = part.kind == PartKind::kEach;
  TRY_ASSIGN(Type rest, type_of_parts(each ? *type.item : maybe(*type.item), parts, at + 1,
                                      std::move(so_far)));
  return each ? maybe(Type::list(std::move(rest))) : rest;
}

Result<void> expect(const Type& wanted, const Type& given, std::string_view what) {
  if (accepts(wanted, given)) return {};
  return bad(fmt::format("{} must be {}, and is {}", what, type_text(wanted), type_text(given)));
}

Result<Type> type_of_call(const Expression& call, const std::vector<Type>& operands) {
  const Type text = Type::of(Type::Kind::kText);
  if (call.name == "length") {
    const Type::Kind kind = operands[0].kind;
    const bool fits =
        kind == Type::Kind::kAny || kind == Type::Kind::kText || kind == Type::Kind::kList;
    if (!fits) return bad("length() is of a text or a list, not of " + type_text(operands[0]));
    return Type::of(Type::Kind::kInteger);
  }
  if (call.name == "text" || call.name == "json") return text;
  for (const Type& operand : operands) {
    TRY(expect(text.or_null(), operand, call.name + "()'s operand"));
  }
  return Type::of(Type::Kind::kBoolean);
}

bool is_numeric(const Type& type) {
  return type.kind == Type::Kind::kNumber || type.kind == Type::Kind::kInteger;
}

// Of a value that is of one or the other.
Type either_of(const Type& left, const Type& right) {
  Type type;
  if (left.kind == Type::Kind::kList && right.kind == Type::Kind::kList) {
    type = Type::list(either_of(*left.item, *right.item));
  } else if (left.kind == right.kind) {
    type = Type::of(left.kind);
    for (const Type::Field& field : left.fields) {  // those that both have
      const Type* const other = right.find(field.name);
      if (other != nullptr) {
        type.fields.push_back({.name = field.name, .type = either_of(field.type, *other)});
      }
    }
  } else if (is_numeric(left) && is_numeric(right)) {
    type = Type::of(Type::Kind::kNumber);
  }
  type.optional = left.optional || right.optional;
  return type;
}

Result<Type> type_of_pair(const Expression& both, const Type& left, const Type& right) {
  const Type boolean = Type::of(Type::Kind::kBoolean);
  if (both.kind == Kind::kDefault) {
    Type type = either_of(left, right);
    type.optional = right.optional;
    return type;
  }
  if (both.kind == Kind::kAnd || both.kind == Kind::kOr) {
    TRY(expect(boolean.or_null(), left, "the left side"));
    TRY(expect(boolean.or_null(), right, "the right side"));
    return boolean;
  }
  if (both.kind == Kind::kEqual || both.kind == Kind::kNotEqual) return boolean;
  const Type number = Type::of(Type::Kind::kNumber);
  TRY(expect(number, left, "the left side of a comparison"));
  TRY(expect(number, right, "the right side of a comparison"));
  return boolean;
}

// --- values ---

const Json kNull;

Result<Evaluated> value_at(const Json& value, const std::vector<Expression::Part>& parts,
                           size_t at) {
  if (at == parts.size()) return Evaluated(&value);
  if (value.is_null()) return Evaluated(&kNull);
  const Expression::Part& part = parts[at];
  if (part.kind == PartKind::kField) {
    const Json* const field = value.find(part.field);
    if (field != nullptr) return value_at(*field, parts, at + 1);
    if (value.is_object()) return Evaluated(&kNull);
    return bad(fmt::format("'.{}' is asked of {}", part.field, value.kind_name()));
  }
  if (!value.is_array()) return bad(fmt::format("'[]' is asked of {}", value.kind_name()));
  const Json::Array& items = value.as_array();
  if (part.kind == PartKind::kIndex) {
    const int64_t count = std::ssize(items);
    const int64_t index = part.index < 0 ? part.index + count : part.index;
    if (index < 0 || index >= count) {
      return bad(fmt::format("[{}] of a list of {}", part.index, count));
    }
    return value_at(items[static_cast<size_t>(index)], parts, at + 1);
  }
  Json::Array all;
  all.reserve(items.size());
  for (const Json& item : items) {
    TRY_ASSIGN(Evaluated one, value_at(item, parts, at + 1));
    all.push_back(one.take());
  }
  return Evaluated(Json(std::move(all)));
}

bool is_true(const Json& value) {
  return value.is_bool() && value.as_bool();
}

Result<Evaluated> call_value(const Expression& call, const std::vector<Evaluated>& operands) {
  const Json& first = operands[0].get();
  if (call.name == "length") {
    if (first.is_null()) return Evaluated(Json(0));
    if (first.is_array()) return Evaluated(Json(static_cast<int64_t>(first.as_array().size())));
    if (!first.is_string()) return bad(fmt::format("length() of {}", first.kind_name()));
    // Characters, not bytes.
    const std::string& text = first.as_string();
    const auto count = std::ranges::count_if(
        text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
    return Evaluated(Json(static_cast<int64_t>(count)));
  }
  if (call.name == "json") {
    // Quotes within quotes: each further json() doubles them.
    std::string text = first.dump();
    if (text.size() > kJsonTextMax) {
      return bad(fmt::format("json() of more than {} MiB", kJsonTextMax >> 20));
    }
    return Evaluated(Json(std::move(text)));
  }
  if (call.name == "text") {
    if (first.is_string()) return Evaluated(first);
    return Evaluated(Json(first.is_null() ? std::string() : first.dump()));
  }
  const Json& second = operands[1].get();
  if (first.is_null() || second.is_null()) return Evaluated(Json(false));
  if (!first.is_string() || !second.is_string()) {
    return bad(fmt::format("{}() of {} and {}", call.name, first.kind_name(), second.kind_name()));
  }
  const bool starts = call.name == "starts_with";
  const std::string& text = first.as_string();
  const std::string& part = second.as_string();
  // memmem: in the time of their lengths' sum, whatever they are.
  return Evaluated(
      Json(starts ? text.starts_with(part)
                  : ::memmem(text.data(), text.size(), part.data(), part.size()) != nullptr));
}

// 1 is 1.0; all else is compared as it stands.
bool equal(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a.as_number() == b.as_number();
  return a == b;
}

Result<Evaluated> compare(const Expression& both, const Json& left, const Json& right) {
  if (both.kind == Kind::kEqual) return Evaluated(Json(equal(left, right)));
  if (both.kind == Kind::kNotEqual) return Evaluated(Json(!equal(left, right)));
  if (!left.is_number() || !right.is_number()) {
    return bad(fmt::format("{} and {} have no order", left.kind_name(), right.kind_name()));
  }
  const double a = left.as_number();
  const double b = right.as_number();
  switch (both.kind) {
    case Kind::kLess:
      return Evaluated(Json(a < b));
    case Kind::kLessEqual:
      return Evaluated(Json(a <= b));
    case Kind::kGreater:
      return Evaluated(Json(a > b));
    default:
      return Evaluated(Json(a >= b));
  }
}

Result<Evaluated> value_of_pair(const Expression& both, const ValueOf& names) {
  TRY_ASSIGN(Evaluated left, evaluate(both.operands[0], names));
  // The right side is evaluated only where it decides.
  if (both.kind == Kind::kDefault && !left.get().is_null()) return left;
  if (both.kind == Kind::kAnd && !is_true(left.get())) return Evaluated(Json(false));
  if (both.kind == Kind::kOr && is_true(left.get())) return Evaluated(Json(true));
  TRY_ASSIGN(Evaluated right, evaluate(both.operands[1], names));
  if (both.kind == Kind::kDefault) return right;
  if (both.kind == Kind::kAnd || both.kind == Kind::kOr) {
    return Evaluated(Json(is_true(right.get())));
  }
  return compare(both, left.get(), right.get());
}

}  // namespace

Result<Expression> parse_expression(std::string_view text) {
  constexpr size_t kBytesMax = 4096;
  if (text.size() > kBytesMax) return bad(fmt::format("is longer than {} bytes", kBytesMax));
  return Parser(text).whole();
}

void for_each_name(const Expression& expression,
                   const std::function<void(std::string_view name)>& found) {
  if (expression.kind == Kind::kPath) found(expression.name);
  for (const Expression& operand : expression.operands) for_each_name(operand, found);
}

Result<Type> type_of(const Expression& expression, const TypeOf& names) {
  if (expression.kind == Kind::kLiteral) {
    const Json& value = expression.value;
    if (value.is_string()) return Type::of(Type::Kind::kText);
    if (value.is_bool()) return Type::of(Type::Kind::kBoolean);
    if (value.is_integer()) return Type::of(Type::Kind::kInteger);
    return value.is_number() ? Type::of(Type::Kind::kNumber) : Type().or_null();
  }
  if (expression.kind == Kind::kPath) {
    const Type* const type = names(expression.name);
    CHECK(type != nullptr, expression.name);
    return type_of_parts(*type, expression.parts, 0, expression.name);
  }
  std::vector<Type> operands;
  for (const Expression& operand : expression.operands) {
    TRY_ASSIGN(Type type, type_of(operand, names));
    operands.push_back(std::move(type));
  }
  if (expression.kind == Kind::kCall) return type_of_call(expression, operands);
  if (expression.kind == Kind::kNot) {
    TRY(expect(Type::of(Type::Kind::kBoolean).or_null(), operands[0], "what stands behind 'not'"));
    return Type::of(Type::Kind::kBoolean);
  }
  return type_of_pair(expression, operands[0], operands[1]);
}

Result<Evaluated> evaluate(const Expression& expression, const ValueOf& names) {
  switch (expression.kind) {
    case Kind::kLiteral:
      return Evaluated(&expression.value);
    case Kind::kPath: {
      const Json* const value = names(expression.name);
      return value_at(value == nullptr ? kNull : *value, expression.parts, 0);
    }
    case Kind::kNot: {
      TRY_ASSIGN(const Evaluated operand, evaluate(expression.operands[0], names));
      return Evaluated(Json(!is_true(operand.get())));
    }
    case Kind::kCall: {
      std::vector<Evaluated> operands;
      for (const Expression& operand : expression.operands) {
        TRY_ASSIGN(Evaluated value, evaluate(operand, names));
        operands.push_back(std::move(value));
      }
      return call_value(expression, operands);
    }
    default:
      return value_of_pair(expression, names);
  }
}

}  // namespace pelton::chain
