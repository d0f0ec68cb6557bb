// What a chain's values are, as far as that is known before it runs: the types of its input, of
// what steps give, and of expressions. Values, pure functions.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace pelton::chain {

struct Type {
  enum class Kind { kAny, kText, kNumber, kInteger, kBoolean, kList, kObject };
  struct Field;

  Kind kind = Kind::kAny;
  bool optional = false;             // may be null
  std::shared_ptr<const Type> item;  // kList
  std::vector<Field> fields;         // kObject; none: whichever it has

  static Type of(Kind kind);
  static Type list(Type item);
  static Type object(std::vector<Field> fields);
  Type or_null() const;  // the same, optional

  // A field's type; null: it has none of that name.
  const Type* find(std::string_view name) const;
  std::vector<std::string> field_names() const;
};

struct Type::Field {
  std::string name;
  Type type;
};

// Where a field is complete: clang wants that of what is inline.
inline Type Type::of(Kind kind) {
  return {.kind = kind, .optional = false, .item = {}, .fields = {}};
}

// "string", "number", "integer", "boolean", "object", "any", "[string]", each with "?" behind it
// where it may be missing. None: it is no such text.
std::optional<Type> parse_type(std::string_view text);
// As parse_type() reads it; of objects with their fields: "object {text, usage}".
std::string type_text(const Type& type);

// Whether a value of the second may stand where the first is asked for; what only shows when the
// chain runs is taken.
bool accepts(const Type& wanted, const Type& given);
// Whether a value is of that type.
bool holds(const Type& type, const Json& value);

}  // namespace pelton::chain
