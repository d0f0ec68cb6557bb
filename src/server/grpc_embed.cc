#include "server/grpc_embed.h"

#include <memory>
#include <optional>
#include <utility>

#include "server/completion_prompt.h"
#include "server/embedding_request.h"
#include "server/grpc_message.h"
#include "server/grpc_unary.h"
#include "server/pooled_work.h"
#include "server/random_id.h"

namespace pelton::server {
namespace {

constexpr access::TrackedRequest::Route kRoute = {.handler = "/pelton.v1.Inference/Embed",
                                                  .method = "POST"};

class GrpcEmbedding final : public ModelRequest {
 public:
  explicit GrpcEmbedding(const v1::EmbedRequest& message) : message_(message) {}

  std::optional<api::ApiError> read(const std::string&, const Scope& scope) override {
    const Result<Json> body = embedding_body(message_);
    if (!body.ok()) return api::api_error(body.error());
    auto error = keep(api::read_embedding_request(*body, scope.model.request_limits()), request_);
    if (!error) return std::nullopt;
    return in_proto_words(*std::move(error), {{"input", "inputs"}});
  }
  Fields fields(const ServedModel&) const override {
    return {.model = request_.fields.model,
            .user = request_.fields.user,
            .asked = {.dimensions = request_.dimensions}};
  }
  std::optional<api::ApiError> refusal(const Call&, const Scope& scope) const override {
    if (auto error = dimensions_error(scope.model, request_.dimensions, "dimensions")) return error;
    if (auto error = pooling_error(scope.model, request_.fields)) return error;
    const std::optional<Error> error = no_text_inputs(scope.model, request_.inputs, "inputs");
    return error ? std::optional(api::api_error(*error)) : std::nullopt;
  }

  std::optional<api::ApiError> prepare(Prepared with, const Scope& scope) override {
    PooledPrompts prompts;
    const Result<std::string> ahead = prompt_ahead(scope.model, request_.fields);
    if (!ahead.ok()) return api::api_error(ahead.error());
    for (size_t i = 0; i < request_.inputs.size(); ++i) {
      put_ahead(*ahead, request_.inputs[i]);
      auto tokens = completion_prompt(request_.inputs[i], scope.model, "inputs");
      if (!tokens.ok()) return api::api_error(tokens.error());
      prompts.add(api::item_path("inputs", i), *std::move(tokens));
    }
    const std::string id = random_id("grpc-", {.seed = scope.identity.draw(), .counter = 0});
    return keep(std::move(prompts).work(id, request_.fields, with, scope), work_);
  }

  void start(Call call, Services& services) override {
    start_pooling(std::move(call), services, std::move(work_),
                  [dimensions = request_.dimensions](Embeddings made) {
                    normalise(made.vectors, dimensions);
                    v1::EmbedReply reply;
                    for (const std::vector<float>& vector : made.vectors) {
                      reply.add_embeddings()->mutable_values()->Assign(vector.begin(),
                                                                       vector.end());
                    }
                    reply.set_prompt_tokens(made.prompt_tokens);
                    return reply.SerializeAsString();
                  });
  }

 private:
  const v1::EmbedRequest message_;  // a copy: it may be read for longer than gRPC keeps its own
  api::EmbeddingRequest request_;
  PooledWork work_;
};

}  // namespace

std::unique_ptr<ModelRequest> embed_request(const v1::EmbedRequest& message) {
  return std::make_unique<GrpcEmbedding>(message);
}

grpc::ServerUnaryReactor* start_embed(GrpcServices& shared, grpc::CallbackServerContext& context,
                                      const v1::EmbedRequest& request, v1::EmbedReply& reply) {
  return start_unary(shared, context,
                     {.route = kRoute,
                      .message = request,
                      .model = request.model(),
                      .reply = reply,
                      .request = embed_request(request),
                      .work = Work::kPooled});
}

}  // namespace pelton::server
