// The one file that knows Boost.JSON.
#include "base/json_visitor.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/src.hpp>
#include <fmt/format.h>

namespace pelton::base {
namespace {

// Boost's parser hands out long strings in parts; a visitor gets them whole.
class Adaptor {
 public:
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);

  using error_code = boost::system::error_code;
  using string_view = boost::json::string_view;

  explicit Adaptor(JsonVisitor& visitor) : visitor_(visitor) {}

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code& ec) { return go_on(visitor_.begin_object(), ec); }
  bool on_object_end(std::size_t, error_code& ec) { return go_on(visitor_.end_object(), ec); }
  bool on_array_begin(error_code& ec) { return go_on(visitor_.begin_array(), ec); }
  bool on_array_end(std::size_t, error_code& ec) { return go_on(visitor_.end_array(), ec); }

  bool on_key_part(string_view part, std::size_t, error_code&) { return keep(part); }
  bool on_key(string_view part, std::size_t, error_code& ec) {
    const bool wanted = visitor_.key(whole(part));
    text_.clear();
    return go_on(wanted, ec);
  }
  bool on_string_part(string_view part, std::size_t, error_code&) { return keep(part); }
  bool on_string(string_view part, std::size_t, error_code& ec) {
    const bool wanted = visitor_.string(whole(part));
    text_.clear();
    return go_on(wanted, ec);
  }

  bool on_number_part(string_view part, error_code&) { return keep(part); }
  bool on_int64(int64_t value, string_view, error_code& ec) {
    text_.clear();
    return go_on(visitor_.integer(value), ec);
  }
  bool on_uint64(uint64_t value, string_view, error_code& ec) {
    text_.clear();
    return go_on(visitor_.other(Json(static_cast<double>(value))), ec);
  }
  // Boost's own value is wrong in its last bits now and then; the digits say which one is meant.
  bool on_double(double value, string_view part, error_code& ec) {
    const std::string_view digits = whole(part);
    double exact = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), exact);
    if (error == std::errc() && end == digits.data() + digits.size()) value = exact;
    text_.clear();
    if (!std::isfinite(value)) {
      ec = boost::json::error::exponent_overflow;
      return false;
    }
    return go_on(visitor_.other(Json(value)), ec);
  }
  bool on_bool(bool value, error_code& ec) { return go_on(visitor_.other(Json(value)), ec); }
  bool on_null(error_code& ec) { return go_on(visitor_.other(Json()), ec); }
  bool on_comment_part(string_view, error_code&) { return true; }
  bool on_comment(string_view, error_code&) { return true; }

  bool stopped() const { return stopped_; }

 private:
  bool keep(string_view part) {
    text_.append(part.data(), part.size());
    return true;
  }
  std::string_view whole(string_view last) {
    if (text_.empty()) return {last.data(), last.size()};
    keep(last);
    return text_;
  }
  bool go_on(bool wanted, error_code& ec) {
    if (wanted) return true;
    stopped_ = true;
    ec = boost::json::error::incomplete;  // any code: the parser must see one
    return false;
  }

  JsonVisitor& visitor_;
  std::string text_;  // the parts so far
  bool stopped_ = false;
};

}  // namespace

Result<void> visit_json(std::string_view text, JsonVisitor& visitor) {
  boost::json::parse_options options;
  options.max_depth = Json::kDepthMax;
  boost::json::basic_parser<Adaptor> parser(options, visitor);
  boost::system::error_code ec;
  const std::size_t used = parser.write_some(false, text.data(), text.size(), ec);
  if (parser.handler().stopped()) {
    return Error{ErrorCode::kCancelled, fmt::format("the visitor stopped at byte {}", used)};
  }
  if (!ec && used < text.size()) ec = boost::json::error::extra_data;
  if (!ec && !parser.done()) ec = boost::json::error::incomplete;
  if (!ec) return {};
  const std::string reason = ec == boost::json::error::too_deep
                                 ? fmt::format("nested deeper than {} levels", Json::kDepthMax)
                                 : ec.message();
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("not valid JSON at byte {}: {}", used, reason)};
}

namespace {

// Where the string that opens at `quote` closes: at the first quote with an even number of
// backslashes before it.
const char* end_of_string(const char* quote, const char* end) {
  for (const char* at = quote + 1; at != end; ++at) {
    at = static_cast<const char*>(std::memchr(at, '"', static_cast<size_t>(end - at)));
    if (at == nullptr) return end;
    const char* before = at;
    while (before[-1] == '\\') --before;
    if ((at - before) % 2 == 0) return at;
  }
  return end;
}

}  // namespace

// Only what stands between strings is looked at: brackets, commas, and whether a container is
// empty. The parser finds out what else is wrong.
JsonSizes count_json(std::string_view text, size_t values_max) {
  JsonSizes sizes;
  std::vector<uint32_t> open;  // indices of `containers`
  bool began = false;          // a container, and nothing was in it yet
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto value_begins = [&] {
    began = false;
    ++sizes.values;
    if (!open.empty()) ++sizes.containers[open.back()];
  };
  if (at != end) ++sizes.values;  // the root
  for (; at != end && std::max(sizes.values, sizes.containers.size()) <= values_max; ++at) {
    const char c = *at;
    if (c == '[' || c == '{') {
      if (began) value_begins();
      if (open.size() > static_cast<size_t>(Json::kDepthMax)) break;  // none of it will be built
      open.push_back(static_cast<uint32_t>(sizes.containers.size()));
      sizes.containers.push_back(0);
      began = true;
    } else if (c == ']' || c == '}') {
      if (!open.empty()) open.pop_back();
      began = false;
    } else if (c == ',') {
      value_begins();
    } else if (c != ' ' && c != '\n' && c != '\r' && c != '\t') {
      if (began) value_begins();
      if (c != '"') continue;
      at = end_of_string(at, end);
      if (at == end) break;
    }
  }
  return sizes;
}

bool JsonBuilder::key(std::string_view name) {
  keys_.emplace_back(name);
  return true;
}

bool JsonBuilder::begin_object() {
  open_.emplace_back(Json::Object{});
  if (const size_t size = next_size()) open_.back().as_object().reserve(size);
  return true;
}

bool JsonBuilder::begin_array() {
  open_.emplace_back(Json::Array{});
  if (const size_t size = next_size()) open_.back().as_array().reserve(size);
  return true;
}

size_t JsonBuilder::next_size() {
  if (sizes_.empty()) return 0;
  const size_t size = sizes_.front();
  sizes_ = sizes_.subspan(1);
  return size;
}

bool JsonBuilder::close() {
  Json whole = std::move(open_.back());
  open_.pop_back();
  return add(std::move(whole));
}

template <typename Value>
bool JsonBuilder::add(Value&& value) {
  if (values_left_ == 0) return false;
  --values_left_;
  if (open_.empty()) {
    result_ = Json(std::forward<Value>(value));
    done_ = true;
    return true;
  }
  Json& around = open_.back();
  if (around.is_array()) {
    around.as_array().emplace_back(std::forward<Value>(value));
  } else {
    around.as_object().push_back({std::move(keys_.back()), Json(std::forward<Value>(value))});
    keys_.pop_back();
  }
  return true;
}

bool JsonBuilder::string(std::string_view value) {
  return add(value);
}

bool JsonBuilder::integer(int64_t value) {
  return add(value);
}

bool JsonBuilder::other(const Json& value) {
  return add(value);
}

}  // namespace pelton::base
