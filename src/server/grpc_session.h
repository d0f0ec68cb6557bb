// gRPC's Session at a server: each turn a request of its own, admitted, counted and reported like a
// Generate, within the session's trace. The rest is rpc/session.h's.
#pragma once

#include <memory>

#include <grpcpp/server_context.h>

#include "rpc/session.h"
#include "server/grpc_call.h"

namespace pelton::server {

std::unique_ptr<rpc::SessionHost> session_host(GrpcServices& shared,
                                               grpc::CallbackServerContext& context);

}  // namespace pelton::server
