// The one file that knows Boost.JSON: its SAX parser builds our own values.
#include "base/json.h"

#include <cmath>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/src.hpp>
#include <fmt/format.h>

#include "base/json_writer.h"

namespace pelton {
namespace {

// Receives the parser's events; keeps the containers that are still open on a stack.
class Builder {
 public:
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);

  using error_code = boost::system::error_code;
  using string_view = boost::json::string_view;

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }

  bool on_object_begin(error_code&) { return open(Json(Json::Object{})); }
  bool on_object_end(std::size_t, error_code&) { return close(); }
  bool on_array_begin(error_code&) { return open(Json(Json::Array{})); }
  bool on_array_end(std::size_t, error_code&) { return close(); }

  bool on_key_part(string_view part, std::size_t, error_code&) { return append(part); }
  bool on_key(string_view part, std::size_t, error_code&) {
    append(part);
    keys_.push_back(std::move(text_));
    text_.clear();
    return true;
  }
  bool on_string_part(string_view part, std::size_t, error_code&) { return append(part); }
  bool on_string(string_view part, std::size_t, error_code&) {
    append(part);
    Json value(std::move(text_));
    text_.clear();
    return add(std::move(value));
  }
  bool on_number_part(string_view, error_code&) { return true; }
  bool on_int64(int64_t value, string_view, error_code&) { return add(Json(value)); }
  bool on_uint64(uint64_t value, string_view, error_code&) {
    return add(Json(static_cast<double>(value)));
  }
  bool on_double(double value, string_view, error_code& ec) {
    if (!std::isfinite(value)) {
      ec = boost::json::error::exponent_overflow;
      return false;
    }
    return add(Json(value));
  }
  bool on_bool(bool value, error_code&) { return add(Json(value)); }
  bool on_null(error_code&) { return add(Json()); }
  bool on_comment_part(string_view, error_code&) { return true; }
  bool on_comment(string_view, error_code&) { return true; }

  Json take() { return std::move(result_); }

 private:
  bool append(string_view part) {
    text_.append(part.data(), part.size());
    return true;
  }
  bool open(Json container) {
    stack_.push_back(std::move(container));
    return true;
  }
  bool close() {
    Json done = std::move(stack_.back());
    stack_.pop_back();
    return add(std::move(done));
  }
  bool add(Json value) {
    if (stack_.empty()) {
      result_ = std::move(value);
    } else if (stack_.back().is_array()) {
      stack_.back().as_array().push_back(std::move(value));
    } else {
      stack_.back().as_object().push_back({std::move(keys_.back()), std::move(value)});
      keys_.pop_back();
    }
    return true;
  }

  std::vector<Json> stack_;
  std::vector<std::string> keys_;  // of the objects that wait for this value
  std::string text_;
  Json result_;
};

}  // namespace

Result<Json> Json::parse(std::string_view text) {
  boost::json::parse_options options;
  options.max_depth = kDepthMax;
  boost::json::basic_parser<Builder> parser(options);
  boost::system::error_code ec;
  const std::size_t used = parser.write_some(false, text.data(), text.size(), ec);
  if (!ec && used < text.size()) ec = boost::json::error::extra_data;
  if (!ec && !parser.done()) ec = boost::json::error::incomplete;
  if (ec) {
    const std::string reason = ec == boost::json::error::too_deep
                                   ? fmt::format("nested deeper than {} levels", kDepthMax)
                                   : ec.message();
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("not valid JSON at byte {}: {}", used, reason)};
  }
  return parser.handler().take();
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

bool operator==(const Json& a, const Json& b) { return a.value_ == b.value_; }

}  // namespace pelton
