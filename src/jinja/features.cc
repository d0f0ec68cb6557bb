#include "jinja/features.h"

#include "jinja/functions.h"

namespace pelton::jinja {
namespace {

// The parser bounds how deep expressions and statements nest.
class Collector {
 public:
  Features take() {
    for (const std::string& name : own_) features_.variables.erase(name);
    return std::move(features_);
  }

  void take_body(const Body& body) {
    for (const Statement& statement : body) take_statement(statement);
  }

 private:
  void take_statement(const Statement& statement) {
    using Kind = Statement::Kind;
    constexpr std::pair<Kind, const char*> kNames[] = {
        {Kind::kIf, "if"},       {Kind::kFor, "for"},
        {Kind::kSet, "set"},     {Kind::kSetBlock, "set block"},
        {Kind::kMacro, "macro"}, {Kind::kCallBlock, "call"},
        {Kind::kWith, "with"},   {Kind::kFilterBlock, "filter"},
        {Kind::kBreak, "break"}, {Kind::kContinue, "continue"}};
    for (const auto& [kind, name] : kNames) {
      if (statement.kind == kind) features_.statements.insert(name);
    }
    if (statement.kind == Kind::kMacro) own_.insert(statement.text);
    if (statement.kind == Kind::kFor) own_.insert("loop");
    for (const Target& target : statement.targets) own_.insert(target.name);
    for (const Parameter& parameter : statement.parameters) {
      own_.insert(parameter.name);
      take_expression(parameter.value);
    }
    take_expression(statement.value);
    take_expression(statement.condition);
    for (const Branch& branch : statement.branches) {
      take_expression(branch.condition);
      take_body(branch.body);
    }
    take_body(statement.body);
    take_body(statement.otherwise);
  }

  void take_expression(const ExpressionPtr& expression) {
    using Kind = Expression::Kind;
    if (expression == nullptr) return;
    switch (expression->kind) {
      case Kind::kName:
        take_name(expression->name);
        break;
      case Kind::kFilter:
        features_.filters.insert(expression->name);
        break;
      case Kind::kTest:
        features_.tests.insert(expression->name);
        break;
      case Kind::kCall:
        if (expression->parts[0]->kind == Kind::kAttribute) {
          features_.methods.insert(expression->parts[0]->name);
        }
        break;
      default:
        break;
    }
    for (const ExpressionPtr& part : expression->parts) take_expression(part);
    for (const NamedArgument& named : expression->named) take_expression(named.value);
  }

  void take_name(const std::string& name) {
    features_.names.insert(name);
    const bool is_function = name == "namespace" || !find_function(name).is_undefined();
    (is_function ? features_.functions : features_.variables).insert(name);
  }

  Features features_;
  std::set<std::string, std::less<>> own_ = {"caller"};  // names that the template sets
};

}  // namespace

Features features_of(const Body& body) {
  Collector collector;
  collector.take_body(body);
  return collector.take();
}

}  // namespace pelton::jinja
