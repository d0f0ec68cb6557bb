// A value of a chain file with expressions in it: a text that is one ${...} gives the expression's
// value whatever it is, any other text is put together, lists and tables hold such texts. "$${" is
// a "${" that is none. Values, pure functions; what is rendered is bounded.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "chain/expression.h"
#include "chain/value_type.h"
#include "cli/toml_tree.h"

namespace pelton::chain {

struct Template {
  enum class Kind { kLiteral, kExpression, kText, kList, kObject };
  struct Member;

  Kind kind = Kind::kLiteral;
  int line = 0;
  Json literal;
  Expression expression;
  // kText: literals and expressions in turn. kList: its items.
  std::vector<Template> parts;
  std::vector<Member> members;  // kObject

  const Template* find(std::string_view name) const;
};

struct Template::Member {
  std::string name;
  Template value;
};

// Errors: kBadConfig with the line.
Result<Template> read_template(const cli::TomlNode& node, const std::string& file);

// Calls `found` with each first name of its expressions and the line that it stands on.
void for_each_name(const Template& tree,
                   const std::function<void(std::string_view name, int line)>& found);

// Errors: kBadConfig with the line.
Result<Type> type_of(const Template& tree, const TypeOf& names, const std::string& file);

// So many bytes may still be rendered; counts down.
struct RenderBudget {
  int64_t bytes_left = 0;
};
// Errors: kInvalidArgument; kDoesNotFit where the budget is used up.
Result<Json> render(const Template& tree, const ValueOf& names, RenderBudget& budget);

// What a value takes in memory, about: its texts, and some forty bytes a value.
int64_t approximate_bytes(const Json& value);

}  // namespace pelton::chain
