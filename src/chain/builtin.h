// The functions that steps of kind builtin: call. Pure; each is bounded by its arguments, which are
// bounded before.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "chain/value_type.h"

namespace pelton::chain {

struct Builtin {
  struct Parameter {
    std::string_view name;
    Type type;  // optional: it may be left out
  };

  std::string_view name;
  std::string_view summary;  // one line
  std::vector<Parameter> parameters;
  Type result;
  // The arguments are of the parameters' types. Errors: kInvalidArgument.
  Result<Json> (*function)(const Json& arguments);

  const Parameter* find(std::string_view parameter) const;
};

const std::vector<Builtin>& builtins();
const Builtin* find_builtin(std::string_view name);  // null: there is none

}  // namespace pelton::chain
