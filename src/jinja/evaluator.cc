#include "jinja/evaluator.h"

#include <algorithm>

#include <fmt/format.h>

#include "jinja/filters.h"
#include "jinja/operators.h"
#include "jinja/python_format.h"

namespace pelton::jinja {

using Kind = Expression::Kind;

Result<Value> Evaluator::evaluate(const Expression& expression) {
  const Nesting nesting(depth_);
  Result<Value> value = evaluate_here(expression);
  if (!value.ok() && error_line_ == 0) error_line_ = expression.line;
  return value;
}

Result<Value> Evaluator::evaluate_here(const Expression& expression) {
  TRY(charge(1));
  if (depth_ > limits().depth) return failure("the template nests or recurses too deeply");
  const std::vector<ExpressionPtr>& parts = expression.parts;
  switch (expression.kind) {
    case Kind::kConstant:
      return expression.constant;
    case Kind::kName:
      return look_up(expression.name);
    case Kind::kList:
    case Kind::kTuple:
      return evaluate_items(expression);
    case Kind::kDict:
      return evaluate_dict(expression);
    case Kind::kAttribute: {
      TRY_ASSIGN(const Value value, evaluate(*parts[0]));
      return attribute_of(*this, value, expression.name);
    }
    case Kind::kItem: {
      TRY_ASSIGN(const Value value, evaluate(*parts[0]));
      TRY_ASSIGN(const Value key, evaluate(*parts[1]));
      return item_of(*this, value, key);
    }
    case Kind::kSlice:
      return evaluate_slice(expression);
    case Kind::kCall:
      return evaluate_call(expression, {});
    case Kind::kFilter:
      return evaluate_filter(expression, nullptr);
    case Kind::kTest:
      return evaluate_test(expression);
    case Kind::kNot: {
      TRY_ASSIGN(const Value value, evaluate(*parts[0]));
      return Value(!value.truth());
    }
    case Kind::kNegative:
    case Kind::kPositive:
      return evaluate_sign(expression);
    case Kind::kArithmetic: {
      TRY_ASSIGN(const Value left, evaluate(*parts[0]));
      TRY_ASSIGN(const Value right, evaluate(*parts[1]));
      return arithmetic(*this, expression.name, left, right);
    }
    case Kind::kConcatenate:
      return evaluate_concatenation(expression);
    case Kind::kCompare:
      return evaluate_compare(expression);
    case Kind::kAnd:
    case Kind::kOr: {
      TRY_ASSIGN(Value left, evaluate(*parts[0]));
      if (left.truth() == (expression.kind == Kind::kOr)) return left;
      return evaluate(*parts[1]);
    }
    case Kind::kConditional: {
      TRY_ASSIGN(const Value condition, evaluate(*parts[1]));
      if (condition.truth()) return evaluate(*parts[0]);
      if (parts[2]) return evaluate(*parts[2]);
      TRY(allocate_objects(2));
      return Value::undefined("an inline if without else is false");
    }
  }
  return Value();
}

Result<Value> Evaluator::look_up(const std::string& name) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->outer.get()) {
    const size_t count = scope->names.size();
    TRY(charge(count / 16 + count * (name.size() / 64)));
    for (auto held = scope->names.rbegin(); held != scope->names.rend(); ++held) {
      if (held->first == name) return held->second;
    }
  }
  TRY(allocate_objects(2));
  Value function = find_function(name);
  if (!function.is_undefined() || name == "namespace") return function;
  return Value::undefined(fmt::format("'{}' is undefined", name));
}

Result<Value> Evaluator::evaluate_items(const Expression& expression) {
  TRY(allocate_items(expression.parts.size()));
  std::vector<Value> items;
  for (const ExpressionPtr& part : expression.parts) {
    TRY_ASSIGN(Value item, evaluate(*part));
    items.push_back(std::move(item));
  }
  return expression.kind == Kind::kTuple ? Value::tuple(std::move(items))
                                         : Value::list(std::move(items));
}

Result<Value> Evaluator::evaluate_dict(const Expression& expression) {
  Dict dict;
  TRY(allocate_items(expression.parts.size()));
  for (size_t i = 0; i < expression.parts.size(); i += 2) {
    TRY_ASSIGN(Value key, evaluate(*expression.parts[i]));
    TRY_ASSIGN(Value value, evaluate(*expression.parts[i + 1]));
    if (key.is_list() || key.is_dict()) {
      return failure(fmt::format("a dict's key cannot be a '{}'", key.type_name()));
    }
    TRY_ASSIGN(const size_t at, find_member(*this, dict, key));
    if (at < dict.members.size()) {
      dict.members[at].second = std::move(value);
    } else {
      dict.members.emplace_back(std::move(key), std::move(value));
    }
  }
  return Value::dict(std::move(dict));
}

Result<Value> Evaluator::evaluate_slice(const Expression& expression) {
  TRY_ASSIGN(const Value value, evaluate(*expression.parts[0]));
  Value bounds[3];
  const Value* given[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    if (!expression.parts[i + 1]) continue;
    TRY_ASSIGN(bounds[i], evaluate(*expression.parts[i + 1]));
    given[i] = &bounds[i];
  }
  return slice_of(*this, value, given[0], given[1], given[2]);
}

