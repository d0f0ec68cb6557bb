#include "net/request_check.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "net/url.h"

namespace pelton::net {
namespace {

bool is_known_method(std::string_view method) {
  static constexpr std::string_view kMethods[] = {"GET",   "HEAD",   "POST",   "PUT",
                                                  "PATCH", "DELETE", "OPTIONS"};
  return std::find(std::begin(kMethods), std::end(kMethods), method) != std::end(kMethods);
}

}  // namespace

std::optional<HttpReject> complete_request(std::string_view method, std::string_view target,
                                           HttpRequest& request) {
  const HttpHeaders& headers = request.headers;
  if (!host_name(headers.get("Host"))) {
    return HttpReject{400, "malformed_http",
                      "the Host header is no host name or address, with or without a port"};
  }
  if (!is_known_method(method)) {
    return HttpReject{405, "method_not_allowed", "the request method is not supported"};
  }
  request.method = method;
  Result<RequestTarget> parsed = parse_request_target(method, target, headers.get("Host"));
  if (!parsed) return HttpReject{400, "bad_target", parsed.error().message};
  request.path = std::move(parsed->path);
  request.query = std::move(parsed->query);
  const std::string_view coding = headers.get("Content-Encoding");
  if (!coding.empty() && !equals_without_case(coding, "identity")) {
    return HttpReject{415, "content_encoding", "compressed request bodies are not supported"};
  }
  if (headers.has("Expect") && !equals_without_case(headers.get("Expect"), "100-continue")) {
    return HttpReject{417, "expectation_failed", "the only Expect understood is \"100-continue\""};
  }
  return std::nullopt;
}

HttpReject body_too_large(size_t limit) {
  return {413, "body_too_large",
          fmt::format("the request body is larger than {} bytes, the most that is read; send less, "
                      "or in several requests",
                      limit)};
}

}  // namespace pelton::net
