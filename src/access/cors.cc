#include "access/cors.h"

#include <algorithm>

#include <fmt/format.h>

#include "net/url.h"

namespace pelton::access {
namespace {

// As a browser writes it: scheme, host and a port that is not the scheme's own; nothing behind.
bool is_origin(const std::string& origin) {
  const bool lower =
      std::none_of(origin.begin(), origin.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
  const size_t scheme = origin.find("://");
  if (!lower || scheme == std::string::npos || scheme == 0) return false;
  const std::string host = origin.substr(scheme + 3);
  if (host.find_first_of("/?#*, ") != std::string::npos) return false;
  const Result<net::HttpUrl> parsed = net::parse_http_url("http://" + host);
  return parsed.ok();
}

}  // namespace

Result<CorsOrigins> CorsOrigins::parse(const std::vector<std::string>& origins) {
  CorsOrigins cors;
  for (const std::string& origin : origins) {
    if (origin == "*") {
      cors.any_ = true;
    } else if (is_origin(origin)) {
      cors.origins_.push_back(origin);
    } else {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("--cors-origin wants an origin as browsers write it, such as "
                               "https://chat.example.org, or *; not '{}'",
                               origin),
                   "cors-origin"};
    }
  }
  return cors;
}

bool CorsOrigins::allow(std::string_view origin) const {
  return any_ || std::find(origins_.begin(), origins_.end(), origin) != origins_.end();
}

void CorsOrigins::add_headers(std::string_view origin, net::HttpHeaders& headers) const {
  if (any_) {
    headers.add("Access-Control-Allow-Origin", "*");
  } else if (!origins_.empty()) {
    headers.add("Vary", "Origin");
    if (allow(origin)) headers.add("Access-Control-Allow-Origin", std::string(origin));
  }
}

}  // namespace pelton::access
