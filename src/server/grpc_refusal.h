// What gRPC's library answers by itself to a message that is none (garbage, a text that is no
// UTF-8, nothing at all): UNIMPLEMENTED or INTERNAL, as if it were our fault. Callers are told
// INVALID_ARGUMENT, as for any other bad input.
#pragma once

#include <grpcpp/server_builder.h>

namespace pelton::server {

void refuse_bad_messages(grpc::ServerBuilder& builder);

}  // namespace pelton::server
