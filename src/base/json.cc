#include "base/json.h"

#include <cmath>

#include <fmt/format.h>

#include "base/json_visitor.h"
#include "base/json_writer.h"

namespace pelton {
Result<Json> Json::parse(std::string_view text) {
  const base::JsonSizes sizes = base::count_json(text, kValuesMax);
  base::JsonBuilder builder(kValuesMax, sizes.containers);
  const Result<void> visited = base::visit_json(text, builder);
  if (visited.ok()) return builder.take();
  if (visited.error().code != ErrorCode::kCancelled) return visited.error();
  return Error{ErrorCode::kInvalidArgument, fmt::format("JSON of more than {} values", kValuesMax)};
}

std::string_view Json::kind_name() const {
  static constexpr std::string_view kNames[] = {"null",     "a boolean", "an integer", "a number",
                                                "a string", "an array",  "an object"};
  return kNames[value_.index()];
}

double Json::as_number() const {
  return is_integer() ? static_cast<double>(as_integer()) : std::get<double>(value_);
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  const Object& members = as_object();
  for (auto member = members.rbegin(); member != members.rend(); ++member) {
    if (member->key == key) return &member->value;
  }
  return nullptr;
}

std::optional<bool> Json::boolean(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr || !found->is_bool()) return std::nullopt;
  return found->as_bool();
}

std::optional<int64_t> Json::integer(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr || !found->is_number()) return std::nullopt;
  if (found->is_integer()) return found->as_integer();
  const double value = found->as_number();
  if (value != std::floor(value) || std::abs(value) > 9.0e15) return std::nullopt;
  return static_cast<int64_t>(value);
}

std::optional<double> Json::number(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr || !found->is_number()) return std::nullopt;
  return found->as_number();
}

std::optional<std::string> Json::string(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr || !found->is_string()) return std::nullopt;
  return found->as_string();
}

Json& Json::set(std::string_view key, Json value) {
  if (is_null()) value_ = Object{};
  for (Member& member : as_object()) {
    if (member.key == key) {
      member.value = std::move(value);
      return *this;
    }
  }
  as_object().push_back({std::string(key), std::move(value)});
  return *this;
}

std::string Json::dump() const {
  std::string out;
  base::JsonWriter(out).value(*this);
  return out;
}

bool operator==(const Json& a, const Json& b) {
  return a.value_ == b.value_;
}

}  // namespace pelton
