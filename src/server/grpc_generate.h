// One gRPC Generate while it runs: engine -> GrpcAnswer -> chunks, one write at a time; what comes
// meanwhile goes into the next. A client that leaves cancels the stream at once.
#pragma once

#include <memory>

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>
#include <pelton/v1/inference.pb.h>

#include "api/error.h"
#include "server/grpc_call.h"
#include "server/request_pipeline.h"

namespace pelton::server {

// Null: the message has no prompt, which is no_generate_prompt().
std::unique_ptr<ModelRequest> generate_request(v1::GenerateRequest message);
api::ApiError no_generate_prompt();

// It deletes itself when gRPC is done with it. Its work is done on the listener's loop.
grpc::ServerWriteReactor<v1::GenerateChunk>* start_generate(GrpcServices& shared,
                                                            grpc::CallbackServerContext& context,
                                                            const v1::GenerateRequest& request);

}  // namespace pelton::server
