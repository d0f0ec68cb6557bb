#include "server/grpc_tokenize.h"

#include <variant>

#include "api/tokenize_request.h"
#include "server/grpc_words.h"

namespace pelton::server {
namespace {

constexpr access::TrackedRequest::Route kRoute = {.handler = "/pelton.v1.Inference/Tokenize",
                                                  .method = "POST"};

std::optional<api::ApiError> tokenize(GrpcHouse& house, const GrpcCaller& caller,
                                      const v1::TokenizeRequest& request,
                                      v1::TokenizeReply& reply) {
  const ServedModel& model = *caller.model;
  const Result<std::string> body = tokenize_body(request);
  if (!body.ok()) return api::api_error(body.error());
  const auto parsed = api::parse_tokenize_request(*body, {.vocab_size = model.vocab_size});
  if (!parsed.ok()) return api::api_error(parsed.error());
  if (!model.answers_to(parsed->model)) return api::model_not_found(parsed->model);
  const auto refused = parsed->chat ? model.no_chat() : model.no_text("text");
  if (refused) return api::api_error(*refused);
  const std::vector<TokenId> tokens =
      parsed->chat ? house.server.chat_prompt_of(*parsed->chat, model, caller.tenant).tokens
                   : model.tokenizer.encode(parsed->prompt);
  for (const TokenId token : tokens) reply.add_tokens(static_cast<uint32_t>(token));
  reply.set_context_max(model.context_limit());
  return std::nullopt;
}

}  // namespace

grpc::ServerUnaryReactor* start_tokenize(GrpcHouse& house, grpc::CallbackServerContext& context,
                                         const v1::TokenizeRequest& request,
                                         v1::TokenizeReply& reply) {
  const GrpcPlace place(house);
  GrpcEntry entry(house, kRoute, context, request);
  auto admitted = admit(house, place, context, entry, request.model());
  std::optional<api::ApiError> error;
  if (auto* refused = std::get_if<api::ApiError>(&admitted)) {
    error = std::move(*refused);
  } else {
    error = tokenize(house, std::get<GrpcCaller>(admitted), request, reply);
  }
  entry.answered(error ? error->status : 200);
  grpc::ServerUnaryReactor* const reactor = context.DefaultReactor();
  reactor->Finish(error ? grpc_status(context, *error) : grpc::Status::OK);
  return reactor;
}

}  // namespace pelton::server
