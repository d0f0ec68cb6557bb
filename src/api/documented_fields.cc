#include "api/documented_fields.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "api/documented_objects.h"
#include "base/split.h"

namespace pelton::api {
namespace {

using Effect = DocumentedField::Effect;

const DocumentedField* documented(std::string_view name) {
  const std::span<const DocumentedField> all = documented_fields();
  const auto found = std::ranges::lower_bound(all, name, {}, &DocumentedField::name);
  return found != all.end() && found->name == name ? &*found : nullptr;
}

// Whether `value` is of one of these JSON types.
bool is_of_type(std::string_view types, const Json& value) {
  if (value.is_bool()) return has_word(types, "boolean");
  if (value.is_string()) return has_word(types, "string");
  if (value.is_array()) return has_word(types, "array");
  if (value.is_object()) return has_word(types, "object");
  return has_word(types, "number") || (has_word(types, "integer") && exact_integer(value));
}

bool is_neutral_word(std::string_view word, const Json& value) {
  if (value.is_string()) return value.as_string() == word;
  if (value.is_bool()) return word == (value.as_bool() ? "true" : "false");
  if (!value.is_number()) return false;
  double number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size() && number == value.as_number();
}

bool is_neutral(std::string_view words, const Json& value) {
  return std::ranges::any_of(base::split_skipping_empty(words, ' '),
                             [&](std::string_view word) { return is_neutral_word(word, value); });
}

// "user or tool", of "user tool".
std::string alternatives(std::string_view words) {
  std::string text;
  for (const char c : words) text += c == ' ' ? std::string(" or ") : std::string(1, c);
  return text;
}

// The end of a range, or nothing where that is open.
std::optional<double> range_end(std::string_view text) {
  double end = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), end);
  return error == std::errc() && !text.empty() ? std::optional(end) : std::nullopt;
}

// What `value` must be that it is not: "at least -1", "'auto' or 'default'"; empty: it is. Of
// "0..1" and 1.5 that is "at most 1".
std::string broken_rule(std::string_view allowed, const Json& value) {
  const size_t dots = allowed.find("..");
  if (dots == std::string_view::npos) {
    if (allowed.empty() || !value.is_string() || has_word(allowed, value.as_string())) return "";
    return fmt::format("'{}'", fmt::join(base::split_skipping_empty(allowed, ' '), "' or '"));
  }
  if (!value.is_number() && !value.is_string()) return "";
  const double size =
      value.is_number() ? value.as_number() : static_cast<double>(value.as_string().size());
  const std::string_view unit = value.is_string() ? " bytes long" : "";
  const auto low = range_end(allowed.substr(0, dots));
  const auto high = range_end(allowed.substr(dots + 2));
  if (low && !(size >= *low)) return fmt::format("at least {}{}", *low, unit);
  if (high && !(size <= *high)) return fmt::format("at most {}{}", *high, unit);
  return "";
}

bool asks_for_nothing(const DocumentedField& field, const Json& value) {
  if (field.effect == Effect::kNever) return false;
  if (value.is_object()) return value.as_object().empty();
  if (value.is_array()) {
    return std::ranges::all_of(value.as_array(), [&](const Json& item) {
      return !item.is_object() && !item.is_array() && is_neutral(field.neutral, item);
    });
  }
  if (value.is_string() && value.as_string().empty()) return true;
  if (value.is_bool() && !value.as_bool() && field.neutral != "true") return true;
  return is_neutral(field.neutral, value);
}

bool has_no_effect(const DocumentedField& field) {
  return field.effect == Effect::kNone || field.effect == Effect::kBeside;
}

constexpr size_t kShownMax = 64;  // bytes of a path that is not ours

std::string printable(std::string_view path) {
  std::string shown(path.substr(0, kShownMax));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c <= 0x20 || c >= 0x7F; }, '?');
  return shown;
}

// Where an object stands in the body. Written out only for what is refused or named in a warning:
// a body may have a million objects.
struct Place {
  const Place* parent = nullptr;  // null: the body itself
  std::string_view key;           // in the parent
  std::optional<size_t> index;    // of an item, where that is an array

  std::string member(std::string_view name) const {
    if (parent == nullptr) return std::string(name);
    std::string path = parent->member(key);
    if (index) path = item_path(path, *index);
    return fmt::format("{}.{}", path, name);
  }
};

// Says what becomes of each member that is not read. Of {"messages": [{"role": "user", "content":
// "x", "colour": 1}], "top_a": 0}: top_a is documented and changes the answer, but 0 is neutral, so
// nothing; the object's pattern is "messages[]", whose table has no colour: "messages[0].colour
// ignored: an unknown field". With "top_a": 0.5 the body is refused.
class UnreadCheck {
 public:
  UnreadCheck(const Fields& body, BodyKind kind, UnknownFields unknown,
              std::vector<std::string>& warnings)
      : body_(body),
        makes_vectors_(kind == BodyKind::kVectors),
        objects_(documented_objects(kind)),
        unknown_(unknown),
        warnings_(warnings) {}

