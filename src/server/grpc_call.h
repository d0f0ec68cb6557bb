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
#include "net/work_loop.h"
#include "server/call.h"
#include "server/services.h"

namespace pelton::server {

// What calls work with; outlives them.
struct GrpcServices {
  Services& services;
  net::WorkLoop& loop;
  net::ConnectionAcceptor& connections;
  const int calls_max;
  const std::chrono::milliseconds stall_time_max;
  const net::AllowedHosts hosts;  // of ":authority"
  std::atomic<int> calls{0};
};

// Counts one call among those that are open, and, once it may come in, among those of its
// connection.
class GrpcPlace {
 public:
  explicit GrpcPlace(GrpcServices& shared) : shared_(shared), number_(++shared.calls) {}
  ~GrpcPlace() {
    --shared_.calls;
    if (!remote_.empty()) shared_.connections.end_call(remote_, connection_);
  }
  GrpcPlace(const GrpcPlace&) = delete;
  GrpcPlace& operator=(const GrpcPlace&) = delete;
  bool fits() const { return number_ <= shared_.calls_max; }
  // Once: the caller may use the server.
  void enter(std::string remote) {
    connection_ = shared_.connections.begin_call(remote);
    remote_ = std::move(remote);
  }

 private:
  GrpcServices& shared_;
  const int number_;
  std::string remote_;  // empty: it has not entered
  uint64_t connection_ = 0;
};

// A call on its way through the request pipeline: counted among the server's requests, known by its
// metadata (x-request-id and traceparent, with which it is answered, too). `message`: what it asks.
Call grpc_call(const GrpcServices& shared, const access::TrackedRequest::Route& route,
               grpc::CallbackServerContext& context, const google::protobuf::Message& message,
               std::shared_ptr<net::Exchange> exchange);

// Whose call it is, by its metadata; none: they have no key that is one.
std::optional<access::Principal> caller_of(const GrpcServices& shared,
                                           const grpc::CallbackServerContext& context);

// Whether it may come in, by its metadata: host, key, room for it; its deadline is the call's from
// then on. `model`: that it asks for. False: it has been answered.
bool admit(const GrpcServices& shared, GrpcPlace& place, const grpc::CallbackServerContext& context,
           std::string_view model, Call& call);

}  // namespace pelton::server