Result<Arguments> Evaluator::evaluate_arguments(const Expression& expression) {
  Arguments arguments;
  TRY(allocate_items(expression.parts.size()));
  TRY(allocate_objects(expression.named.size()));
  for (size_t i = 1; i < expression.parts.size(); ++i) {
    TRY_ASSIGN(Value value, evaluate(*expression.parts[i]));
    arguments.positional.push_back(std::move(value));
  }
  for (const NamedArgument& named : expression.named) {
    TRY_ASSIGN(Value value, evaluate(*named.value));
    arguments.named.emplace_back(named.name, std::move(value));
  }
  return arguments;
}

Result<Value> Evaluator::evaluate_call(const Expression& expression, Value caller) {
  const Expression& callee = *expression.parts[0];
  TRY_ASSIGN(const Value called, evaluate(callee));
  TRY_ASSIGN(Arguments arguments, evaluate_arguments(expression));
  if (!caller.is_undefined()) arguments.named.emplace_back("caller", std::move(caller));
  const bool is_namespace =
      callee.kind == Kind::kName && callee.name == "namespace" && called.is_undefined();
  if (is_namespace) {
    auto made = std::make_shared<Namespace>();
    const size_t taken = !arguments.positional.empty() && arguments.positional[0].is_dict()
                             ? arguments.positional[0].as_dict().members.size()
                             : 0;
    const size_t count = taken + arguments.named.size() + 1;
    TRY(allocate_objects(count));
    TRY(charge(count * (count / 16)));
    namespaces_.push_back(made);
    if (!arguments.positional.empty() && arguments.positional[0].is_dict()) {
      for (const auto& [key, value] : arguments.positional[0].as_dict().members) {
        if (!key.is_string()) continue;
        // A namespace holds names, not values: it has a copy.
        TRY(allocate(key.as_string().size()));
        TRY(charge(count * (key.as_string().size() / 64)));
        made->set(key.as_string(), value);
      }
    }
    for (auto& [name, value] : arguments.named) made->set(name, std::move(value));
    return Value(std::static_pointer_cast<Object>(std::move(made)));
  }
  if (called.is_undefined()) return failure(called.why_undefined());
  if (!called.is_callable()) {
    return failure(fmt::format("'{}' object is not callable", called.type_name()));
  }
  return called.object()->call(*this, std::move(arguments));
}

// `inside`: what a block prints, for a filter that has no value of its own.
Result<Value> Evaluator::evaluate_filter(const Expression& expression, const Value* inside) {
  Value value;
  const Expression* of = expression.parts[0].get();
  if (of == nullptr) {
    if (inside != nullptr) value = *inside;
  } else if (inside != nullptr && of->kind == Kind::kFilter) {
    TRY_ASSIGN(value, evaluate_filter(*of, inside));
  } else {
    TRY_ASSIGN(value, evaluate(*of));
  }
  TRY_ASSIGN(Arguments arguments, evaluate_arguments(expression));
  return apply_filter(expression.name, std::move(value), std::move(arguments));
}

Result<Value> Evaluator::apply_filter(std::string_view name, Value value, Arguments arguments) {
  const Filter filter = find_filter(name);
  if (filter == nullptr) return failure(fmt::format("no filter named '{}'", name));
  TRY(charge(1));
  return filter(*this, value, arguments);
}

Result<bool> Evaluator::apply_test(std::string_view name, const Value& value,
                                   const Arguments& arguments) {
  const Test test = find_test(name);
  if (test == nullptr) return failure(fmt::format("no test named '{}'", name));
  TRY(charge(1));
  return test(*this, value, arguments);
}

Result<Value> Evaluator::evaluate_test(const Expression& expression) {
  TRY_ASSIGN(const Value value, evaluate(*expression.parts[0]));
  TRY_ASSIGN(const Arguments arguments, evaluate_arguments(expression));
  TRY_ASSIGN(const bool holds, apply_test(expression.name, value, arguments));
  return Value(holds != expression.negated);
}

Result<Value> Evaluator::evaluate_sign(const Expression& expression) {
  TRY_ASSIGN(const Value value, evaluate(*expression.parts[0]));
  if (value.is_undefined()) return failure(value.why_undefined());
  if (!value.is_number()) {
    return failure(fmt::format("a '{}' has no sign", value.type_name()));
  }
  if (value.is_float()) {
    return Value(expression.kind == Kind::kNegative ? -value.as_number() : value.as_number());
  }
  return arithmetic(*this, expression.kind == Kind::kNegative ? "-" : "+", Value(int64_t{0}),
                    value);
}

Result<Value> Evaluator::evaluate_concatenation(const Expression& expression) {
  Text out;
  for (const ExpressionPtr& part : expression.parts) {
    TRY_ASSIGN(const Value value, evaluate(*part));
    TRY_ASSIGN(const Text text, to_text(*this, value));
    TRY(allocate(text));
    out.append(text);
  }
  // While it grew.
  TRY(allocate(out));
  return Value(std::move(out));
}

Result<Value> Evaluator::evaluate_compare(const Expression& expression) {
  TRY_ASSIGN(Value left, evaluate(*expression.parts[0]));
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    TRY_ASSIGN(Value right, evaluate(*expression.parts[i + 1]));
    TRY_ASSIGN(const bool holds, compare(*this, expression.operators[i], left, right));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

}  // namespace pelton::jinja
