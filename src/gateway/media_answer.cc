#include "gateway/media_answer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

#include <fmt/format.h>

namespace pelton::gateway {
namespace {

Error bad_answer(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), {}};
}

std::string type_of(const net::HttpHeaders& headers) {
  std::string type(headers.get("Content-Type"));
  type.resize(std::min(type.find(';'), type.size()));
  while (type.ends_with(' ')) type.pop_back();
  for (char& c : type) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
  return type;
}

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

}  // namespace

bool MediaAnswer::is_one(int status, const net::HttpHeaders& headers) {
  return (status == 200 || status == 206) && type_of(headers) != "text/event-stream";
}

Result<void> MediaAnswer::begin(const net::HttpHeaders& headers) {
  constexpr std::array<std::string_view, 4> kFiles = {"image/", "video/", "audio/",
                                                      "application/octet-stream"};
  const std::string type = type_of(headers);
  is_json_ = type == "application/json";
  const bool is_file =
      type == "application/zip" ||
      std::ranges::any_of(kFiles, [&](std::string_view one) { return type.starts_with(one); });
  if (!is_json_ && !is_file) {
    return bad_answer(fmt::format("an answer of the type '{}' is no picture", type.substr(0, 64)));
  }
  const std::string_view length = headers.get("Content-Length");
  int64_t number = 0;
  const auto [end, error] = std::from_chars(length.data(), length.data() + length.size(), number);
  if (length.empty() || error != std::errc() || end != length.data() + length.size()) return {};
  length_ = number;
  return push({});
}

Result<void> MediaAnswer::push(std::string_view bytes) {
  bytes_ += std::ssize(bytes);
  if (std::max(bytes_, length_) > bytes_max_) {
    return bad_answer(
        fmt::format("its result has more than {} bytes (result_bytes_max)", bytes_max_));
  }
  if (!is_json_) return {};
  if (first_ == 0) {
    const auto* const first = std::ranges::find_if_not(bytes, is_space);
    if (first == bytes.end()) return {};
    first_ = *first;
    if (first_ != '{') return bad_answer("a body that is no JSON object");
  }
  for (size_t i = bytes.size(); i > 0; --i) {
    if (is_space(bytes[i - 1])) continue;
    last_ = bytes[i - 1];
    break;
  }
  return {};
}

Result<void> MediaAnswer::finish() const {
  if (bytes_ == 0) return bad_answer("an empty answer");
  if (length_ >= 0 && bytes_ != length_) return bad_answer("it broke off");
  if (is_json_ && last_ != '}') return bad_answer("half a JSON body");
  return {};
}

}  // namespace pelton::gateway
