// Whether a GET becomes a WebSocket. On the call's net thread.
#pragma once

#include <optional>
#include <string_view>

#include "net/http_message.h"
#include "server/services.h"

namespace pelton::server {

// Why not; nothing: it may. The call gets the headers that such an answer carries. `otherwise`:
// what else there is at this address, for who asks for no WebSocket.
std::optional<net::HttpReject> refused_handshake(Call& call, const Services& services,
                                                 std::string_view otherwise);

}  // namespace pelton::server
