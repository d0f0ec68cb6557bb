// gRPC Tokenize: what a text or a chat costs, without asking the engine.
#pragma once

#include <memory>

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>
#include <pelton/v1/inference.pb.h>

#include "server/grpc_call.h"
#include "server/request_pipeline.h"

namespace pelton::server {

std::unique_ptr<ModelRequest> tokenize_request(const v1::TokenizeRequest& message);

// Done at once, on gRPC's thread.
grpc::ServerUnaryReactor* start_tokenize(GrpcServices& shared, grpc::CallbackServerContext& context,
                                         const v1::TokenizeRequest& request,
                                         v1::TokenizeReply& reply);

}  // namespace pelton::server
