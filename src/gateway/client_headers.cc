#include "gateway/client_headers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace pelton::gateway {
namespace {

constexpr std::array<std::string_view, 11> kOfConnections = {
    "connection", "keep-alive",        "proxy-connection", "proxy-authenticate", "te",
    "trailer",    "transfer-encoding", "upgrade",          "content-length",     "expect",
    "date"};
constexpr std::array<std::string_view, 6> kOfCallers = {
    "authorization", "proxy-authorization", "x-api-key", "cookie", "x-request-id", "forwarded"};
// Prefixes of what only a gateway or a worker may say.
constexpr std::array<std::string_view, 7> kInternal = {
    "x-pelton-",    "x-internal-",      "x-kv-",
    "x-prefiller-", "x-data-parallel-", "x-gateway-destination-",
    "x-fleet-"};
constexpr std::array<std::string_view, 2> kDeadlineHeaders = {"x-request-timeout-ms",
                                                              "x-request-deadline-ms"};
constexpr int64_t kTimeoutMsMax = 86'400'000;
constexpr size_t kFieldsMax = 200;
constexpr int kHopsMax = 3;
constexpr size_t kTraceBytesMax = 512;

std::string lower_case(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
  return lower;
}

template <size_t kCount>
bool is_one_of(const std::array<std::string_view, kCount>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool has_field(const cluster::HeaderFields& headers, std::string_view name) {
  return std::ranges::any_of(headers,
                             [&](const auto& field) { return lower_case(field.first) == name; });
}

bool may_pass(std::string_view name, std::string_view value) {
  if (is_one_of(kOfConnections, name) || is_one_of(kOfCallers, name)) return false;
  if (name.starts_with("traceparent") || name.starts_with("tracestate")) {
    return value.size() <= kTraceBytesMax;
  }
  return std::ranges::none_of(kInternal,
                              [&](std::string_view prefix) { return name.starts_with(prefix); });
}

}  // namespace

cluster::HeaderFields forwarded_headers(const net::HttpHeaders& headers) {
  cluster::HeaderFields passed;
  for (const auto& [name, value] : headers.fields()) {
    if (passed.size() == kFieldsMax) break;
    if (may_pass(lower_case(name), value)) passed.emplace_back(name, value);
  }
  return passed;
}

// Its key proves nothing here: the client's own was answered.
void add_handshake(cluster::HeaderFields& headers) {
  headers.emplace_back("Upgrade", "websocket");
  headers.emplace_back("Connection", "Upgrade");
  if (!has_field(headers, "sec-websocket-version")) {
    headers.emplace_back("Sec-WebSocket-Version", "13");
  }
  if (!has_field(headers, "sec-websocket-key")) {
    headers.emplace_back("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==");
  }
}

net::HttpHeaders foreign_headers(const net::HttpHeaders& headers, std::string_view gateway) {
  net::HttpHeaders passed;
  for (auto& [name, value] : forwarded_headers(headers)) {
    const std::string lower = lower_case(name);
    if (lower != "host" && lower != "accept-encoding") passed.add(name, value);
  }
  const std::string_view before = headers.get(kHopsHeader);
  passed.add(std::string(kHopsHeader), before.empty()
                                           ? std::string(gateway)
                                           : std::string(before) + "," + std::string(gateway));
  return passed;
}

bool goes_in_circles(const net::HttpHeaders& headers, std::string_view gateway) {
  const std::string_view hops = headers.get(kHopsHeader);
  return !hops.empty() && (hops.find(gateway) != std::string_view::npos ||
                           std::ranges::count(hops, ',') + 1 > kHopsMax);
}

Result<std::optional<int64_t>> time_left_ns(const net::HttpHeaders& headers) {
  std::optional<int64_t> left_ns;
  for (const std::string_view header : kDeadlineHeaders) {
    if (!headers.has(header)) continue;
    const std::string_view text = headers.get(header);
    int64_t ms = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ms);
    const bool is_whole = error == std::errc() && end == text.data() + text.size();
    if (!is_whole || ms < 1 || ms > kTimeoutMsMax) {
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("the header '{}' must be a whole number from 1 to {}", header, kTimeoutMsMax),
          std::string(header)};
    }
    left_ns = std::min(left_ns.value_or(INT64_MAX), ms * 1'000'000);
  }
  return left_ns;
}

net::HttpHeaders without_deadlines(const net::HttpHeaders& headers) {
  net::HttpHeaders left;
  for (const auto& [name, value] : headers.fields()) {
    const std::string lower = lower_case(name);
    if (is_one_of(kDeadlineHeaders, lower)) continue;
    left.add(name, value);
  }
  return left;
}

Result<void> check_cold_start(const net::HttpHeaders& headers) {
  const std::string_view text = headers.get(kColdStartHeader);
  if (text.empty() || text == "wait" || text == "fail") return {};
  return Error{ErrorCode::kInvalidArgument, fmt::format("'{}' is wait or fail", kColdStartHeader),
               std::string(kColdStartHeader)};
}

net::HttpHeaders answer_headers(const cluster::AnswerHead& head) {
  net::HttpHeaders headers;
  for (const auto& [name, value] : head.headers) {
    if (!is_one_of(kOfConnections, lower_case(name))) headers.add(name, value);
  }
  return headers;
}

}  // namespace pelton::gateway
