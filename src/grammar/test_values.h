// JSON values as tests of schemas look at them: which are equal, and which satisfy a schema. The
// keywords are those that random schemas are made of, each as JSON Schema has it.
#pragma once

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "grammar/decimal.h"

namespace pelton::grammar {

// Equal values have equal texts.
inline std::string canonical(const Json& value) {
  if (value.is_number()) {
    const Decimal decimal = decimal_of(value);
    return (decimal.negative ? "-" : "") + decimal.digits + "e" + std::to_string(decimal.point);
  }
  std::string text;
  if (value.is_array()) {
    for (const Json& item : value.as_array()) text += canonical(item) + ",";
    return "[" + text + "]";
  }
  if (!value.is_object()) return value.dump();
  std::vector<std::string> members;
  for (const auto& [key, member] : value.as_object()) {
    members.push_back(Json(key).dump() + ":" + canonical(member));
  }
  std::sort(members.begin(), members.end());
  for (const std::string& member : members) text += member + ",";
  return "{" + text + "}";
}

inline bool all_differ(const Json::Array& items) {
  std::set<std::string> different;
  for (const Json& item : items) different.insert(canonical(item));
  return different.size() == items.size();
}

// Whether values satisfy a schema of: type, enum, const, minimum, maximum, maxLength, "$ref" to a
// definition of its root, anyOf, allOf; items, prefixItems, minItems, maxItems, uniqueItems,
// contains, minContains, maxContains; properties, required, additionalProperties, propertyNames,
// minProperties, maxProperties, dependentRequired.
class SchemaChecker {
 public:
  explicit SchemaChecker(const Json& root) : root_(root) {}

  bool satisfies(const Json& value) const { return satisfies(value, root_); }

 private:
  using Array = Json::Array;

  // `refs`: so many references stand between the value's place and this schema. A schema that is
  // satisfied only if it is itself is satisfied by nothing.
  bool satisfies(const Json& value, const Json& schema, int refs = 0) const {
    if (schema.is_bool()) return schema.as_bool();
    if (const auto ref = schema.string("$ref")) {
      const std::string name = ref->substr(ref->rfind('/') + 1);
      const Json& definition = *root_.find("$defs")->find(name);
      if (refs > 4 || !satisfies(value, definition, refs + 1)) return false;
    }
    if (const Json* type = schema.find("type"); type && !has_type(value, *type)) return false;
    if (const Json* all = schema.find("enum")) {
      const auto same = [&](const Json& one) { return canonical(one) == canonical(value); };
      if (std::ranges::none_of(all->as_array(), same)) return false;
    }
    if (const Json* one = schema.find("const"); one && canonical(*one) != canonical(value))
      return false;
    const auto holds = [&](const Json& one) { return satisfies(value, one, refs); };
    const Json* any = schema.find("anyOf");
    if (any != nullptr && std::ranges::none_of(any->as_array(), holds)) return false;
    const Json* all = schema.find("allOf");
    if (all != nullptr && !std::ranges::all_of(all->as_array(), holds)) return false;
    if (value.is_number()) return in_range(value, schema);
    if (value.is_string()) return is_short(value.as_string(), schema);
    if (value.is_array()) return are_items(value.as_array(), schema);
    return !value.is_object() || are_members(value, schema);
  }

  static bool has_type(const Json& value, const Json& type) {
    if (type.is_array()) {
      return std::ranges::any_of(type.as_array(),
                                 [&](const Json& one) { return has_type(value, one); });
    }
    const std::string& name = type.as_string();
    if (name == "integer") return value.is_number() && is_whole(value.as_number());
    return (name == "null" && value.is_null()) || (name == "boolean" && value.is_bool()) ||
           (name == "number" && value.is_number()) || (name == "string" && value.is_string()) ||
           (name == "array" && value.is_array()) || (name == "object" && value.is_object());
  }

  // Of more than 15 digits the last ones are not what the text says (base/json_visitor.h).
  static bool is_whole(double value) {
    constexpr double kExact = 1e12;
    return std::abs(value) > kExact || std::floor(value) == value;
  }

  static bool in_range(const Json& value, const Json& schema) {
    const double number = value.as_number();
    return number >= schema.number("minimum").value_or(number) &&
           number <= schema.number("maximum").value_or(number);
  }

  static bool is_short(const std::string& text, const Json& schema) {
    const auto characters = std::ranges::count_if(
        text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
    return characters <= schema.integer("maxLength").value_or(characters);
  }

  bool are_items(const Array& items, const Json& schema) const {
    const auto count = static_cast<int64_t>(items.size());
    if (count < schema.integer("minItems").value_or(0)) return false;
    if (count > schema.integer("maxItems").value_or(count)) return false;
    if (schema.boolean("uniqueItems").value_or(false) && !all_differ(items)) return false;
    const Json* prefix = schema.find("prefixItems");
    const Json* rest = schema.find("items");
    for (size_t i = 0; i < items.size(); ++i) {
      const bool in_prefix = prefix != nullptr && i < prefix->as_array().size();
      const Json* item = in_prefix ? &prefix->as_array()[i] : rest;
      if (item != nullptr && !satisfies(items[i], *item)) return false;
    }
    const Json* contains = schema.find("contains");
    if (contains == nullptr) return true;
    const auto found =
        std::ranges::count_if(items, [&](const Json& item) { return satisfies(item, *contains); });
    return found >= schema.integer("minContains").value_or(1) &&
           found <= schema.integer("maxContains").value_or(found);
  }

  bool are_members(const Json& value, const Json& schema) const {
    const Json::Object& members = value.as_object();
    const auto count = static_cast<int64_t>(members.size());
    if (count < schema.integer("minProperties").value_or(0)) return false;
    if (count > schema.integer("maxProperties").value_or(count)) return false;
    const auto has_all = [&](const Json* keys) {
      return keys == nullptr || std::ranges::all_of(keys->as_array(), [&](const Json& key) {
               return value.find(key.as_string()) != nullptr;
             });
    };
    if (!has_all(schema.find("required"))) return false;
    const Json* properties = schema.find("properties");
    const Json* others = schema.find("additionalProperties");
    const Json* names = schema.find("propertyNames");
    const Json* needs = schema.find("dependentRequired");
    for (const auto& [key, member] : members) {
      if (names != nullptr && !satisfies(Json(key), *names)) return false;
      if (needs != nullptr && !has_all(needs->find(key))) return false;
      const Json* own = properties == nullptr ? nullptr : properties->find(key);
      const Json* meant = own != nullptr ? own : others;
      if (meant != nullptr && !satisfies(member, *meant)) return false;
    }
    return true;
  }

  const Json& root_;
};

}  // namespace pelton::grammar
