// The statements of a template's run.
#include <algorithm>

#include <fmt/format.h>

#include "base/utf8.h"
#include "jinja/evaluator.h"
#include "jinja/lexer.h"
#include "jinja/python_format.h"

namespace pelton::jinja {
namespace {

// A template's own words, and values that its errors show, may be of any length; a client gets
// these many.
constexpr size_t kMessageBytesMax = 4096;

std::string shortened(std::string_view message) {
  if (message.size() <= kMessageBytesMax) return std::string(message);
  const std::string_view cut = message.substr(0, kMessageBytesMax);
  return std::string(cut.substr(0, base::valid_utf8_prefix(cut))) + "...";
}

}  // namespace

// A macro remembers where it was defined, and does not keep that alive: the scope holds the macro.
class Evaluator::Macro final : public Object {
 public:
  Macro(Evaluator& evaluator, const Statement& statement)
      : evaluator_(evaluator), statement_(statement), scope_(evaluator.scope_) {}
  std::string_view type_name() const override { return "macro"; }
  bool is_callable() const override { return true; }
  Result<Value> call(Runtime&, Arguments arguments) override {
    std::shared_ptr<Scope> outer = scope_.lock();
    if (!outer) return failure("a macro is called outside of where it was defined");
    return evaluator_.call_macro(statement_, std::move(outer), arguments);
  }

