#include "chat/simplified_schema.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pelton::chat {
namespace {

bool is_null_type(const Json& schema) {
  return schema.string("type") == "null";
}

// A type that one word says.
bool is_simple(const Json& schema) {
  const std::optional<std::string> type = schema.string("type");
  return type && *type != "object" && *type != "array" && schema.find("enum") == nullptr;
}

// How much copying `value` costs, in values; a long string counts as several.
int weight(const Json& value) {
  constexpr size_t kBytesPerValue = 64;
  int sum = 1;
  if (value.is_string()) sum += static_cast<int>(value.as_string().size() / kBytesPerValue);
  if (value.is_array()) {
    for (const Json& item : value.as_array()) sum += weight(item);
  }
  if (value.is_object()) {
    for (const Json::Member& member : value.as_object()) {
      sum += weight(member.value) + static_cast<int>(member.key.size() / kBytesPerValue);
    }
  }
  return sum;
}

class Simplifier {
 public:
  explicit Simplifier(const Json& root) : root_(root) {}

  // `value` is a schema, at this depth of the result.
  Json schema(const Json& value, int depth) {
    if (!spend(1) || depth > Json::kDepthMax) {
      exhausted_ = true;
      return Json(Json::Object{});
    }
    if (!value.is_object()) return value;
    if (const Json* target = referred(value)) {
      references_.push_back(target);
      Json out = merged(schema(*target, depth + 1), value);
      references_.pop_back();
      return out;
    }
    if (const Json* only = only_variant(value)) return merged(schema(*only, depth + 1), value);
    Json::Object out;
    for (const Json::Member& member : value.as_object()) add_member(out, member, depth);
    return Json(std::move(out));
  }

  bool exhausted() const { return exhausted_; }

 private:
  // The definition that "$ref" names; null if there is none, or if we are inside it already.
  const Json* referred(const Json& value) const {
    const std::optional<std::string> reference = value.string("$ref");
    if (!reference) return nullptr;
    for (const std::string_view folder : {"$defs", "definitions"}) {
      const std::string prefix = "#/" + std::string(folder) + "/";
      if (!reference->starts_with(prefix)) continue;
      const Json* definitions = root_.find(folder);
      const Json* target =
          definitions == nullptr ? nullptr : definitions->find(reference->substr(prefix.size()));
      if (target == nullptr || !target->is_object()) return nullptr;
      const bool inside =
          std::find(references_.begin(), references_.end(), target) != references_.end();
      return inside ? nullptr : target;
    }
    return nullptr;
  }

  // The one variant of an "anyOf" that is not null, or of an "allOf".
  static const Json* only_variant(const Json& value) {
    for (const std::string_view key : {"anyOf", "allOf"}) {
      const Json* variants = value.find(key);
      if (variants == nullptr || !variants->is_array()) continue;
      const Json* only = nullptr;
      for (const Json& variant : variants->as_array()) {
        if (is_null_type(variant)) continue;
        if (only != nullptr) return nullptr;
        only = &variant;
      }
      if (only != nullptr && only->is_object()) return only;
    }
    return nullptr;
  }

  // What stands beside a "$ref" or "anyOf" describes its place and wins over the variant's own.
  static Json merged(Json inner, const Json& around) {
    for (const std::string_view key : {"description", "default", "examples", "nullable"}) {
      const Json* value = around.find(key);
      if (value != nullptr && !value->is_null()) inner.set(key, *value);
    }
    return inner;
  }

  bool spend(int values) {
    nodes_ += values;
    if (nodes_ > kSimplifiedNodesMax) exhausted_ = true;
    return !exhausted_;
  }

  void add_member(Json::Object& out, const Json::Member& member, int depth) {
    const auto& [key, value] = member;
    if (key == "title" && value.is_string()) return;
    if (key == "default" && value.is_null()) return;
    if (key == "$defs" || key == "definitions") return;
    if (key == "anyOf" && value.is_array() &&
        std::all_of(value.as_array().begin(), value.as_array().end(), is_simple)) {
      out.push_back({"type", types_of(value.as_array())});
    } else if (key == "properties" && value.is_object()) {
      Json::Object properties;
      for (const Json::Member& property : value.as_object()) {
        properties.push_back({property.key, schema(property.value, depth + 2)});
      }
      out.push_back({key, Json(std::move(properties))});
    } else if (key == "items") {
      out.push_back({key, schema(value, depth + 1)});
    } else if ((key == "oneOf" || key == "anyOf") && value.is_array()) {
      Json::Array variants;
      for (const Json& variant : value.as_array()) variants.push_back(schema(variant, depth + 2));
      out.push_back({key, Json(std::move(variants))});
    } else if (spend(weight(value))) {
      out.push_back(member);
    }
  }

  // Each type once, null left out.
  static Json types_of(const Json::Array& variants) {
    Json::Array types;
    for (const Json& variant : variants) {
      Json type(*variant.string("type"));
      if (is_null_type(variant)) continue;
      if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
    }
    return types.size() == 1 ? types.front() : Json(std::move(types));
  }

  const Json& root_;
  std::vector<const Json*> references_;  // the definitions we are inside of
  int64_t nodes_ = 0;
  bool exhausted_ = false;
};

}  // namespace

Json simplified_schema(const Json& schema) {
  Simplifier simplifier(schema);
  Json out = simplifier.schema(schema, 0);
  return simplifier.exhausted() ? schema : out;
}

}  // namespace pelton::chat
