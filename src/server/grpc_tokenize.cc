#include "server/grpc_tokenize.h"

#include <memory>
#include <optional>
#include <utility>

#include "api/tokenize_request.h"
#include "server/chat_turn_options.h"
#include "server/grpc_message.h"
#include "server/grpc_unary.h"
#include "server/reply.h"

namespace pelton::server {
namespace {

constexpr access::TrackedRequest::Route kRoute = {.handler = "/pelton.v1.Inference/Tokenize",
                                                  .method = "POST"};

class GrpcTokenization final : public ModelRequest {
 public:
  explicit GrpcTokenization(const v1::TokenizeRequest& message) : message_(message) {}

  std::optional<api::ApiError> read(const std::string&, const Scope& scope) override {
    const Result<Json> body = tokenize_body(message_);
    if (!body.ok()) return api::api_error(body.error());
    return keep(api::read_tokenize_request(*body, scope.model.request_limits()), request_);
  }
  Fields fields(const ServedModel&) const override { return {.model = request_.model}; }
  std::optional<api::ApiError> refusal(const Call&, const Scope& scope) const override {
    const std::optional<Error> error =
        request_.chat ? scope.model.no_chat() : scope.model.no_text("text", TextUse::kTokenization);
    return error ? std::optional(api::api_error(*error)) : std::nullopt;
  }

  std::optional<api::ApiError> prepare(Prepared, const Scope& scope) override {
    std::vector<TokenId> tokens;
    if (request_.chat) {
      std::vector<TokenId> opening = turn_options(*request_.chat, scope.model).opening;
      Result<ChatPrompt> prompt = scope.services.chat_prompt_of(
          *request_.chat, scope.model, scope.tenant, scope.identity, opening);
      if (!prompt.ok()) return api::api_error(prompt.error());
      tokens = std::move(prompt->tokens);
    } else {
      tokens = scope.model.tokenizer.encode_prompt(request_.prompt);
    }
    v1::TokenizeReply reply;
    for (const TokenId token : tokens) reply.add_tokens(static_cast<uint32_t>(token));
    reply.set_context_max(scope.model.context_limit());
    answer_ = reply.SerializeAsString();
    return std::nullopt;
  }

  void start(Call call, Services&) override { call.send(json_reply(std::move(answer_))); }

 private:
  const v1::TokenizeRequest message_;  // a copy: it may be read for longer than gRPC keeps its own
  api::TokenizeRequest request_;
  std::string answer_;
};

}  // namespace

std::unique_ptr<ModelRequest> tokenize_request(const v1::TokenizeRequest& message) {
  return std::make_unique<GrpcTokenization>(message);
}

grpc::ServerUnaryReactor* start_tokenize(GrpcServices& shared, grpc::CallbackServerContext& context,
                                         const v1::TokenizeRequest& request,
                                         v1::TokenizeReply& reply) {
  return start_unary(shared, context,
                     {.route = kRoute,
                      .message = request,
                      .model = request.model(),
                      .reply = reply,
                      .request = tokenize_request(request),
                      .work = std::nullopt});
}

}  // namespace pelton::server
