// What all gRPC calls have in common: whose they are, until when they are wanted, and what becomes
// of them in the request book.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include <google/protobuf/message.h>
#include <grpcpp/server_context.h>

#include "access/request_statistics.h"
#include "api/error.h"
#include "net/allowed_hosts.h"
#include "net/connection_acceptor.h"
#include "server/served_model.h"
#include "server/server.h"
#include "server/work_loop.h"

namespace pelton::server {

// What calls work with; outlives them.
struct GrpcHouse {
  Server& server;
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

struct GrpcCaller {
  std::shared_ptr<const ServedModel> model;
  std::string tenant;
  access::Principal who;
  int64_t arrived_ns = 0;
  std::optional<int64_t> deadline_ns;  // on the server's clock
};

// A call's entry in the request book. Those who want to know of requests are told of it by its
// metadata, x-request-id and traceparent; it is answered with the same.
class GrpcEntry {
 public:
  GrpcEntry(GrpcHouse& house, const access::TrackedRequest::Route& route,
            grpc::CallbackServerContext& context, const google::protobuf::Message& request);

  access::RequestRecord* record() { return entry_.record(); }  // null: nobody wants to know
  void answered(int status) { entry_.answered(status); }

 private:
  access::TrackedRequest entry_;
};

// A caller's address, "127.0.0.1:51234", of gRPC's own "ipv4:127.0.0.1:51234".
std::string remote_of(const std::string& peer);

// Whether it may come in, by its metadata: key, deadline; and whether the model that it asks for
// answers.
std::variant<GrpcCaller, api::ApiError> admit(const GrpcHouse& house, const GrpcPlace& place,
                                              const grpc::CallbackServerContext& context,
                                              GrpcEntry& entry, std::string_view model);

}  // namespace pelton::server
