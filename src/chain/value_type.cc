#include "chain/value_type.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pelton::chain {
namespace {

using Kind = Type::Kind;

constexpr std::array<std::pair<std::string_view, Kind>, 6> kNames = {{{"any", Kind::kAny},
                                                                      {"string", Kind::kText},
                                                                      {"number", Kind::kNumber},
                                                                      {"integer", Kind::kInteger},
                                                                      {"boolean", Kind::kBoolean},
                                                                      {"object", Kind::kObject}}};
constexpr int kDepthMax = 8;

std::optional<Type> parse(std::string_view text, int depth) {
  if (depth == kDepthMax || text.empty()) return std::nullopt;
  if (text.ends_with('?')) {
    text.remove_suffix(1);
    if (text.ends_with('?')) return std::nullopt;
    const std::optional<Type> inner = parse(text, depth + 1);
    return inner ? std::optional(inner->or_null()) : std::nullopt;
  }
  if (text.starts_with('[') && text.ends_with(']') && text.size() > 2) {
    std::optional<Type> item = parse(text.substr(1, text.size() - 2), depth + 1);
    return item ? std::optional(Type::list(*std::move(item))) : std::nullopt;
  }
  for (const auto& [name, kind] : kNames) {
    if (name == text) return Type::of(kind);
  }
  return std::nullopt;
}

}  // namespace

Type Type::list(Type item) {
  Type list = of(Kind::kList);
  list.item = std::make_shared<const Type>(std::move(item));
  return list;
}

Type Type::object(std::vector<Field> fields) {
  Type object = of(Kind::kObject);
  object.fields = std::move(fields);
  return object;
}

Type Type::or_null() const {
  Type type = *this;
  type.optional = true;
  return type;
}

const Type* Type::find(std::string_view name) const {
  const auto found =
      std::ranges::find_if(fields, [&](const Field& field) { return field.name == name; });
  return found == fields.end() ? nullptr : &found->type;
}

std::vector<std::string> Type::field_names() const {
  std::vector<std::string> names;
  for (const Field& field : fields) names.push_back(field.name);
  return names;
}

std::optional<Type> parse_type(std::string_view text) {
  return parse(text, 0);
}

std::string type_text(const Type& type) {
  std::string text;
  if (type.kind == Kind::kList) {
    text = fmt::format("[{}]", type_text(*type.item));
  } else {
    for (const auto& [name, kind] : kNames) {
      if (kind == type.kind) text = name;
    }
    if (!type.fields.empty()) {
      text += fmt::format(" {{{}}}", fmt::join(type.field_names(), ", "));
    }
  }
  return type.optional ? text + "?" : text;
}

bool accepts(const Type& wanted, const Type& given) {
  if (given.optional && !wanted.optional && wanted.kind != Kind::kAny) return false;
  if (wanted.kind == Kind::kAny || given.kind == Kind::kAny) return true;
  if (wanted.kind == Kind::kNumber && given.kind == Kind::kInteger) return true;
  if (wanted.kind != given.kind) return false;
  if (wanted.kind == Kind::kList) return accepts(*wanted.item, *given.item);
  if (wanted.kind != Kind::kObject || given.fields.empty()) return true;
  return std::ranges::all_of(wanted.fields, [&](const Type::Field& field) {
    const Type* const there = given.find(field.name);
    return there == nullptr ? field.type.optional : accepts(field.type, *there);
  });
}

bool holds(const Type& type, const Json& value) {
  if (value.is_null()) return type.optional || type.kind == Kind::kAny;
  switch (type.kind) {
    case Kind::kAny:
      return true;
    case Kind::kText:
      return value.is_string();
    case Kind::kNumber:
      return value.is_number();
    case Kind::kInteger:
      return value.is_integer();
    case Kind::kBoolean:
      return value.is_bool();
    case Kind::kList:
      return value.is_array() && std::ranges::all_of(value.as_array(), [&](const Json& one) {
               return holds(*type.item, one);
             });
    case Kind::kObject:
      return value.is_object() && std::ranges::all_of(type.fields, [&](const Type::Field& field) {
               const Json* const there = value.find(field.name);
               return there == nullptr ? field.type.optional : holds(field.type, *there);
             });
  }
  return false;
}

}  // namespace pelton::chain
