#include "chain/chain_check.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/command_line.h"

namespace pelton::chain {
namespace {

using Kind = Type::Kind;
using Index = std::map<std::string, size_t, std::less<>>;

// Where an expression stands says which names it may use beside the input and the steps.
enum class Scope { kStep, kPiece };

bool is_piece_name(std::string_view name) {
  return name == "item" || name == "index";
}

class Checker {
 public:
  explicit Checker(Chain& chain) : chain_(chain) {}

  Result<void> check() {
    TRY(find_needs());
    TRY(sort());
    input_ = chain_.input.empty() ? Type::object({{.name = "_", .type = Type().or_null()}})
                                  : Type::object(chain_.input);
    for (Step& step : chain_.steps) TRY(check_step(step));
    return check_output();
  }

 private:
  Error bad(int line, std::string_view what) const {
    return cli::bad_toml(chain_.file, line, what);
  }
  Error bad(const Step& step, int line, std::string_view what) const {
    return bad(line, fmt::format("step '{}': {}", step.name, what));
  }

  Error unknown_name(std::string_view name, int line, Scope scope) const {
    if (is_piece_name(name)) {
      return bad(line, fmt::format("'{}' is of steps with for_each, in their 'with'", name));
    }
    std::vector<std::string> names = {"input"};
    if (scope == Scope::kPiece) names.insert(names.end(), {"item", "index"});
    for (const Step& step : chain_.steps) names.push_back(step.name);
    const std::optional<std::string> near = cli::nearest(name, names);
    return bad(line, fmt::format("there is no step '{}'{}; there are {}", name,
                                 near ? fmt::format("; did you mean '{}'?", *near) : "",
                                 fmt::join(names, ", ")));
  }

  // Adds the steps that a template names to `needs`.
  Result<void> note_names(const Template& tree, Scope scope, const Index& index,
                          std::vector<size_t>& needs) const {
    Result<void> result;
    for_each_name(tree, [&](std::string_view name, int line) {
      if (!result.ok() || name == "input" || (scope == Scope::kPiece && is_piece_name(name)))
        return;
      const auto found = index.find(name);
      if (found == index.end()) {
        result = unknown_name(name, line, scope);
      } else if (std::ranges::find(needs, found->second) == needs.end()) {
        needs.push_back(found->second);
      }
    });
    return result;
  }

  Result<void> find_needs() {
    Index index;
    for (size_t i = 0; i < chain_.steps.size(); ++i) index.emplace(chain_.steps[i].name, i);
    for (Step& step : chain_.steps) {
      const Scope scope = step.for_each ? Scope::kPiece : Scope::kStep;
      TRY(note_names(step.with, scope, index, step.needs));
      if (step.for_each) TRY(note_names(*step.for_each, Scope::kStep, index, step.needs));
      if (step.when) TRY(note_names(*step.when, Scope::kStep, index, step.needs));
    }
    std::vector<size_t> read;
    TRY(note_names(chain_.output, Scope::kStep, index, read));
    for (const size_t step : read) chain_.steps[step].is_output = true;
    return {};
  }

  // "a -> b -> a": from the first step of a cycle along what it needs.
  Error cycle(const std::vector<bool>& placed) const {
    size_t at = 0;
    while (placed[at]) ++at;
    std::vector<size_t> way;
    while (std::ranges::find(way, at) == way.end()) {
      way.push_back(at);
      const std::vector<size_t>& needs = chain_.steps[at].needs;
      at = *std::ranges::find_if(needs, [&](size_t need) { return !placed[need]; });
    }
    const auto begin = std::ranges::find(way, at);
    std::string text;
    for (auto step = begin; step != way.end(); ++step) text += chain_.steps[*step].name + " needs ";
    return bad(chain_.steps[at].line,
               fmt::format("steps need each other: {}{}", text, chain_.steps[at].name));
  }

