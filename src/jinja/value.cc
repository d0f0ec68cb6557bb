#include "jinja/value.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace pelton::jinja {
namespace {

// A value may be held more than once, so that weights grow without bound.
constexpr size_t kWeightMax = size_t{1} << 60;

template <typename T>
void hold(T& outer, const Value& inner) {
  outer.depth = std::max(outer.depth, inner.depth() + 1);
  outer.weight = std::min(outer.weight + inner.weight(), kWeightMax);
  outer.comparison = std::min(outer.comparison + inner.comparison(), kWeightMax);
}

bool same_members(const Dict& a, const Dict& b) {
  if (a.members.size() != b.members.size()) return false;
  return std::all_of(a.members.begin(), a.members.end(), [&](const auto& member) {
    const Value* other = b.find(member.first);
    return other != nullptr && *other == member.second;
  });
}

}  // namespace

std::optional<Value> Object::attribute(std::string_view) const {
  return std::nullopt;
}

Result<Value> Object::call(Runtime&, Arguments) {
  return failure(fmt::format("'{}' object is not callable", type_name()));
}

const Value* Dict::find(const Value& key) const {
  for (const auto& [name, value] : members) {
    if (name == key) return &value;
  }
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : members) {
    if (name.is_string() && name.as_string() == key) return &value;
  }
  return nullptr;
}

Value Value::undefined(std::string why) {
  return Undefined{std::make_shared<const std::string>(std::move(why))};
}

Result<Value> Value::list(std::vector<Value> items) {
  return sequence(std::move(items), false);
}

Result<Value> Value::sequence(std::vector<Value> items, bool is_tuple) {
  auto list = std::make_shared<List>();
  list->is_tuple = is_tuple;
  for (const Value& item : items) hold(*list, item);
  if (list->depth > kValueDepthMax) return failure("lists nest too deeply");
  list->items = std::move(items);
  Value value;
  value.value_ = std::shared_ptr<const List>(std::move(list));
  return value;
}

Result<Value> Value::tuple(std::vector<Value> items) {
  return sequence(std::move(items), true);
}

Result<Value> Value::dict(Dict dict) {
  size_t of_keys = 0;  // beyond a step each
  for (const auto& [key, value] : dict.members) {
    hold(dict, key);
    hold(dict, value);
    of_keys = std::min(of_keys + key.comparison() - 1, kWeightMax / (size_t{1} << 24));
  }
  // Each key is looked for among the other's.
  const size_t members = std::min(dict.members.size(), size_t{1} << 24);
  dict.comparison =
      std::min(dict.comparison + members * members / 16 + members * of_keys, kWeightMax);
  if (dict.depth > kValueDepthMax) return failure("dicts nest too deeply");
  Value value;
  value.value_ = std::make_shared<const Dict>(std::move(dict));
  return value;
}

// As deep as a Json may be (Json::kDepthMax).
Value Value::from_json(const Json& json) {
  if (json.is_null()) return None{};
  if (json.is_bool()) return json.as_bool();
  if (json.is_integer()) return json.as_integer();
  if (json.is_number()) return json.as_number();
  if (json.is_string()) return input(json.as_string());
  if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.as_array().size());
    for (const Json& item : json.as_array()) items.push_back(from_json(item));
    return list(std::move(items)).value();
  }
  Dict out;
  out.members.reserve(json.as_object().size());
  for (const Json::Member& member : json.as_object()) {
    out.members.emplace_back(input(member.key), from_json(member.value));
  }
  return dict(std::move(out)).value();
}

Object* Value::object() const {
  const auto* held = std::get_if<std::shared_ptr<Object>>(&value_);
  return held == nullptr ? nullptr : held->get();
}

int64_t Value::as_integer() const {
  return is_bool() ? int64_t{as_bool()} : std::get<int64_t>(value_);
}

double Value::as_number() const {
  return is_float() ? std::get<double>(value_) : static_cast<double>(as_integer());
}

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return as_number() != 0;
  if (is_string()) return !as_text().empty();
  if (is_sequence()) return !as_list().items.empty();
  if (is_dict()) return !as_dict().members.empty();
  return true;
}

std::string_view Value::type_name() const {
  if (is_sequence()) return is_tuple() ? "tuple" : "list";
  if (Object* held = object()) return held->type_name();
  static constexpr std::string_view kNames[] = {"Undefined", "NoneType", "bool", "int",
                                                "float",     "str",      "list", "dict"};
  return kNames[value_.index()];
}

int Value::depth() const {
  if (is_sequence()) return as_list().depth;
  return is_dict() ? as_dict().depth : 0;
}

size_t Value::weight() const {
  if (is_sequence()) return as_list().weight;
  if (is_dict()) return as_dict().weight;
  return is_string() ? 1 + as_text().size() / 64 : 1;
}

size_t Value::comparison() const {
  if (is_sequence()) return as_list().comparison;
  return is_dict() ? as_dict().comparison : weight();
}

std::string Value::why_undefined() const {
  const Undefined& undefined = std::get<Undefined>(value_);
  return undefined.why ? *undefined.why : "a value is undefined";
}

bool operator==(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (!a.is_float() && !b.is_float()) return a.as_integer() == b.as_integer();
    return a.as_number() == b.as_number();
  }
  if (a.value_.index() != b.value_.index()) return false;
  if (a.is_string()) return a.as_string() == b.as_string();
  if (a.is_sequence()) {
    return a.as_list().is_tuple == b.as_list().is_tuple && a.as_list().items == b.as_list().items;
  }
  if (a.is_dict()) return same_members(a.as_dict(), b.as_dict());
  return a.object() == b.object();  // undefined and none: null is null
}

Error failure(std::string message) {
  return {.code = ErrorCode::kInvalidArgument, .message = std::move(message), .field = {}};
}

Result<bool> is_less(const Value& a, const Value& b) {
  if (a.is_undefined()) return failure(a.why_undefined());
  if (b.is_undefined()) return failure(b.why_undefined());
  if (a.is_number() && b.is_number()) {
    if (!a.is_float() && !b.is_float()) return a.as_integer() < b.as_integer();
    return a.as_number() < b.as_number();
  }
  if (a.is_string() && b.is_string()) return a.as_string() < b.as_string();
  if (a.is_sequence() && b.is_sequence() && a.is_tuple() == b.is_tuple()) {
    const std::vector<Value>& left = a.as_list().items;
    const std::vector<Value>& right = b.as_list().items;
    for (size_t i = 0; i < left.size() && i < right.size(); ++i) {
      if (!(left[i] == right[i])) return is_less(left[i], right[i]);
    }
    return left.size() < right.size();
  }
  return failure(fmt::format("'{}' and '{}' have no order", a.type_name(), b.type_name()));
}

Result<std::vector<const Value*>> bind(std::string_view function, const Arguments& arguments,
                                       std::initializer_list<std::string_view> parameters,
                                       size_t required) {
  std::vector<const Value*> bound(parameters.size(), nullptr);
  if (arguments.positional.size() > bound.size()) {
    return failure(fmt::format("{}() takes at most {} arguments, not {}", function, bound.size(),
                               arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto* const at = std::find(parameters.begin(), parameters.end(), name);
    if (at == parameters.end()) {
      return failure(fmt::format("{}() has no argument '{}'", function, name));
    }
    bound[static_cast<size_t>(at - parameters.begin())] = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound[i] == nullptr) {
      return failure(fmt::format("{}() needs its argument '{}'", function, parameters.begin()[i]));
    }
  }
  return bound;
}

}  // namespace pelton::jinja
