#include "server/grpc_forwarded.h"

#include <memory>
#include <optional>
#include <utility>

#include <pelton/v1/inference.pb.h>

#include "rpc/grpc_frame.h"
#include "server/grpc_embed.h"
#include "server/grpc_generate.h"
#include "server/grpc_tokenize.h"

namespace pelton::server {
namespace {

api::ApiError no_message() {
  return api::api_error(
      {ErrorCode::kInvalidArgument, "the message is not one that this method takes", ""});
}

template <typename Message>
std::optional<Message> message_of(const Call& call) {
  Message message;
  if (!message.ParseFromString(call.request.body)) return std::nullopt;
  return message;
}

void run(Call call, Services& services, std::string model, std::unique_ptr<ModelRequest> request,
         std::optional<Work> work) {
  call.model_asked = std::move(model);
  run_request(std::move(call), services, std::move(request), work);
}

}  // namespace

void answer_forwarded_grpc(Call call, Services& services) {
  const std::string& method = call.request.path;
  if (method == rpc::kGrpcGenerate) {
    std::optional<v1::GenerateRequest> message = message_of<v1::GenerateRequest>(call);
    if (!message) return call.send(no_message());
    std::string model = message->model();
    std::unique_ptr<ModelRequest> request = generate_request(*std::move(message));
    if (request == nullptr) return call.send(no_generate_prompt());
    return run(std::move(call), services, std::move(model), std::move(request), Work::kSampled);
  }
  if (method == rpc::kGrpcEmbed) {
    const std::optional<v1::EmbedRequest> message = message_of<v1::EmbedRequest>(call);
    if (!message) return call.send(no_message());
    return run(std::move(call), services, message->model(), embed_request(*message), Work::kPooled);
  }
  if (method == rpc::kGrpcTokenize) {
    const std::optional<v1::TokenizeRequest> message = message_of<v1::TokenizeRequest>(call);
    if (!message) return call.send(no_message());
    return run(std::move(call), services, message->model(), tokenize_request(*message),
               std::nullopt);
  }
  call.send(api::not_found(call.request.method, method));
}

}  // namespace pelton::server
