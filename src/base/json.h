// JSON as a value. Objects keep their order (tool schemas are rendered in the caller's order); of
// duplicate keys the last wins. Parsing is bounded in depth and in values; larger texts are read as
// a stream (base/json_visitor.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace pelton {

class Json {
 public:
  using Array = std::vector<Json>;
  struct Member;
  using Object = std::vector<Member>;

  static constexpr int kDepthMax = 256;
  // A value takes some forty bytes, its text may take two: what a text may cost is bounded by this.
  static constexpr size_t kValuesMax = 1'000'000;

  // Defined below, where Member is complete: clang asks for that, g++ does not.
  Json();                        // null
  Json(std::nullptr_t);          // NOLINT: implicit
  Json(bool value);              // NOLINT: implicit
  Json(int value);               // NOLINT: implicit
  Json(int64_t value);           // NOLINT: implicit
  Json(double value);            // NOLINT: implicit
  Json(const char* value);       // NOLINT: implicit
  Json(std::string_view value);  // NOLINT: implicit
  Json(std::string value);       // NOLINT: implicit
  Json(Array value);             // NOLINT: implicit
  Json(Object value);            // NOLINT: implicit
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();

  // RFC 8259 text, valid UTF-8, at most kDepthMax deep and of kValuesMax values, numbers finite.
  // Error: kInvalidArgument with the byte offset.
  static Result<Json> parse(std::string_view text);

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_integer() const { return std::holds_alternative<int64_t>(value_); }
  bool is_number() const { return is_integer() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  // What kind this is, for messages: "a string", "an object".
  std::string_view kind_name() const;

  // The value as that kind; a CHECK if it is another.
  bool as_bool() const { return std::get<bool>(value_); }
  int64_t as_integer() const { return std::get<int64_t>(value_); }
  double as_number() const;  // an integer too
  const std::string& as_string() const { return std::get<std::string>(value_); }
  const Array& as_array() const { return std::get<Array>(value_); }
  Array& as_array() { return std::get<Array>(value_); }
  const Object& as_object() const { return std::get<Object>(value_); }
  Object& as_object() { return std::get<Object>(value_); }

  // A member, or null if this is no object or has none of that name.
  const Json* find(std::string_view key) const;

  // A member of that kind; empty if absent or of another kind.
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<int64_t> integer(std::string_view key) const;  // also 3.0
  std::optional<double> number(std::string_view key) const;
  std::optional<std::string> string(std::string_view key) const;

  // Adds or replaces a member; this must be an object (or null, which becomes one).
  Json& set(std::string_view key, Json value);

  // Compact text, members in order.
  std::string dump() const;

  friend bool operator==(const Json& a, const Json& b);

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

struct Json::Member {
  std::string key;
  Json value;
  friend bool operator==(const Member& a, const Member& b) = default;
};

inline Json::Json() = default;
inline Json::Json(std::nullptr_t) {}
inline Json::Json(bool value) : value_(value) {}
inline Json::Json(int value) : value_(int64_t{value}) {}
inline Json::Json(int64_t value) : value_(value) {}
inline Json::Json(double value) : value_(value) {}
inline Json::Json(const char* value) : value_(std::string(value)) {}
inline Json::Json(std::string_view value) : value_(std::string(value)) {}
inline Json::Json(std::string value) : value_(std::move(value)) {}
inline Json::Json(Array value) : value_(std::move(value)) {}
inline Json::Json(Object value) : value_(std::move(value)) {}
inline Json::Json(const Json&) = default;
inline Json::Json(Json&&) noexcept = default;
inline Json& Json::operator=(const Json&) = default;
inline Json& Json::operator=(Json&&) noexcept = default;
inline Json::~Json() = default;

}  // namespace pelton
