// The keywords, one function each. What a keyword says of a type that the value does not have is
// nothing; `constrained` says which types it does speak of.
#include <algorithm>
#include <cmath>

#include "grammar/decimal.h"
#include "grammar/schema_reader.h"
#include "grammar/schema_uri.h"

namespace pelton::grammar {
namespace {

Error invalid(const std::string& pointer, std::string what) {
  return {ErrorCode::kInvalidArgument, std::move(what), pointer};
}

Error unsupported_at(const std::string& pointer, std::string what) {
  return {ErrorCode::kUnsupported, std::move(what), pointer};
}

Error at_pointer(Error error, const std::string& pointer) {
  error.field = pointer;
  return error;
}

constexpr size_t kEnumMax = 200'000;

// Of two numbers beyond 64 bits, which are read as doubles, those that may have been written in
// more digits than a double has: whether they were the same nobody knows any more.
bool are_one_double(const Json& a, const Json& b) {
  constexpr double kInt64End = 9223372036854775808.0;
  constexpr size_t kExactDigits = 15;
  return a.is_number() && b.is_number() && a.as_number() == b.as_number() &&
         std::abs(a.as_number()) >= kInt64End && decimal_of(a).digits.size() > kExactDigits;
}

Error one_double(const std::string& pointer) {
  return {ErrorCode::kUnsupported,
          "numbers beyond 64 bits that are equal as doubles are not supported", pointer};
}

}  // namespace

Result<uint64_t> SchemaReader::size(const Json& json, const std::string& pointer) const {
  if (json.is_integer() && json.as_integer() >= 0) return static_cast<uint64_t>(json.as_integer());
  if (json.is_number() && json.as_number() >= 0 &&
      std::floor(json.as_number()) == json.as_number()) {
    return json.as_number() < 9e18 ? static_cast<uint64_t>(json.as_number()) : kNoBound - 1;
  }
  return invalid(pointer, "must be an integer, 0 or more");
}

Result<std::vector<std::string>> SchemaReader::names(const Json& json,
                                                     const std::string& pointer) const {
  if (!json.is_array()) return invalid(pointer, "must be an array of names");
  std::vector<std::string> result;
  for (const Json& name : json.as_array()) {
    if (!name.is_string()) return invalid(pointer, "must be an array of names");
    result.push_back(name.as_string());
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

Result<void> SchemaReader::type(SchemaNode& node, const Json& json, const Place& at) {
  const std::string pointer = at.pointer + "/type";
  const Json::Array one = {json};
  if (!json.is_string() && !json.is_array()) return invalid(pointer, "must be a type's name");
  uint8_t types = 0;
  bool integer = false;
  bool number = false;
  for (const Json& name : json.is_array() ? json.as_array() : one) {
    if (!name.is_string()) return invalid(pointer, "must be a type's name, or several");
    const std::string& text = name.as_string();
    if (text == "null") {
      types |= kNullType;
    } else if (text == "boolean") {
      types |= kTrueType | kFalseType;
    } else if (text == "number") {
      types |= kNumberType;
      number = true;
    } else if (text == "integer") {
      types |= kNumberType;
      integer = true;
    } else if (text == "string") {
      types |= kStringType;
    } else if (text == "array") {
      types |= kArrayType;
    } else if (text == "object") {
      types |= kObjectType;
    } else {
      return invalid(pointer, "no type is called " + text);
    }
  }
  node.types &= types;
  if (integer && !number) {
    node.numbers.push_back(draft_ == Draft::k4 ? whole_numbers() : integers());
    node.constrained |= kNumberType;
  }
  return {};
}

Result<void> SchemaReader::enum_(SchemaNode& node, const Json& json, const Place& at) {
  const std::string pointer = at.pointer + "/enum";
  if (!json.is_array()) return invalid(pointer, "must be an array of values");
  if (node.has_enum) {
    // A const beside it: both hold.
    SchemaNode other;
    other.pointer = pointer;
    TRY(add_enum(other, json.as_array(), pointer, 0));
    node.all_of.push_back(graph_.add(std::move(other)));
    return {};
  }
  return add_enum(node, json.as_array(), pointer, 0);
}

Result<void> SchemaReader::const_(SchemaNode& node, const Json& json, const Place& at) {
  TRY_ASSIGN(const NodeId id, constant(json, at.pointer + "/const", 0));
  node.all_of.push_back(id);
  return {};
}

// The schema of one value. What is in it is listed, so that nothing else may be.
Result<NodeId> SchemaReader::constant(const Json& value, const std::string& pointer, int depth) {
  if (!budget_.step(4) || !budget_.take(sizeof(SchemaNode)) || depth > Json::kDepthMax) {
    return Error{ErrorCode::kDoesNotFit, "the schema is too large", pointer};
  }
  SchemaNode node;
  node.pointer = pointer;
  if (value.is_object()) {
    node.types = node.constrained = kObjectType;
    node.additional = kFalseSchema;
    for (const Json::Member& member : value.as_object()) {
      TRY_ASSIGN(node.properties[member.key], constant(member.value, pointer, depth + 1));
      node.required.push_back(member.key);
    }
    std::sort(node.required.begin(), node.required.end());
  } else if (value.is_array()) {
    node.types = node.constrained = kArrayType;
    for (const Json& item : value.as_array()) {
      TRY_ASSIGN(const NodeId id, constant(item, pointer, depth + 1));
      node.prefix.push_back(id);
    }
    node.items_min = node.items_max = node.prefix.size();
  } else {
    TRY(add_enum(node, {value}, pointer, depth));
  }
  return graph_.add(std::move(node));
}

Result<void> SchemaReader::add_enum(SchemaNode& node, const Json::Array& values,
                                    const std::string& pointer, int depth) {
  if (values.size() > kEnumMax) {
    return Error{ErrorCode::kDoesNotFit, "more values than the limit of 200000", pointer};
  }
  node.has_enum = true;
  std::vector<std::string> texts;
  std::vector<Json> numbers;
  for (const Json& value : values) {
    if (value.is_null()) {
      node.enum_literals |= kNullType;
    } else if (value.is_bool()) {
      node.enum_literals |= value.as_bool() ? kTrueType : kFalseType;
    } else if (value.is_string()) {
      texts.push_back(value.as_string());
    } else if (value.is_number()) {
      numbers.push_back(value);
    } else {
      TRY_ASSIGN(const NodeId id, constant(value, pointer, depth + 1));
      node.enum_nodes.push_back(id);
    }
  }
  if (!texts.empty()) {
    DfaLimits limits;
    limits.states_max = 200'000;
    limits.deadline = budget_.deadline;
    Result<ByteDfa> dfa = ByteDfa::any_of(texts, limits);
    if (!dfa.ok()) return at_pointer(std::move(dfa).error(), pointer);
    if (!budget_.take(dfa->bytes_held() * 2)) {
      return Error{ErrorCode::kDoesNotFit, "too many values", pointer};
    }
    node.enum_texts = std::make_shared<const ByteDfa>(std::move(*dfa));
  }
  std::ranges::sort(numbers, {}, &Json::as_number);
  if (std::ranges::adjacent_find(numbers, are_one_double) != numbers.end()) {
    return one_double(pointer);
  }
  if (!numbers.empty()) {
    Result<Language> language = numbers_among(numbers);
    if (!language.ok()) return at_pointer(std::move(language).error(), pointer);
    node.enum_numbers = std::move(*language);
  }
  return {};
}

Result<void> SchemaReader::pattern(SchemaNode& node, const Json& json, const Place& at) {
  const std::string pointer = at.pointer + "/pattern";
  if (!json.is_string()) return invalid(pointer, "must be a string");
  Result<Language> language = texts_matching(json.as_string(), budget_.deadline);
  if (!language.ok()) return at_pointer(std::move(language).error(), pointer);
  if (!budget_.step(1) || !budget_.take((*language)->bytes_held())) {
    return Error{ErrorCode::kDoesNotFit, "the schema's patterns are too large", pointer};
  }
  node.texts.push_back(std::move(*language));
  node.constrained |= kStringType;
  return {};
}

Result<void> SchemaReader::format(SchemaNode& node, const Json& json, const Place& at) {
  const std::string pointer = at.pointer + "/format";
  if (!json.is_string()) return invalid(pointer, "must be a string");
  std::optional<Result<Language>> language = texts_of_format(json.as_string());
  if (!language) return {};
  if (draft_ == Draft::k2020 || draft_ == Draft::k2019) {
    // These drafts leave open whether a format asserts anything. With a string's type beside it
    // somebody means it to; alone it could be either, and we do not guess.
    const Json* type = at.json->find("type");
    if (type == nullptr) {
      return unsupported_at(pointer,
                            "in this draft a format by itself asserts nothing; give \"type\": "
                            "\"string\" beside it to have it hold");
    }
  }
  if (!language->ok()) return at_pointer(std::move(*language).error(), pointer);
  node.texts.push_back(std::move(**language));
  node.constrained |= kStringType;
  return {};
}

Result<void> SchemaReader::min_length(SchemaNode& node, const Json& json, const Place& at) {
  TRY_ASSIGN(node.chars_min, size(json, at.pointer + "/minLength"));
  if (node.chars_min > 0) node.constrained |= kStringType;
  return {};
}

Result<void> SchemaReader::max_length(SchemaNode& node, const Json& json, const Place& at) {
  TRY_ASSIGN(node.chars_max, size(json, at.pointer + "/maxLength"));
  node.constrained |= kStringType;
  return {};
}

// All four bounds at once, whichever comes first. In draft 4 "exclusive" is a flag beside the
// bound.
Result<void> SchemaReader::bounds(SchemaNode& node, const Json&, const Place& at) {
  if ((node.constrained & kNumberType) != 0 && node.bounds_read) return {};
  node.bounds_read = true;
  struct Bound {
    std::string_view keyword;
    std::string_view exclusive;
    bool upper;
  };
  for (const Bound& bound :
       {Bound{"minimum", "exclusiveMinimum", false}, Bound{"maximum", "exclusiveMaximum", true}}) {
    const Json* plain = at.json->find(bound.keyword);
    const Json* exclusive = at.json->find(bound.exclusive);
    const bool flag = exclusive != nullptr && exclusive->is_bool() && exclusive->as_bool();
    const auto add = [&](const Json& value, std::string_view keyword,
                         bool excluded) -> Result<void> {
      const std::string pointer = at.pointer + pointer_token(keyword);
      if (!value.is_number()) return invalid(pointer, "must be a number");
      NumberBounds within;
      (bound.upper ? within.maximum : within.minimum) = value;
      (bound.upper ? within.maximum_excluded : within.minimum_excluded) = excluded;
      Result<Language> language = numbers_within(within);
      if (!language.ok()) return at_pointer(std::move(language).error(), pointer);
      node.numbers.push_back(std::move(*language));
      return {};
    };
    if (plain != nullptr) TRY(add(*plain, bound.keyword, flag));
    const Json* other = at.json->find(bound.upper ? "minimum" : "maximum");
    if (plain != nullptr && other != nullptr && are_one_double(*plain, *other)) {
      return one_double(at.pointer + pointer_token(bound.keyword));
    }
    if (exclusive != nullptr && !exclusive->is_bool()) {
      TRY(add(*exclusive, bound.exclusive, true));
    }
  }
  node.constrained |= kNumberType;
  return {};
}

Result<void> SchemaReader::multiple_of(SchemaNode& node, const Json& json, const Place& at) {
  const std::string pointer = at.pointer + "/multipleOf";
  if (!json.is_number() || json.as_number() <= 0) {
    return invalid(pointer, "must be a number above 0");
  }
  Result<Language> language = multiples_of(json);
  if (!language.ok()) return at_pointer(std::move(language).error(), pointer);
  node.numbers.push_back(std::move(*language));
  node.multiples = true;
  node.constrained |= kNumberType;
  return {};
}

Result<void> SchemaReader::properties(SchemaNode& node, const Json& json, const Place& at) {
  if (!json.is_object()) return invalid(at.pointer + "/properties", "must be an object of schemas");
  for (const Json::Member& member : json.as_object()) {
    TRY_ASSIGN(node.properties[member.key], child(member.value, at, "properties", member.key));
  }
  node.constrained |= kObjectType;
  return {};
}

Result<void> SchemaReader::pattern_properties(SchemaNode& node, const Json& json, const Place& at) {
  const std::string pointer = at.pointer + "/patternProperties";
  if (!json.is_object()) return invalid(pointer, "must be an object of schemas");
  for (const Json::Member& member : json.as_object()) {
    Result<Language> keys = texts_matching(member.key, budget_.deadline);
    if (!keys.ok()) return at_pointer(std::move(keys).error(), pointer + pointer_token(member.key));
    TRY_ASSIGN(const NodeId value, child(member.value, at, "patternProperties", member.key));
    node.patterns.push_back({.keys = std::move(*keys), .value = value});
  }
  node.constrained |= kObjectType;
  return {};
}

Result<void> SchemaReader::additional_properties(SchemaNode& node, const Json& json,
                                                 const Place& at) {
  TRY_ASSIGN(node.additional, child(json, at, "additionalProperties"));
  node.constrained |= kObjectType;
  return {};
}

Result<void> SchemaReader::property_names(SchemaNode& node, const Json& json, const Place& at) {
  TRY_ASSIGN(node.names, child(json, at, "propertyNames"));
  node.constrained |= kObjectType;
  return {};
}

Result<void> SchemaReader::required(SchemaNode& node, const Json& json, const Place& at) {
  TRY_ASSIGN(node.required, names(json, at.pointer + "/required"));
  if (!node.required.empty()) node.constrained |= kObjectType;
  return {};
}

Result<void> SchemaReader::min_properties(SchemaNode& node, const Json& json, const Place& at) {
  TRY_ASSIGN(node.members_min, size(json, at.pointer + "/minProperties"));
  if (node.members_min > 0) node.constrained |= kObjectType;
  return {};
}

Result<void> SchemaReader::max_properties(SchemaNode& node, const Json& json, const Place& at) {
  TRY_ASSIGN(node.members_max, size(json, at.pointer + "/maxProperties"));
  node.constrained |= kObjectType;
  return {};
}

Result<void> SchemaReader::dependencies(SchemaNode& node, const Json& json, const Place& at) {
  const std::string pointer = at.pointer + "/dependencies";
  if (!json.is_object()) return invalid(pointer, "must be an object");
  for (const Json::Member& member : json.as_object()) {
    if (member.value.is_array()) {
      TRY_ASSIGN(node.needs[member.key], names(member.value, pointer + pointer_token(member.key)));
    } else if (member.value.is_string()) {  // draft 3's way for one name
      node.needs[member.key] = {member.value.as_string()};
    } else {
      TRY_ASSIGN(node.dependent[member.key], child(member.value, at, "dependencies", member.key));
    }
  }
  node.constrained |= kObjectType;
  return {};
}

Result<void> SchemaReader::dependent_required(SchemaNode& node, const Json& json, const Place& at) {
  const std::string pointer = at.pointer + "/dependentRequired";
  if (!json.is_object()) return invalid(pointer, "must be an object");
  for (const Json::Member& member : json.as_object()) {
    TRY_ASSIGN(std::vector<std::string> needed,
               names(member.value, pointer + pointer_token(member.key)));
    std::vector<std::string>& all = node.needs[member.key];
    all.insert(all.end(), needed.begin(), needed.end());
  }
  node.constrained |= kObjectType;
  return {};
}

Result<void> SchemaReader::dependent_schemas(SchemaNode& node, const Json& json, const Place& at) {
  if (!json.is_object()) return invalid(at.pointer + "/dependentSchemas", "must be an object");
  for (const Json::Member& member : json.as_object()) {
    TRY_ASSIGN(const NodeId value, child(member.value, at, "dependentSchemas", member.key));
    if (const auto there = node.dependent.find(member.key); there != node.dependent.end()) {
      SchemaNode both;
      both.all_of = {there->second, value};
      there->second = graph_.add(std::move(both));
    } else {
      node.dependent[member.key] = value;
    }
  }
  node.constrained |= kObjectType;
  return {};
}

// What in-place applicators evaluate depends on which of them hold; without any, it is what
// additionalProperties leaves over.
Result<void> SchemaReader::unevaluated_properties(SchemaNode& node, const Json& json,
                                                  const Place& at) {
  if (json.is_bool() && json.as_bool()) return {};
  for (const std::string_view keyword :
       {"$ref", "allOf", "anyOf", "oneOf", "if", "not", "dependentSchemas", "dependencies"}) {
    if (at.json->find(keyword) == nullptr) continue;
    return unsupported_at(at.pointer + "/unevaluatedProperties",
                          "not supported beside " + std::string(keyword));
  }
  if (at.json->find("additionalProperties") != nullptr) return {};
  TRY_ASSIGN(node.additional, child(json, at, "unevaluatedProperties"));
  node.constrained |= kObjectType;
  return {};
}

Result<void> SchemaReader::unevaluated_items(SchemaNode& node, const Json& json, const Place& at) {
  if (json.is_bool() && json.as_bool()) return {};
  for (const std::string_view keyword :
       {"$ref", "allOf", "anyOf", "oneOf", "if", "not", "contains", "dependentSchemas"}) {
    if (at.json->find(keyword) == nullptr) continue;
    return unsupported_at(at.pointer + "/unevaluatedItems",
                          "not supported beside " + std::string(keyword));
  }
  const Json* items = at.json->find("items");
  if (items != nullptr && !items->is_array()) return {};
  if (at.json->find("additionalItems") != nullptr) return {};
  TRY_ASSIGN(node.items, child(json, at, "unevaluatedItems"));
  node.constrained |= kArrayType;
  return {};
}

// Before 2020-12 an array of schemas stands here, and `additionalItems` is what `items` is now.
Result<void> SchemaReader::items(SchemaNode& node, const Json& json, const Place& at) {
  node.constrained |= kArrayType;
  if (!json.is_array()) {
    TRY_ASSIGN(node.items, child(json, at, "items"));
    return {};
  }
  if (draft_ == Draft::k2020 || at.json->find("prefixItems") != nullptr) {
    return invalid(at.pointer + "/items", "must be a schema; prefixItems holds several");
  }
  TRY_ASSIGN(node.prefix, children(json, at, "items"));
  if (const Json* rest = at.json->find("additionalItems"); rest != nullptr) {
    TRY_ASSIGN(node.items, child(*rest, at, "additionalItems"));
  }
  return {};
}

Result<void> SchemaReader::prefix_items(SchemaNode& node, const Json& json, const Place& at) {
  TRY_ASSIGN(node.prefix, children(json, at, "prefixItems"));
  node.constrained |= kArrayType;
  return {};
}

Result<void> SchemaReader::contains(SchemaNode& node, const Json& json, const Place& at) {
  SchemaNode::Contains contains;
  TRY_ASSIGN(contains.item, child(json, at, "contains"));
  if (draft_ >= Draft::k2019) {
    if (const Json* min = at.json->find("minContains"); min != nullptr) {
      TRY_ASSIGN(contains.min, size(*min, at.pointer + "/minContains"));
    }
    if (const Json* max = at.json->find("maxContains"); max != nullptr) {
      TRY_ASSIGN(contains.max, size(*max, at.pointer + "/maxContains"));
    }
  }
  if (contains.min == 0 && contains.max == kNoBound) return {};
  node.contains.push_back(contains);
  node.constrained |= kArrayType;
  return {};
}

Result<void> SchemaReader::min_items(SchemaNode& node, const Json& json, const Place& at) {
  TRY_ASSIGN(node.items_min, size(json, at.pointer + "/minItems"));
  if (node.items_min > 0) node.constrained |= kArrayType;
  return {};
}

Result<void> SchemaReader::max_items(SchemaNode& node, const Json& json, const Place& at) {
  TRY_ASSIGN(node.items_max, size(json, at.pointer + "/maxItems"));
  node.constrained |= kArrayType;
  return {};
}

Result<void> SchemaReader::unique_items(SchemaNode& node, const Json& json, const Place& at) {
  if (!json.is_bool()) return invalid(at.pointer + "/uniqueItems", "must be true or false");
  if (!json.as_bool()) return {};
  node.unique = true;
  node.constrained |= kArrayType;
  graph_.uses_unique_ = true;
  return {};
}

Result<void> SchemaReader::ref(SchemaNode& node, const Json& json, const Place& at) {
  if (!json.is_string()) return invalid(at.pointer + "/$ref", "must be a string");
  TRY_ASSIGN(Place target, target_of(json.as_string(), at));
  TRY_ASSIGN(const NodeId id, node_at(std::move(target)));
  node.all_of.push_back(id);
  return {};
}

Result<void> SchemaReader::all_of(SchemaNode& node, const Json& json, const Place& at) {
  TRY_ASSIGN(const std::vector<NodeId> nodes, children(json, at, "allOf"));
  node.all_of.insert(node.all_of.end(), nodes.begin(), nodes.end());
  return {};
}

Result<void> SchemaReader::any_of(SchemaNode& node, const Json& json, const Place& at) {
  TRY_ASSIGN(std::vector<NodeId> nodes, children(json, at, "anyOf"));
  if (nodes.empty()) return invalid(at.pointer + "/anyOf", "must not be empty");
  node.any_of.push_back(std::move(nodes));
  return {};
}

Result<void> SchemaReader::one_of(SchemaNode& node, const Json& json, const Place& at) {
  TRY_ASSIGN(std::vector<NodeId> nodes, children(json, at, "oneOf"));
  if (nodes.empty()) return invalid(at.pointer + "/oneOf", "must not be empty");
  node.one_of.push_back(std::move(nodes));
  return {};
}

Result<void> SchemaReader::not_(SchemaNode& node, const Json& json, const Place& at) {
  TRY_ASSIGN(node.not_, child(json, at, "not"));
  return {};
}

Result<void> SchemaReader::if_(SchemaNode& node, const Json& json, const Place& at) {
  const Json* then_part = at.json->find("then");
  const Json* else_part = at.json->find("else");
  if (then_part == nullptr && else_part == nullptr) return {};
  TRY_ASSIGN(node.if_, child(json, at, "if"));
  node.then_ = node.else_ = kTrueSchema;
  if (then_part != nullptr) {
    TRY_ASSIGN(node.then_, child(*then_part, at, "then"));
  }
  if (else_part != nullptr) {
    TRY_ASSIGN(node.else_, child(*else_part, at, "else"));
  }
  return {};
}

Result<void> SchemaReader::unsupported(SchemaNode&, const Json&, const Place& at) {
  for (const std::string_view keyword :
       {"$dynamicRef", "$recursiveRef", "disallow", "divisibleBy", "extends"}) {
    if (at.json->find(keyword) == nullptr) continue;
    return unsupported_at(at.pointer + pointer_token(keyword),
                          std::string(keyword) + " is not supported");
  }
  return {};
}

}  // namespace pelton::grammar
