#include "net/url.h"

#include <algorithm>

#include <boost/asio/ip/address_v6.hpp>
#include <fmt/format.h>

#include "base/utf8.h"
#include "net/http_message.h"

namespace pelton::net {
namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
}

// Of a name in a URL: unreserved characters and sub-delimiters (RFC 3986, reg-name).
bool is_name_character(char c) {
  constexpr std::string_view kMarks = "-._~!$&'()*+,;=";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         kMarks.find(c) != std::string_view::npos;
}

Error bad(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), {}};
}

bool has_dot_segment(std::string_view path) {
  while (!path.empty()) {
    const size_t slash = std::min(path.find('/'), path.size());
    const std::string_view segment = path.substr(0, slash);
    if (segment == "." || segment == "..") return true;
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  return false;
}

Result<int> parse_port(std::string_view text) {
  int port = 0;
  if (text.empty() || text.size() > 5) return bad("the port is not a number from 0 to 65535");
  for (const char c : text) {
    if (c < '0' || c > '9') return bad("the port is not a number from 0 to 65535");
    port = port * 10 + (c - '0');
  }
  if (port > 65535) return bad("the port is not a number from 0 to 65535");
  return port;
}

}  // namespace

std::optional<std::string> percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex_value(text[i + 1]);
    const int low = hex_value(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

std::string percent_encode(std::string_view text) {
  static constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~';
    if (plain) {
      out += c;
    } else {
      out += '%';
      out += kHex[static_cast<unsigned char>(c) >> 4];
      out += kHex[static_cast<unsigned char>(c) & 15];
    }
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> parse_query(std::string_view query) {
  std::vector<std::pair<std::string, std::string>> pairs;
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    if (pair.empty()) continue;
    const size_t equals = std::min(pair.find('='), pair.size());
    std::string name(pair.substr(0, equals));
    std::string value(pair.substr(std::min(equals + 1, pair.size())));
    std::replace(name.begin(), name.end(), '+', ' ');
    std::replace(value.begin(), value.end(), '+', ' ');
    std::optional<std::string> decoded_name = percent_decode(name);
    std::optional<std::string> decoded_value = percent_decode(value);
    if (decoded_name && decoded_value) {
      pairs.emplace_back(std::move(*decoded_name), std::move(*decoded_value));
    }
  }
  return pairs;
}

std::optional<std::string> query_value(std::string_view query, std::string_view name) {
  for (auto& [key, value] : parse_query(query)) {
    if (key == name) return std::move(value);
  }
  return std::nullopt;
}

Result<RequestTarget> parse_request_target(std::string_view method, std::string_view target,
                                           std::string_view host) {
  if (target == "*") {
    if (method != "OPTIONS") return bad("the request target \"*\" is for OPTIONS only");
    return RequestTarget{"*", ""};
  }
  constexpr std::string_view kScheme = "http://";
  if (target.size() >= kScheme.size() &&
      equals_without_case(target.substr(0, kScheme.size()), kScheme)) {
    target.remove_prefix(kScheme.size());
    const std::string_view authority = target.substr(0, target.find_first_of("/?"));
    if (!equals_without_case(authority, host)) {
      return bad("the request target names another host than the Host header");
    }
    target.remove_prefix(authority.size());
    if (target.empty()) return RequestTarget{"/", ""};
    if (target.front() == '?') return RequestTarget{"/", std::string(target.substr(1))};
  }
  if (target.empty() || target.front() != '/') return bad("the request target has no path");
  if (target.find('#') != std::string_view::npos) return bad("the request target has a fragment");

  const size_t question = std::min(target.find('?'), target.size());
  std::optional<std::string> path = percent_decode(target.substr(0, question));
  if (!path) return bad("the path has a broken percent escape");
  if (std::any_of(path->begin(), path->end(), is_control) || !base::is_valid_utf8(*path)) {
    return bad("the path has control characters or is not UTF-8");
  }
  if (has_dot_segment(*path)) return bad("the path has \".\" or \"..\" segments");
  return RequestTarget{std::move(*path),
                       std::string(target.substr(std::min(question + 1, target.size())))};
}

Result<HttpUrl> parse_http_url(std::string_view url) {
  constexpr std::string_view kPlain = "http://";
  constexpr std::string_view kTls = "https://";
  HttpUrl parsed;
  parsed.tls = url.starts_with(kTls);
  if (!parsed.tls && !url.starts_with(kPlain)) {
    return bad(fmt::format("'{}' is not an http:// or https:// URL", url));
  }
  if (parsed.tls) parsed.port = 443;
  url.remove_prefix(parsed.tls ? kTls.size() : kPlain.size());
  if (std::any_of(url.begin(), url.end(), [](char c) { return is_control(c) || c == ' '; })) {
    return bad("the URL has control characters or spaces");
  }
  url = url.substr(0, url.find('#'));
  const std::string_view authority = url.substr(0, url.find_first_of("/?"));
  if (authority.find('@') != std::string_view::npos) return bad("the URL holds a user name");
  const bool bracketed_only = authority.starts_with('[') && authority.ends_with(']');
  if (authority.find(':') == std::string_view::npos || bracketed_only) {
    parsed.host = bracketed_only ? authority.substr(1, authority.size() - 2) : authority;
  } else {
    TRY_ASSIGN(HostPort host_port, parse_host_port(authority));
    parsed.host = std::move(host_port.host);
    parsed.port = host_port.port;
  }
  if (parsed.host.empty()) return bad("the URL has no host");
  url.remove_prefix(authority.size());
  if (url.starts_with('/')) parsed.target.clear();
  parsed.target += url;
  return parsed;
}

Result<HostPort> parse_host_port(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad(fmt::format("'{}' has no port", text));
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return bad(fmt::format("'{}': write an IPv6 address in brackets, as [::1]:8000", text));
  }
  if (host.empty()) return bad(fmt::format("'{}' has no host", text));
  TRY_ASSIGN(const int port, parse_port(text.substr(colon + 1)));
  return HostPort{std::string(host), port};
}

std::optional<std::string_view> host_name(std::string_view host_header) {
  constexpr size_t kNameBytesMax = 255;  // as in DNS
  const size_t bracket = host_header.find(']');
  const bool bracketed = host_header.starts_with('[');
  if (bracketed && bracket == std::string_view::npos) return std::nullopt;
  const size_t end = bracketed ? bracket + 1 : std::min(host_header.find(':'), host_header.size());
  std::string_view host = host_header.substr(0, end);
  const std::string_view port = host_header.substr(end);
  // A port may be empty behind its colon.
  if (!port.empty() && port[0] != ':') return std::nullopt;
  if (port.size() > 1 && !parse_port(port.substr(1)).ok()) return std::nullopt;
  if (host.size() > kNameBytesMax || (host.empty() && !port.empty())) return std::nullopt;
  if (bracketed) {
    host = host.substr(1, host.size() - 2);
    boost::system::error_code error;
    boost::asio::ip::make_address_v6(std::string(host), error);
    return error ? std::nullopt : std::optional(host);
  }
  for (size_t i = 0; i < host.size(); ++i) {
    if (host[i] == '%' && percent_decode(host.substr(i, 3))) continue;
    if (!is_name_character(host[i])) return std::nullopt;
  }
  return host;
}

std::string format_host_port(std::string_view host, int port) {
  if (host.find(':') != std::string_view::npos) return fmt::format("[{}]:{}", host, port);
  return fmt::format("{}:{}", host, port);
}

}  // namespace pelton::net