  // Each step behind those that it needs, otherwise in the file's order; numbers become those of
  // that order.
  Result<void> sort() {
    const size_t count = chain_.steps.size();
    std::vector<bool> placed(count);
    std::vector<size_t> order;
    while (order.size() < count) {
      size_t next = 0;
      const auto ready = [&](size_t step) {
        return !placed[step] && std::ranges::all_of(chain_.steps[step].needs,
                                                    [&](size_t need) { return placed[need]; });
      };
      while (next < count && !ready(next)) ++next;
      if (next == count) return cycle(placed);
      placed[next] = true;
      order.push_back(next);
    }
    std::vector<size_t> new_index(count);
    for (size_t i = 0; i < count; ++i) new_index[order[i]] = i;
    std::vector<Step> sorted;
    for (const size_t old : order) sorted.push_back(std::move(chain_.steps[old]));
    for (size_t i = 0; i < count; ++i) {
      for (size_t& need : sorted[i].needs) {
        need = new_index[need];
        sorted[need].used_by.push_back(i);
      }
    }
    chain_.steps = std::move(sorted);
    if (chain_.stream_from) chain_.stream_from = new_index[*chain_.stream_from];
    return {};
  }

  TypeOf names(const Type* item) const {
    return [this, item](std::string_view name) -> const Type* {
      static const Type integer = Type::of(Kind::kInteger);
      if (name == "input") return &input_;
      if (name == "item") return item;
      if (name == "index") return item == nullptr ? nullptr : &integer;
      const Step* const step = chain_.find(name);
      return step == nullptr ? nullptr : &step->type;
    };
  }

  Result<void> check_step(Step& step) {
    Type item;
    if (step.when) {
      TRY_ASSIGN(const Type type, type_of(*step.when, names(nullptr), chain_.file));
      if (!accepts(Type::of(Kind::kBoolean).or_null(), type)) {
        return bad(step, step.when->line,
                   fmt::format("'when' must be boolean, and is {}", type_text(type)));
      }
    }
    if (step.for_each) {
      TRY_ASSIGN(const Type type, type_of(*step.for_each, names(nullptr), chain_.file));
      if (!accepts(Type::list(Type().or_null()), type)) {
        return bad(step, step.for_each->line,
                   fmt::format("'for_each' must be a list, and is {}", type_text(type)));
      }
      if (type.kind == Kind::kList) item = *type.item;
    }
    TRY_ASSIGN(const Type with,
               type_of(step.with, names(step.for_each ? &item : nullptr), chain_.file));
    TRY_ASSIGN(Type result, type_of_use(step, with));
    if (step.for_each) result = Type::list(std::move(result));
    step.type = step.when ? result.or_null() : std::move(result);
    return {};
  }

  int line_of(const Step& step, std::string_view key) const {
    const Template* const value = step.with.find(key);
    return value == nullptr ? step.line : value->line;
  }

  struct Wanted {
    std::string_view key;
    Type type;
  };
  Result<void> expect(const Step& step, const Type& with, const Wanted& wanted) const {
    const Type* const given = with.find(wanted.key);
    if (given == nullptr) {
      if (wanted.type.optional) return {};
      return bad(step, step.line,
                 fmt::format("'with' lacks '{}', {}", wanted.key, type_text(wanted.type)));
    }
    if (accepts(wanted.type, *given)) return {};
    const bool only_null = accepts(wanted.type.or_null(), *given);
    return bad(step, line_of(step, wanted.key),
               fmt::format("'{}' must be {}, and is {}{}", wanted.key, type_text(wanted.type),
                           type_text(*given),
                           only_null ? ": it may be missing; give another value with '?\?'" : ""));
  }

  Result<Type> type_of_use(const Step& step, const Type& with) const {
    if (step.kind == Step::Kind::kBuiltin) return type_of_builtin(step, with);
    if (step.kind == Step::Kind::kHttp) {
      const Type status = Type::of(Kind::kInteger);
      if (step.takes_text) {
        return Type::object(
            {{.name = "status", .type = status}, {.name = "text", .type = Type::of(Kind::kText)}});
      }
      return Type::object({{.name = "status", .type = status}, {.name = "body", .type = Type()}});
    }
    return type_of_model(step, with);
  }

