#include "server/socket_handshake.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "net/websocket.h"

namespace pelton::server {
namespace {

// A page of another site may not speak to a server in its visitor's name: browsers send handshakes
// anywhere, and no CORS rule stops them. Programs say no origin. The server's own origin has its
// scheme too: behind a proxy that ends TLS, --cors-origin says what it is.
bool may_connect(const net::HttpRequest& request, const access::CorsOrigins& cors) {
  const std::string_view origin = request.headers.get("Origin");
  if (origin.empty() || cors.allow(origin)) return true;
  const std::string_view host = request.headers.get("Host");
  const std::string_view scheme = request.tls ? "https://" : "http://";
  return !host.empty() && origin.starts_with(scheme) && origin.substr(scheme.size()) == host;
}

}  // namespace

std::optional<net::HttpReject> refused_handshake(Call& call, const Services& services,
                                                 std::string_view otherwise) {
  if (!call.request.headers.has("Upgrade")) {
    call.headers.add("Upgrade", "websocket");
    return net::HttpReject{
        426, "upgrade_required",
        fmt::format("GET here is the handshake of a WebSocket ('Upgrade: websocket'); {}",
                    otherwise)};
  }
  if (auto reject = net::check_websocket_request(call.request)) {
    if (reject->status == 426) call.headers.add("Sec-WebSocket-Version", "13");
    return reject;
  }
  if (may_connect(call.request, services.options.cors)) return std::nullopt;
  return net::HttpReject{
      403, "foreign_origin",
      "pages of this origin may not use this server; --cors-origin gives them leave"};
}

Result<std::optional<int64_t>> session_deadline_ns(const Call& call) {
  return call.deadline_ns(std::nullopt, Call::Whole::kNo);
}

void end_session_at(int64_t deadline_ns, const Call& call, const Services& services,
                    std::function<void()> at_end) {
  const std::chrono::nanoseconds left(std::max<int64_t>(deadline_ns - services.clock.now_ns(), 0));
  call.exchange->post_after(std::chrono::ceil<std::chrono::milliseconds>(left), std::move(at_end));
}

api::ApiError session_time_over() {
  return api::api_error({ErrorCode::kDeadline, "the session's time is over", ""});
}

}  // namespace pelton::server
