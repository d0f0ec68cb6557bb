// The Exchange that a handler holds: a connection and the number of one of its exchanges. Internal
// to this room.
#pragma once

#include <cstdint>
#include <memory>

#include "net/connection.h"
#include "net/http_server.h"

namespace pelton::net {

std::shared_ptr<Exchange> make_exchange(std::shared_ptr<Connection> connection, uint64_t id);

}  // namespace pelton::net
