#include "hub/hub_url.h"

#include <charconv>
#include <memory>

#include <curl/curl.h>
#include <fmt/format.h>

namespace pelton::hub {
namespace {

struct FreeUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using Url = std::unique_ptr<CURLU, FreeUrl>;

std::string part(const Url& url, CURLUPart which, unsigned flags) {
  char* text = nullptr;
  if (curl_url_get(url.get(), which, &text, flags) != CURLUE_OK) return "";
  std::string copy = text;
  curl_free(text);
  return copy;
}

Error bad_url(const std::string& what) {
  return Error{ErrorCode::kInvalidArgument, what};
}

Result<Url> parse(const std::string& text) {
  Url url(curl_url());
  // No flags: no guessed scheme, no scheme that libcurl does not know.
  if (curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) {
    return bad_url("is not an absolute http or https URL");
  }
  return url;
}

bool plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

}  // namespace

Result<Origin> origin_of(const std::string& text) {
  TRY_ASSIGN(const Url url, parse(text));
  Origin origin{.scheme = part(url, CURLUPART_SCHEME, 0), .host = part(url, CURLUPART_HOST, 0)};
  if (origin.scheme != "http" && origin.scheme != "https") {
    return bad_url("is not an http or https URL");
  }
  if (origin.host.empty()) return bad_url("names no host");
  if (!part(url, CURLUPART_USER, 0).empty()) return bad_url("holds a user name");
  const std::string port = part(url, CURLUPART_PORT, CURLU_DEFAULT_PORT);
  std::from_chars(port.data(), port.data() + port.size(), origin.port);
  return origin;
}

Result<std::string> resolve_location(const std::string& base, const std::string& location) {
  TRY_ASSIGN(const Url url, parse(base));
  if (curl_url_set(url.get(), CURLUPART_URL, location.c_str(), 0) != CURLUE_OK) {
    return bad_url("leads to no URL");
  }
  std::string target = part(url, CURLUPART_URL, 0);
  if (Result<Origin> origin = origin_of(target); !origin.ok()) return std::move(origin).error();
  return target;
}

std::string encode_segment(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (plain(c)) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::string encode_path(std::string_view path) {
  std::string out;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (begin > 0) out += '/';
    out += encode_segment(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

}  // namespace pelton::hub
