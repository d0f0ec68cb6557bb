// Between our errors and gRPC's status.
#pragma once

#include <string_view>

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include "net/http_message.h"

namespace pelton::cluster {

grpc::StatusCode grpc_code(int http_status);
// Of an answer that is an error, with the error object as trailing metadata.
grpc::Status grpc_status(grpc::CallbackServerContext& context, const net::HttpResponse& answer);
// Of an error frame (cluster/grpc_frame.h): "STATUS OBJECT".
grpc::Status grpc_status(grpc::CallbackServerContext& context, std::string_view frame);

}  // namespace pelton::cluster
