// gRPC Embed: one vector for each input.
#pragma once

#include <memory>

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>
#include <pelton/v1/inference.pb.h>

#include "server/grpc_call.h"
#include "server/request_pipeline.h"

namespace pelton::server {

std::unique_ptr<ModelRequest> embed_request(const v1::EmbedRequest& message);

// It deletes itself when gRPC is done with it. Its work is done on the listener's loop.
grpc::ServerUnaryReactor* start_embed(GrpcServices& shared, grpc::CallbackServerContext& context,
                                      const v1::EmbedRequest& request, v1::EmbedReply& reply);

}  // namespace pelton::server