  Result<Type> type_of_builtin(const Step& step, const Type& with) const {
    const Builtin& builtin = *step.builtin;
    for (const Type::Field& given : with.fields) {
      if (builtin.find(given.name) != nullptr) continue;
      std::vector<std::string> known;
      for (const Builtin::Parameter& one : builtin.parameters) known.emplace_back(one.name);
      const std::optional<std::string> near = cli::nearest(given.name, known);
      return bad(step, line_of(step, given.name),
                 fmt::format("builtin:{} has no '{}'{}; it has {}", builtin.name, given.name,
                             near ? fmt::format("; did you mean '{}'?", *near) : "",
                             fmt::join(known, ", ")));
    }
    for (const Builtin::Parameter& one : builtin.parameters) {
      TRY(expect(step, with, {.key = one.name, .type = one.type}));
    }
    Type result = builtin.result;
    const Type* const items = with.find("items");
    if (items == nullptr || items->kind != Kind::kList) return result;
    // What is chosen is what was given.
    for (Type::Field& field : result.fields) {
      if (field.name == "items") field.type = Type::list(*items->item);
    }
    return result;
  }

  Result<Type> type_of_model(const Step& step, const Type& with) const {
    for (const std::string_view key : {"model", "stream", "stream_options", "n"}) {
      if (with.find(key) == nullptr) continue;
      return bad(step, line_of(step, key), fmt::format("'{}' is the chain's business", key));
    }
    const Type text = Type::of(Kind::kText);
    const Type texts = Type::list(text);
    const Type usage = Type::of(Kind::kObject);
    const auto result = [&](std::vector<Type::Field> fields) {
      fields.push_back({.name = "usage", .type = usage});
      return Type::object(std::move(fields));
    };
    if (step.endpoint == Endpoint::kEmbeddings) {
      const Type* const input = with.find("input");
      if (input == nullptr || !accepts(text, *input)) {
        TRY(expect(step, with, {.key = "input", .type = texts}));
      }
      return result({{.name = "vectors", .type = Type::list(Type::list(Type::of(Kind::kNumber)))}});
    }
    if (step.endpoint == Endpoint::kRerank) {
      TRY(expect(step, with, {.key = "query", .type = text}));
      TRY(expect(step, with, {.key = "documents", .type = texts}));
      return result({{.name = "indices", .type = Type::list(Type::of(Kind::kInteger))},
                     {.name = "scores", .type = Type::list(Type::of(Kind::kNumber))},
                     {.name = "documents", .type = texts}});
    }
    if (step.endpoint == Endpoint::kCompletions || with.find("messages") == nullptr) {
      TRY(expect(step, with, {.key = "prompt", .type = text}));
    } else {
      if (with.find("prompt") != nullptr || with.find("system") != nullptr) {
        return bad(step, line_of(step, "messages"), "has 'messages' and 'prompt' or 'system'");
      }
      TRY(expect(step, with, {.key = "messages", .type = Type::list(Type::of(Kind::kObject))}));
    }
    TRY(expect(step, with, {.key = "system", .type = text.or_null()}));
    return result({{.name = "text", .type = text}, {.name = "finish_reason", .type = text}});
  }

  Result<void> check_output() {
    TRY_ASSIGN(const Type type, type_of(chain_.output, names(nullptr), chain_.file));
    chain_.output_types = type.fields;
    for (const Step& step : chain_.steps) {
      if (step.is_output || !step.used_by.empty()) continue;
      if (step.kind == Step::Kind::kHttp) continue;  // it may be run for what it does
      return bad(step.line, fmt::format("nothing reads step '{}'", step.name));
    }
    return {};
  }

  Chain& chain_;
  Type input_;
};

}  // namespace

Result<void> check_chain(Chain& chain) {
  return Checker(chain).check();
}

}  // namespace pelton::chain
