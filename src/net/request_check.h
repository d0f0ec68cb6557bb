// What is asked of a request in any version of HTTP, once its header is there. Pure functions; any
// thread. Internal to this room.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "net/http_message.h"

namespace pelton::net {

// Reads method and target into the request, whose headers are there. A refusal where one is wrong:
// the Host header is none or no name, an unknown method, a bad target, a coding that we do not do.
std::optional<HttpReject> complete_request(std::string_view method, std::string_view target,
                                           HttpRequest& request);

// A body of more bytes than are read.
HttpReject body_too_large(size_t limit);

}  // namespace pelton::net
