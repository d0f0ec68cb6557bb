// Makes a response (POST /v1/responses), over HTTP or as a turn of a WebSocket.
#pragma once

#include <memory>
#include <optional>

#include "base/json.h"
#include "server/call.h"
#include "server/response_link.h"
#include "server/services.h"

namespace pelton::server {

// `asked`: the request, where it came as a message; none: it is the call's body. On its net thread.
void create_response(Call call, Services& services, std::optional<Json> asked,
                     std::shared_ptr<ResponseLink> link);

}  // namespace pelton::server