  void check(const DocumentedField* field, const Place& place, std::string_view key,
             const Json& value) {
    if (body_.failed()) return;
    if (field == nullptr) {
      meet_unknown(place, key);
    } else if (!field->types.empty() && !is_of_type(field->types, value)) {
      const std::string path = place.member(key);
      body_.refuse(path, fmt::format("'{}' must be of the type {}, not {}", body_.path(path),
                                     alternatives(field->types), value.kind_name()));
    } else if (const std::string rule = broken_rule(field->allowed, value); !rule.empty()) {
      const std::string path = place.member(key);
      body_.refuse(path, fmt::format("'{}' must be {}", body_.path(path), rule));
    } else if (has_no_effect(*field) || asks_for_nothing(*field, value)) {
      return;
    } else if (field->effect == Effect::kStyle ||
               (field->effect == Effect::kText && makes_vectors_)) {
      warn(place, key, "this endpoint does not do it");
    } else {
      const std::string path = place.member(key);
      body_.refuse(path, fmt::format("'{}' is not supported at this endpoint", body_.path(path)));
    }
  }

  // The objects in `parent`, whose own pattern is pattern_.
  void descend(const Json& parent, const Place& place) {
    for (const Json::Member& member : parent.as_object()) {
      const bool is_array = member.value.is_array();
      if (!is_array && !member.value.is_object()) continue;
      const size_t length = pattern_.size();
      if (length > 0) pattern_ += '.';
      pattern_ += member.key;
      if (is_array) pattern_ += "[]";
      if (const DocumentedObject* object = documented_object()) {
        Place inner{.parent = &place, .key = member.key, .index = {}};
        if (!is_array) check_object(*object, member.value, inner);
        const size_t item_count = is_array ? member.value.as_array().size() : 0;
        for (size_t i = 0; i < item_count && !body_.failed(); ++i) {
          inner.index = i;
          check_object(*object, member.value.as_array()[i], inner);
        }
      }
      pattern_.resize(length);
    }
  }

 private:
  const DocumentedObject* documented_object() const {
    const auto found = std::ranges::find(objects_, pattern_, &DocumentedObject::path);
    return found == objects_.end() ? nullptr : &*found;
  }

  void check_object(const DocumentedObject& object, const Json& value, const Place& place) {
    if (!value.is_object()) return;
    const Json* type = object.types.empty() ? nullptr : value.find("type");
    if (type != nullptr && type->is_string() && !has_word(object.types, type->as_string())) return;
    const std::string_view decided =
        object.conditional.empty() ? std::string_view() : decided_in(object, value);
    for (const Json::Member& member : value.as_object()) {
      if (member.value.is_null()) continue;
      if (has_word(object.obeyed, member.key)) {
        check_condition(object, decided, place, member);
        continue;
      }
      const auto field = std::ranges::find(object.others, member.key, &DocumentedField::name);
      check(field == object.others.end() ? nullptr : &*field, place, member.key, member.value);
    }
    descend(value, place);
  }

  static std::string_view decided_in(const DocumentedObject& object, const Json& value) {
    const Json* decider = value.find(object.decider);
    if (decider == nullptr || decider->is_null()) return object.decider_default;
    if (decider->is_bool()) return decider->as_bool() ? "true" : "false";
    return decider->is_string() ? std::string_view(decider->as_string()) : std::string_view();
  }

  void check_condition(const DocumentedObject& object, std::string_view decided, const Place& place,
                       const Json::Member& member) {
    const auto found = std::ranges::find(object.conditional, member.key, &ConditionalMember::name);
    if (found == object.conditional.end() || has_word(found->values, decided)) return;
    if (asks_for_nothing({.name = found->name, .neutral = {}}, member.value)) return;
    if (warned_ >= kFieldWarningsMax) return;
    warn(place, member.key,
         fmt::format("only read where '{}' is {}", object.decider, alternatives(found->values)));
  }

  void meet_unknown(const Place& place, std::string_view key) {
    if (unknown_ == UnknownFields::kWarn) return warn(place, key, "an unknown field");
    const std::string path = printable(place.member(key));
    body_.refuse(path, fmt::format("'{}' is an unknown field, and this server takes none "
                                   "(--strict-fields); see docs/request_fields.md",
                                   body_.path(path)));
  }

  void warn(const Place& place, std::string_view key, std::string_view why) {
    if (++warned_ > kFieldWarningsMax) return;
    warnings_.push_back(unread_warning(body_.path(place.member(key)), why));
  }

  const Fields& body_;
  const bool makes_vectors_;
  const std::span<const DocumentedObject> objects_;
  const UnknownFields unknown_;
  std::vector<std::string>& warnings_;
  size_t warned_ = 0;
  std::string pattern_;  // of the object that is looked at, as DocumentedObject::path has it
};

}  // namespace

std::string unread_warning(std::string_view path, std::string_view why) {
  return fmt::format("{} ignored: {}", printable(path), why);
}

void check_unread_fields(const Fields& body, BodyKind kind, UnknownFields unknown,
                         std::vector<std::string>& warnings) {
  UnreadCheck check(body, kind, unknown, warnings);
  const Place top;
  body.unread([&](const std::string& key, const Json& value) {
    check.check(documented(key), top, key, value);
  });
  if (!body.failed()) check.descend(body.json(), top);
}

}  // namespace pelton::api
