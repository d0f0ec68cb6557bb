// One client's gRPC call on its way through the gateway: a request over a net::LoopExchange.
// Internal to gateway/grpc_listener.cc. All but what gRPC's library calls runs on the listener's
// loop.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "gateway/grpc_listener.h"
#include "net/allowed_hosts.h"
#include "net/connection_acceptor.h"
#include "net/work_loop.h"
#include "rpc/session.h"

namespace pelton::gateway {

struct GrpcShared {  // outlives calls
  const GrpcListener::Handler& handler;
  const GrpcListener::Knows& knows;
  net::WorkLoop& loop;
  net::ConnectionAcceptor& connections;
  const net::AllowedHosts hosts;
  const int calls_max;
  const std::chrono::milliseconds stall_time_max;
  std::atomic<int> calls{0};
};

// They delete themselves when gRPC is done with them. `method`: a constant.
grpc::ServerWriteReactor<grpc::ByteBuffer>* start_stream(GrpcShared& shared,
                                                         grpc::CallbackServerContext& context,
                                                         std::string_view method,
                                                         const grpc::ByteBuffer& message);
grpc::ServerUnaryReactor* start_unary(GrpcShared& shared, grpc::CallbackServerContext& context,
                                      std::string_view method, const grpc::ByteBuffer& message,
                                      grpc::ByteBuffer& reply);

// What a session does through the gateway.
std::unique_ptr<rpc::SessionHost> session_host(GrpcShared& shared,
                                               grpc::CallbackServerContext& context);

}  // namespace pelton::gateway
