#include "server/grpc_embed.h"

#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "server/completion_prompt.h"
#include "server/embedding_batch.h"
#include "server/embedding_request.h"
#include "server/grpc_words.h"
#include "server/model_admission.h"
#include "server/random_id.h"

namespace pelton::server {
namespace {

constexpr access::TrackedRequest::Route kRoute = {.handler = "/pelton.v1.Inference/Embed",
                                                  .method = "POST"};

class EmbedCall final : public grpc::ServerUnaryReactor {
 public:
  EmbedCall(GrpcHouse& house, grpc::CallbackServerContext& context, const v1::EmbedRequest& request,
            v1::EmbedReply& reply)
      : house_(house),
        context_(context),
        request_(request),
        reply_(reply),
        place_(house),
        entry_(house, kRoute, context, request),
        life_(std::make_shared<char>()) {}

  void start();  // on the loop

  // gRPC's threads.
  void OnCancel() override {
    house_.loop.post(
        [this] { finish(grpc::Status::CANCELLED, access::RequestStatistics::kClientLeft); });
  }
  void OnDone() override {
    house_.loop.post([this] { delete this; });
  }

 private:
  using Requests = std::vector<request::GenerationRequest>;

  std::variant<Requests, api::ApiError> prepare(const GrpcCaller& caller);
  void pump();
  void fail(const api::ApiError& error) {
    if (!finished_) finish(grpc_status(context_, error), error.status);
  }
  void finish(const grpc::Status& status, int http_status);

  GrpcHouse& house_;
  grpc::CallbackServerContext& context_;
  const v1::EmbedRequest& request_;  // gRPC keeps both until OnDone
  v1::EmbedReply& reply_;
  const GrpcPlace place_;
  GrpcEntry entry_;

  // The loop's thread only.
  const std::shared_ptr<char> life_;          // gone with us: what the engine posts may come later
  std::shared_ptr<const ServedModel> model_;  // once it is admitted
  std::optional<access::AdmissionTicket> ticket_;
  std::optional<int> dimensions_;
  std::optional<EmbeddingBatch> batch_;
  bool finished_ = false;
};

void EmbedCall::start() {
  if (finished_) return;  // cancelled before its turn came
  auto admitted = admit(house_, place_, context_, entry_, request_.model());
  if (const auto* error = std::get_if<api::ApiError>(&admitted)) return fail(*error);
  const GrpcCaller& caller = std::get<GrpcCaller>(admitted);
  access::AccessControl& control = house_.server.access();
  auto entered = admit(control, caller.who, *caller.model, Work::kPooled);
  if (const auto* error = std::get_if<api::ApiError>(&entered)) return fail(*error);
  model_ = caller.model;
  ticket_.emplace(std::get<access::AdmissionTicket>(std::move(entered)));
  auto prepared = prepare(caller);
  if (const auto* error = std::get_if<api::ApiError>(&prepared)) return fail(*error);
  int64_t prompt_tokens = 0;
  for (const request::GenerationRequest& one : std::get<Requests>(prepared)) {
    prompt_tokens += static_cast<int64_t>(one.prompt.size());
  }
  if (const auto refused = control.reserve(*ticket_, prompt_tokens)) return fail(*refused);
  batch_.emplace(caller.model->engine, std::get<Requests>(std::move(prepared)),
                 [this, &loop = house_.loop, weak = std::weak_ptr<char>(life_)] {
                   loop.post([this, weak] {
                     if (!weak.expired()) pump();
                   });
                 });
  pump();
}

std::variant<EmbedCall::Requests, api::ApiError> EmbedCall::prepare(const GrpcCaller& caller) {
  const ServedModel& model = *caller.model;
  const Result<std::string> body = embedding_body(request_);
  if (!body.ok()) return api::api_error(body.error());
  const auto parsed = api::parse_embedding_request(*body, {.vocab_size = model.vocab_size});
  if (!parsed.ok()) {
    return in_proto_words(api::api_error(parsed.error()), {{"input", "inputs"}});
  }
  if (!model.answers_to(parsed->fields.model)) return api::model_not_found(parsed->fields.model);
  if (const auto error = dimensions_error(model, parsed->dimensions, "dimensions")) return *error;
  dimensions_ = parsed->dimensions;
  const std::string id = random_id("grpc-", {.seed = house_.server.draw(), .counter = 0});
  Requests requests;
  for (size_t i = 0; i < parsed->inputs.size(); ++i) {
    Result<std::vector<TokenId>> tokens = completion_prompt(parsed->inputs[i], model, "inputs");
    if (!tokens.ok()) return api::api_error(tokens.error());
    auto made = embedding_request(
        model, parsed->fields,
        {.id = id,
         .caller = caller.who,
         .cache_salt = house_.server.access().cache_salt(caller.tenant, parsed->fields.cache_salt),
         .deadline_ns = caller.deadline_ns},
        std::move(tokens).value(), api::item_path("inputs", i));
    if (auto* error = std::get_if<api::ApiError>(&made)) return std::move(*error);
    requests.push_back(std::get<request::GenerationRequest>(std::move(made)));
  }
  return requests;
}

void EmbedCall::pump() {
  if (finished_ || !batch_) return;
  std::optional<Result<Embeddings>> result = batch_->pump();
  if (!result) return;
  if (access::RequestRecord* const record = entry_.record()) {
    record->generation = batch_->facts();
    record->asked.dimensions = dimensions_;
  }
  if (!result->ok()) return fail(engine_error(ticket_->control(), *model_, result->error()));
  Embeddings made = std::move(*result).value();
  ticket_->note_output(made.prompt_tokens);
  normalise(made.vectors, dimensions_);
  for (const std::vector<float>& vector : made.vectors) {
    reply_.add_embeddings()->mutable_values()->Assign(vector.begin(), vector.end());
  }
  reply_.set_prompt_tokens(made.prompt_tokens);
  finish(grpc::Status::OK, 200);
}

void EmbedCall::finish(const grpc::Status& status, int http_status) {
  if (finished_) return;
  finished_ = true;
  batch_.reset();
  ticket_.reset();
  entry_.answered(http_status);
  Finish(status);
}

}  // namespace

grpc::ServerUnaryReactor* start_embed(GrpcHouse& house, grpc::CallbackServerContext& context,
                                      const v1::EmbedRequest& request, v1::EmbedReply& reply) {
  auto* call = new EmbedCall(house, context, request, reply);
  house.loop.post([call] { call->start(); });
  return call;
}

}  // namespace pelton::server
