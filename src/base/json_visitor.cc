// The one file that knows Boost.JSON.
#include "base/json_visitor.h"

#include <cmath>
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

  bool on_number_part(string_view, error_code&) { return true; }
  bool on_int64(int64_t value, string_view, error_code& ec) {
    return go_on(visitor_.integer(value), ec);
  }
  bool on_uint64(uint64_t value, string_view, error_code& ec) {
    return go_on(visitor_.other(Json(static_cast<double>(value))), ec);
  }
  bool on_double(double value, string_view, error_code& ec) {
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

bool JsonBuilder::key(std::string_view name) {
  keys_.emplace_back(name);
  return true;
}

bool JsonBuilder::open(Json container) {
  open_.push_back(std::move(container));
  return true;
}

bool JsonBuilder::close() {
  Json whole = std::move(open_.back());
  open_.pop_back();
  return add(std::move(whole));
}

bool JsonBuilder::add(Json value) {
  if (values_left_ == 0) return false;
  --values_left_;
  if (open_.empty()) {
    result_ = std::move(value);
    done_ = true;
  } else if (open_.back().is_array()) {
    open_.back().as_array().push_back(std::move(value));
  } else {
    open_.back().as_object().push_back({std::move(keys_.back()), std::move(value)});
    keys_.pop_back();
  }
  return true;
}

}  // namespace pelton::base
