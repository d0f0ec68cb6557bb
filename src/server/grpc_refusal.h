// What gRPC's library answers by itself to a message that is none (garbage, a text that is no
// UTF-8, nothing at all): UNIMPLEMENTED or INTERNAL, as if it were our fault. Callers hear
// INVALID_ARGUMENT, as for any other bad input. And what it answers without us (health, reflection)
// is a claim to a connection as well, if a small one.
#pragma once

#include <grpcpp/server_builder.h>

#include "net/connection_acceptor.h"

namespace pelton::server {

// `connections` outlives the server.
void watch_calls(grpc::ServerBuilder& builder, net::ConnectionAcceptor& connections);

}  // namespace pelton::server
