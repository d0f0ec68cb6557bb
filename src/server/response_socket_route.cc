// GET /v1/responses: the handshake of a WebSocket, and nothing else.
#include <utility>

#include "server/endpoints.h"
#include "server/response_socket.h"
#include "server/socket_handshake.h"

namespace pelton::server {

void response_socket(Call call, Services& services) {
  const auto reject = refused_handshake(
      call, services, "POST makes a response, and GET /v1/responses/{id} reads a stored one");
  if (reject) return call.send(net::error_response(*reject));
  if (const auto refused = services.refusal()) return call.send(*refused);
  ResponseSocket::open(services, std::move(call));
}

}  // namespace pelton::server
