// Runs a template's tree. One run's; one thread.
//
// Names are looked up from the innermost scope outwards, then among the functions. A loop's turn, a
// macro's call, a with, and what a block's filter or assignment surrounds are scopes; an if is
// none.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/functions.h"
#include "jinja/runtime.h"
#include "jinja/syntax_tree.h"

namespace pelton::jinja {

class Evaluator final : public Runtime {
 public:
  Evaluator(const Limits& limits, int64_t unix_seconds) : Runtime(limits, unix_seconds) {}
  ~Evaluator() override;

  // Error kInvalidArgument with the line.
  Result<Text> run(const Body& body, const Dict& context);

  Result<Value> apply_filter(std::string_view name, Value value, Arguments arguments) override;
  Result<bool> apply_test(std::string_view name, const Value& value,
                          const Arguments& arguments) override;

 private:
  struct Scope {
    std::vector<std::pair<std::string_view, Value>> names;
    std::shared_ptr<Scope> outer;
  };
  class Macro;
  enum class Flow { kNext, kBreak, kContinue };

  // Makes a scope the innermost one for as long as it lives.
  class Inside {
   public:
    Inside(Evaluator& evaluator, std::shared_ptr<Scope> outer);
    ~Inside() { evaluator_.scope_ = std::move(before_); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    Evaluator& evaluator_;
    std::shared_ptr<Scope> before_;
  };
  // One deeper for as long as it lives.
  class Nesting {
   public:
    explicit Nesting(int& depth) : depth_(depth) { ++depth_; }
    ~Nesting() { --depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    int& depth_;
  };

  Result<Flow> run_body(const Body& body);
  Result<Flow> run_statement(const Statement& statement);
  Result<void> reserve_output(size_t bytes);
  Result<void> print(const Text& text);
  Result<Flow> run_if(const Statement& statement);
  Result<Flow> run_for(const Statement& statement);
  Result<std::vector<Value>> loop_items(const Statement& statement);
  Result<void> run_set(const Statement& statement);
  Result<void> run_set_block(const Statement& statement);
  Result<void> run_call_block(const Statement& statement);
  Result<Text> captured(const Body& body);
  Result<void> assign(const std::vector<Target>& targets, const Value& value);
  Result<void> assign_one(const Target& target, const Value& value);
  Result<Value> make_macro(const Statement& statement);
  Result<Value> call_macro(const Statement& statement, std::shared_ptr<Scope> outer,
                           const Arguments& arguments);

  Result<Value> evaluate(const Expression& expression);
  Result<Value> evaluate_here(const Expression& expression);
  Result<Value> look_up(const std::string& name);
  Result<Value> evaluate_items(const Expression& expression);
  Result<Value> evaluate_dict(const Expression& expression);
  Result<Value> evaluate_slice(const Expression& expression);
  Result<Value> evaluate_call(const Expression& expression, Value caller);
  Result<Value> evaluate_filter(const Expression& expression, const Value* inside);
  Result<Value> evaluate_test(const Expression& expression);
  Result<Value> evaluate_sign(const Expression& expression);
  Result<Value> evaluate_concatenation(const Expression& expression);
  Result<Value> evaluate_compare(const Expression& expression);
  Result<Arguments> evaluate_arguments(const Expression& expression);

  Result<void> define(std::string_view name, Value value);

  std::shared_ptr<Scope> scope_;
  Text* out_ = nullptr;
  int depth_ = 0;
  int loops_ = 0;       // that are open
  int error_line_ = 0;  // where what went wrong first was seen
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

}  // namespace pelton::jinja
