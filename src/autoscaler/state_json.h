// What a decider remembers, as JSON, so that the next one decides as it would have: parts write
// themselves with base::JsonWriter and are read through this. Foreign bytes, as they come from a
// file: what is missing, of another kind or out of range makes ok() false, and the rest is to be
// thrown away. Pure.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/json_writer.h"

namespace pelton::autoscaler {

// To the last bit: base::Json reads a number's digits fast, and may be one bit off. So what is no
// whole number is written as a text, and read from it; what is none at all is null.
inline void write_exact(base::JsonWriter& w, double value) {
  constexpr double kWhole = 9007199254740992.0;  // 2^53
  if (!std::isfinite(value)) {
    w.null();
  } else if (value == std::floor(value) && std::abs(value) < kWhole) {
    w.integer(static_cast<int64_t>(value));
  } else {
    std::string text;
    base::append_json_number(text, value);
    w.string(text);
  }
}

// NaN for null; `ok` becomes false for what write_exact() does not write.
inline double read_exact(const Json& json, bool& ok) {
  if (json.is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (json.is_number()) return json.as_number();
  double value = 0;
  if (json.is_string()) {
    const std::string& text = json.as_string();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size() && std::isfinite(value)) {
      return value;
    }
  }
  ok = false;
  return 0;
}

class StateReader {
 public:
  // `ok`: shared by all readers of one text.
  StateReader(const Json* json, bool& ok) : json_(json), ok_(ok) {
    if (json_ == nullptr || !json_->is_object()) ok_ = false;
  }

  bool ok() const { return ok_; }
  void fail() const { ok_ = false; }
  StateReader at(std::string_view key) const { return {find(key), ok_}; }

  int64_t integer(std::string_view key, int64_t least = std::numeric_limits<int64_t>::min(),
                  int64_t most = std::numeric_limits<int64_t>::max()) const {
    const Json* value = find(key);
    if (value == nullptr || !value->is_integer() || value->as_integer() < least ||
        value->as_integer() > most) {
      ok_ = false;
      return least > 0 ? least : 0;
    }
    return value->as_integer();
  }
  uint64_t bits(std::string_view key) const { return static_cast<uint64_t>(integer(key)); }
  int count(std::string_view key) const {
    constexpr int64_t kMost = 1'000'000'000;
    return static_cast<int>(integer(key, 0, kMost));
  }
  // As long after the clock's beginning; -1: never.
  int64_t time(std::string_view key) const { return integer(key, -1, kTimeMax); }
  double number(std::string_view key) const {
    const Json* value = find(key);
    if (value == nullptr || value->is_null()) {
      ok_ = false;
      return 0;
    }
    return read_exact(*value, ok_);
  }
  bool boolean(std::string_view key) const {
    const Json* value = find(key);
    if (value == nullptr || !value->is_bool()) {
      ok_ = false;
      return false;
    }
    return value->as_bool();
  }
  std::string text(std::string_view key) const {
    const Json* value = find(key);
    if (value == nullptr || !value->is_string()) {
      ok_ = false;
      return {};
    }
    return value->as_string();
  }
  // None: it has no such member.
  const Json* optional(std::string_view key) const { return find(key); }
  // Each of a list of at most `most`.
  template <typename Read>
  void each(std::string_view key, size_t most, const Read& read) const {
    const Json* value = find(key);
    if (value == nullptr || !value->is_array() || value->as_array().size() > most) {
      ok_ = false;
      return;
    }
    for (const Json& one : value->as_array()) read(StateReader(&one, ok_));
  }

  static constexpr int64_t kTimeMax = int64_t{1} << 60;  // sums and differences of some fit

 private:
  const Json* find(std::string_view key) const {
    return json_ == nullptr ? nullptr : json_->find(key);
  }

  const Json* json_;
  bool& ok_;
};

}  // namespace pelton::autoscaler
