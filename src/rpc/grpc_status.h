// Between our errors and gRPC's status. Pure but for the context.
#pragma once

#include <string>
#include <string_view>

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include "net/http_message.h"

namespace pelton::rpc {

// What a call fails with.
struct CallError {
  grpc::StatusCode code = grpc::StatusCode::INTERNAL;
  std::string message = "an error without words";
  std::string object;  // the HTTP API's error object, JSON; empty: there is none
};

grpc::StatusCode grpc_code(int http_status);
// Of an answer that is an error.
CallError call_error(const net::HttpResponse& answer);
// Of an error frame (rpc/grpc_frame.h): "STATUS OBJECT".
CallError call_error(std::string_view frame);
// With the error object as trailing metadata.
grpc::Status grpc_status(grpc::CallbackServerContext& context, const CallError& error);

}  // namespace pelton::rpc
