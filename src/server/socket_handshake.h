// Whether a GET becomes a WebSocket, and for how long. On the call's net thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "api/error.h"
#include "base/result.h"
#include "net/http_message.h"
#include "server/services.h"

namespace pelton::server {

// Why not; nothing: it may. The call gets the headers that such an answer carries. `otherwise`:
// what else there is at this address, for who asks for no WebSocket.
std::optional<net::HttpReject> refused_handshake(Call& call, const Services& services,
                                                 std::string_view otherwise);

// When the time is over that the handshake gives its session, on the server's clock: none if nobody
// says (Call::deadline_ns). `at_end` runs then, unless the exchange is gone.
Result<std::optional<int64_t>> session_deadline_ns(const Call& call);
void end_session_at(int64_t deadline_ns, const Call& call, const Services& services,
                    std::function<void()> at_end);
// What the session is ended with then.
api::ApiError session_time_over();

}  // namespace pelton::server
