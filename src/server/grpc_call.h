// What all gRPC calls have in common: whose they are, until when they are wanted, and what becomes
// of them in the request book.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include <google/protobuf/message.h>
#include <grpcpp/server_context.h>

#include "access/request_statistics.h"
#include "api/error.h"
#include "net/allowed_hosts.h"
#include "net/connection_acceptor.h"
#include "server/call.h"
#include "server/services.h"
#include "server/work_loop.h"

namespace pelton::server {

// What calls work with; outlives them.
struct GrpcHouse {
  Services& services;
  WorkLoop& loop;
  net::ConnectionAcceptor& connections;
  const int calls_max;
  const std::chrono::milliseconds stall_time_max;
  const net::AllowedHosts hosts;  // of ":authority"
  std::atomic<int> calls{0};
};

// Counts one call among those that are open.
class GrpcPlace {
 public:
  explicit GrpcPlace(GrpcHouse& house) : house_(house), number_(++house.calls) {}
  ~GrpcPlace() { --house_.calls; }
  GrpcPlace(const GrpcPlace&) = delete;
  GrpcPlace& operator=(const GrpcPlace&) = delete;
  bool fits() const { return number_ <= house_.calls_max; }

 private:
  GrpcHouse& house_;
  const int number_;
};

// A caller's address, "127.0.0.1:51234", of gRPC's own "ipv4:127.0.0.1:51234".
std::string remote_of(const std::string& peer);

// A call on its way through the request pipeline: counted among the server's requests, known by its
// metadata (x-request-id and traceparent, with which it is answered, too). `message`: what it asks.
Call grpc_call(const GrpcHouse& house, const access::TrackedRequest::Route& route,
               grpc::CallbackServerContext& context, const google::protobuf::Message& message,
               std::shared_ptr<net::Exchange> exchange);

// Whether it may come in, by its metadata: host, key, room for it; its deadline is the call's from
// then on. `model`: that it asks for. False: it has been answered.
bool admit(const GrpcHouse& house, const GrpcPlace& place,
           const grpc::CallbackServerContext& context, std::string_view model, Call& call);

}  // namespace pelton::server