 private:
  Evaluator& evaluator_;
  const Statement& statement_;
  const std::weak_ptr<Scope> scope_;
};

Evaluator::Inside::Inside(Evaluator& evaluator, std::shared_ptr<Scope> outer)
    : evaluator_(evaluator), before_(evaluator.scope_) {
  auto scope = std::make_shared<Scope>();
  scope->outer = std::move(outer);
  evaluator_.scope_ = std::move(scope);
}

Evaluator::~Evaluator() {
  for (const std::shared_ptr<Namespace>& made : namespaces_) made->clear();
}

Result<Text> Evaluator::run(const Body& body, const Dict& context) {
  scope_ = std::make_shared<Scope>();
  for (const auto& [name, value] : context.members) {
    if (name.is_string()) TRY(define(name.as_string(), value));
  }
  const Inside templates_own(*this, scope_);
  Text out;
  out_ = &out;
  const Result<Flow> flow = run_body(body);
  if (!flow.ok()) {
    const std::string message = shortened(flow.error().message);
    return error_line_ > 0 ? at_line(error_line_, message) : failure(message);
  }
  return out;
}

Result<void> Evaluator::define(std::string_view name, Value value) {
  const size_t count = scope_->names.size();
  TRY(charge(count / 16 + count * (name.size() / 64)));
  for (auto& [defined, held] : scope_->names) {
    if (defined != name) continue;
    held = std::move(value);
    return {};
  }
  TRY(allocate_items(2));
  scope_->names.emplace_back(name, std::move(value));
  return {};
}

Result<Evaluator::Flow> Evaluator::run_body(const Body& body) {
  if (++depth_ > limits().depth) return failure("the template nests or recurses too deeply");
  Flow flow = Flow::kNext;
  for (const Statement& statement : body) {
    Result<Flow> ran = run_statement(statement);
    if (!ran.ok() && error_line_ == 0) error_line_ = statement.line;
    TRY_ASSIGN(flow, std::move(ran));
    if (flow != Flow::kNext) break;
  }
  --depth_;
  return flow;
}

Result<Evaluator::Flow> Evaluator::run_statement(const Statement& statement) {
  using StatementKind = Statement::Kind;
  TRY(charge(1));
  switch (statement.kind) {
    case StatementKind::kText:
      TRY(reserve_output(statement.text.size()));
      out_->append(statement.text);
      break;
    case StatementKind::kPrint: {
      TRY_ASSIGN(const Value value, evaluate(*statement.value));
      TRY_ASSIGN(const Text text, to_text(*this, value));
      TRY(print(text));
      break;
    }
    case StatementKind::kIf:
      return run_if(statement);
    case StatementKind::kFor:
      return run_for(statement);
    case StatementKind::kSet:
      TRY(run_set(statement));
      break;
    case StatementKind::kSetBlock:
      TRY(run_set_block(statement));
      break;
    case StatementKind::kMacro: {
      TRY_ASSIGN(Value macro, make_macro(statement));
      TRY(define(statement.text, std::move(macro)));
      break;
    }
    case StatementKind::kCallBlock:
      TRY(run_call_block(statement));
      break;
    case StatementKind::kFilterBlock: {
      TRY_ASSIGN(Text inside, captured(statement.body));
      const Value value(std::move(inside));
      TRY_ASSIGN(const Value filtered, evaluate_filter(*statement.value, &value));
      TRY_ASSIGN(const Text text, to_text(*this, filtered));
      TRY(print(text));
      break;
    }
    case StatementKind::kWith: {
      const Inside inside(*this, scope_);
      for (const Parameter& parameter : statement.parameters) {
        TRY_ASSIGN(Value value, evaluate(*parameter.value));
        TRY(define(parameter.name, std::move(value)));
      }
      return run_body(statement.body);
    }
    case StatementKind::kBody:
      return run_body(statement.body);
    case StatementKind::kBreak:
      return loops_ > 0 ? Result<Flow>(Flow::kBreak) : failure("break outside of a loop");
    case StatementKind::kContinue:
      return loops_ > 0 ? Result<Flow>(Flow::kContinue) : failure("continue outside of a loop");
  }
  return Flow::kNext;
}

Result<void> Evaluator::reserve_output(size_t bytes) {
  TRY(allocate(3 * bytes));  // a string that grows holds its bytes up to three times
  if (out_->size() + bytes <= limits().output_bytes) return {};
  return failure(fmt::format("the template prints more than {} bytes", limits().output_bytes));
}

Result<void> Evaluator::print(const Text& text) {
  TRY(reserve_output(text.size()));
  TRY(allocate(3 * text.input().size() * sizeof(Text::Range)));
  out_->append(text);
  return {};
}

Result<Evaluator::Flow> Evaluator::run_if(const Statement& statement) {
  for (const Branch& branch : statement.branches) {
    TRY_ASSIGN(const Value condition, evaluate(*branch.condition));
    if (condition.truth()) return run_body(branch.body);
  }
  return run_body(statement.otherwise);
}

Result<std::vector<Value>> Evaluator::loop_items(const Statement& statement) {
  TRY_ASSIGN(const Value over, evaluate(*statement.value));
  TRY_ASSIGN(std::vector<Value> items, items_of(*this, over));
  if (!statement.condition) return items;
  TRY(allocate_items(items.size()));
  std::vector<Value> kept;
  for (Value& item : items) {
    const Inside turn(*this, scope_);
    TRY(assign(statement.targets, item));
    TRY_ASSIGN(const Value condition, evaluate(*statement.condition));
    if (condition.truth()) kept.push_back(std::move(item));
  }
  return kept;
}

Result<Evaluator::Flow> Evaluator::run_for(const Statement& statement) {
  TRY_ASSIGN(std::vector<Value> over, loop_items(statement));
  const auto items = std::make_shared<const std::vector<Value>>(std::move(over));
  if (items->empty()) return run_body(statement.otherwise);
  const Nesting open(loops_);
  for (size_t i = 0; i < items->size(); ++i) {
    TRY(charge(1));
    TRY(allocate_objects(2));
    const Inside turn(*this, scope_);
    // Each turn's own: a template may keep it.
    const auto loop = std::make_shared<Loop>(items);
    loop->move_to(i);
    TRY(define("loop", Value(std::static_pointer_cast<Object>(loop))));
    TRY(assign(statement.targets, (*items)[i]));
    TRY_ASSIGN(const Flow flow, run_body(statement.body));
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

Result<void> Evaluator::assign(const std::vector<Target>& targets, const Value& value) {
  if (targets.size() == 1) return assign_one(targets[0], value);
  TRY_ASSIGN(const std::vector<Value> items, items_of(*this, value));
  if (items.size() != targets.size()) {
    return failure(fmt::format("{} values for {} names", items.size(), targets.size()));
  }
  for (size_t i = 0; i < items.size(); ++i) TRY(assign_one(targets[i], items[i]));
  return {};
}

Result<void> Evaluator::assign_one(const Target& target, const Value& value) {
  if (target.attribute.empty()) {
    return define(target.name, value);
  }
  TRY_ASSIGN(const Value held, look_up(target.name));
  auto* const found = dynamic_cast<Namespace*>(held.object());
  if (found == nullptr) return failure("cannot assign an attribute of anything but a namespace");
  const size_t count = found->attribute_count();
  TRY(charge(1 + count / 16 + count * (target.attribute.size() / 64)));
  TRY(allocate_objects(1));
  found->set(target.attribute, value);
  return {};
}

Result<void> Evaluator::run_set(const Statement& statement) {
  TRY_ASSIGN(const Value value, evaluate(*statement.value));
  return assign(statement.targets, value);
}

Result<Text> Evaluator::captured(const Body& body) {
  const Inside inside(*this, scope_);
  Text text;
  Text* const before = std::exchange(out_, &text);
  const int loops = std::exchange(loops_, 0);
  const Result<Flow> flow = run_body(body);
  out_ = before;
  loops_ = loops;
  TRY(flow);
  return text;
}

Result<void> Evaluator::run_set_block(const Statement& statement) {
  TRY_ASSIGN(Text text, captured(statement.body));
  Value value(std::move(text));
  if (statement.value) {
    TRY_ASSIGN(value, evaluate_filter(*statement.value, &value));
  }
  return assign(statement.targets, value);
}

Result<void> Evaluator::run_call_block(const Statement& statement) {
  TRY_ASSIGN(Value macro, make_macro(statement));
  TRY_ASSIGN(const Value value, evaluate_call(*statement.value, std::move(macro)));
  TRY_ASSIGN(const Text text, to_text(*this, value));
  return print(text);
}

Result<Value> Evaluator::make_macro(const Statement& statement) {
  TRY(allocate_objects(1));
  return Value(std::static_pointer_cast<Object>(std::make_shared<Macro>(*this, statement)));
}

Result<Value> Evaluator::call_macro(const Statement& statement, std::shared_ptr<Scope> outer,
                                    const Arguments& arguments) {
  const std::vector<Parameter>& parameters = statement.parameters;
  const std::string_view name =
      statement.kind == Statement::Kind::kMacro ? std::string_view(statement.text) : "caller";
  if (arguments.positional.size() > parameters.size()) {
    return failure(fmt::format("macro '{}' takes at most {} arguments", name, parameters.size()));
  }
  const Inside inside(*this, std::move(outer));
  TRY(charge((parameters.size() + 1) * (arguments.named.size() + 1) / 16));
  for (const auto& [given, value] : arguments.named) {
    const bool is_known = given == "caller" || std::any_of(parameters.begin(), parameters.end(),
                                                           [&given = given](const Parameter& p) {
                                                             return p.name == given;
                                                           });
    if (!is_known) return failure(fmt::format("macro '{}' has no argument '{}'", name, given));
    TRY(define(given, value));
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    const bool is_given =
        std::any_of(arguments.named.begin(), arguments.named.end(),
                    [&](const auto& named) { return named.first == parameter.name; });
    if (i < arguments.positional.size()) {
      TRY(define(parameter.name, arguments.positional[i]));
    } else if (!is_given && parameter.value) {
      TRY_ASSIGN(Value value, evaluate(*parameter.value));
      TRY(define(parameter.name, std::move(value)));
    } else if (!is_given) {
      TRY(allocate_objects(2));
      TRY(define(parameter.name,
                 Value::undefined(fmt::format("parameter '{}' was not provided", parameter.name))));
    }
  }
  TRY_ASSIGN(Text text, captured(statement.body));
  return Value(std::move(text));
}

}  // namespace pelton::jinja
