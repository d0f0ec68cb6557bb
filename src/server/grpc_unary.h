// A gRPC call with one reply: a ModelRequest on the request pipeline, whose answer's body is the
// reply's bytes.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include <google/protobuf/message.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include "server/grpc_call.h"
#include "server/request_pipeline.h"

namespace pelton::server {

struct UnaryCall {
  access::TrackedRequest::Route route;
  const google::protobuf::Message& message;
  std::string_view model;            // that it asks for; of `message`
  google::protobuf::Message& reply;  // gRPC keeps both until the call is over
  std::unique_ptr<ModelRequest> request;
  std::optional<Work> work;  // as run_request()
};

// It deletes itself when gRPC is done with it. Its work is done on the listener's loop.
grpc::ServerUnaryReactor* start_unary(GrpcServices& shared, grpc::CallbackServerContext& context,
                                      UnaryCall call);

}  // namespace pelton::server
