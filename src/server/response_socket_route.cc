// GET /v1/responses: the handshake of a WebSocket, and nothing else.
#include <utility>

#include "net/websocket.h"
#include "server/endpoints.h"
#include "server/response_socket.h"

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

void response_socket(Call call, Services& services) {
  if (!call.request.headers.has("Upgrade")) {
    call.headers.add("Upgrade", "websocket");
    return call.send(net::error_response(
        {426, "upgrade_required",
         "GET here is the handshake of a WebSocket ('Upgrade: websocket'); POST makes a response, "
         "and GET /v1/responses/{id} reads a stored one"}));
  }
  if (const auto reject = net::check_websocket_request(call.request)) {
    if (reject->status == 426) call.headers.add("Sec-WebSocket-Version", "13");
    return call.send(net::error_response(*reject));
  }
  if (!may_connect(call.request, services.options.cors)) {
    return call.send(net::error_response(
        {403, "foreign_origin",
         "pages of this origin may not use this server; --cors-origin gives them leave"}));
  }
  if (const auto refused = services.refusal()) return call.send(*refused);
  ResponseSocket::open(services, std::move(call));
}

}  // namespace pelton::server
