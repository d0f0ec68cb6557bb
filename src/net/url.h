// Request targets, URLs, queries and addresses as text. Pure functions on foreign text: each
// refuses what it does not fully understand, because two readers of one URL who disagree are a way
// around every check that stands between them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace pelton::net {

// "%41" -> "A"; empty for a "%" without two hex digits.
std::optional<std::string> percent_decode(std::string_view text);
// Everything but letters, digits and "-._~" becomes %XX.
std::string percent_encode(std::string_view text);

// "a=1&b=x%20y&flag" -> pairs, decoded, "+" as space. Pairs with broken escapes are left out.
std::vector<std::pair<std::string, std::string>> parse_query(std::string_view query);
// The first value of that name.
std::optional<std::string> query_value(std::string_view query, std::string_view name);

struct RequestTarget {
  std::string path;  // decoded once; never to be decoded again
  std::string query;
};

// Origin form ("/v1/models?x"), absolute form whose authority equals `host`, or "*" for OPTIONS.
// Refused: broken escapes, control characters, invalid UTF-8, "." and ".." segments, fragments.
Result<RequestTarget> parse_request_target(std::string_view method, std::string_view target,
                                           std::string_view host);

struct HttpUrl {
  std::string host;          // without brackets
  int port = 80;             // 443 with TLS
  bool tls = false;          // https
  std::string target = "/";  // path and query as written
};

// "http://host[:port][/path][?query]", or https.
Result<HttpUrl> parse_http_url(std::string_view url);

struct HostPort {
  std::string host;
  int port = 0;
};

// "127.0.0.1:80", "[::1]:80", "name:80".
Result<HostPort> parse_host_port(std::string_view text);
// The reverse, with brackets around an IPv6 address.
std::string format_host_port(std::string_view host, int port);

// Of a Host header ("name", "name:80", "127.0.0.1:80", "[::1]:80", or empty) the name or address,
// without port and brackets. None where it is malformed (RFC 3986, 3.2.2).
std::optional<std::string_view> host_name(std::string_view host_header);

}  // namespace pelton::net
