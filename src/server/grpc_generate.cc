#include "server/grpc_generate.h"

#include <memory>
#include <optional>
#include <utility>

#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/generate_request.h"
#include "base/check.h"
#include "net/loop_exchange.h"
#include "rpc/grpc_frame.h"
#include "rpc/grpc_status.h"
#include "rpc/stream_writer.h"
#include "server/answer_guide.h"
#include "server/chat_prompt.h"
#include "server/chat_turn_options.h"
#include "server/completion_prompt.h"
#include "server/grpc_answer.h"
#include "server/grpc_message.h"
#include "server/random_id.h"
#include "server/request_pipeline.h"

namespace pelton::server {
namespace {

constexpr access::TrackedRequest::Route kRoute = {.handler = "/pelton.v1.Inference/Generate",
                                                  .method = "POST"};

// What a reader is behind by stays with the engine's stream, and what comes while a message is
// written goes into the next.
constexpr Generation::Pacing kPacing = {.backlog_bytes_max = 0, .merged_from_bytes = 0};

GrpcLogprobs logprobs_of(int wanted) {
  return wanted >= 0 ? GrpcLogprobs::kYes : GrpcLogprobs::kNo;
}

std::string new_id(const ModelRequest::Scope& scope) {
  return random_id("grpc-", {.seed = scope.identity.draw(), .counter = 0});
}

void stream_answer(Call call, Services& services, EngineWork work, MakeAnswer make_answer) {
  work.answers = 1;
  work.mode = Generation::Mode::kStream;
  work.pacing = kPacing;
  start_generation(std::move(call), services, std::move(work), make_answer);
}

using Message = std::shared_ptr<const v1::GenerateRequest>;

// A message is read by the reader of the HTTP API's body that says the same.
class GrpcChat final : public ModelRequest {
 public:
  explicit GrpcChat(Message message) : message_(std::move(message)) {}

  std::optional<api::ApiError> read(const std::string&, const Scope& scope) override {
    const Result<Json> body = chat_body(*message_);
    if (!body.ok()) return api::api_error(body.error());
    return keep(api::read_chat_request(*body, scope.model.request_limits()), request_);
  }
  Fields fields(const ServedModel&) const override {
    return fields_of(request_->generation, request_->model, {});
  }
  std::optional<api::ApiError> refusal(const Call&, const Scope& scope) const override {
    const std::optional<Error> error = scope.model.no_chat();
    return error ? std::optional(api::api_error(*error)) : std::nullopt;
  }
  FormatCompiler::MakeGuide guide(const ServedModel& model) const override {
    return chat_guide_of(request_, model);
  }

  std::optional<api::ApiError> prepare(Prepared with, const Scope& scope) override {
    turn_ = turn_options(*request_, scope.model);
    Result<ChatPrompt> made = scope.services.chat_prompt_of(*request_, scope.model, scope.tenant,
                                                            scope.identity, turn_.opening);
    if (!made.ok()) return api::api_error(made.error());
    ChatPrompt prompt = *std::move(made);
    turn_.place = {.turns = &scope.services.turn_cache, .history = prompt.history};
    return keep(engine_work(scope, request_->generation,
                            {.id = new_id(scope),
                             .prompt = std::move(prompt.tokens),
                             .prompt_field = "messages",
                             .deadline_ns = with.deadline_ns,
                             .logprobs = request_->top_logprobs,
                             .prompt_logprobs = request_->generation.prompt_logprobs.value_or(-1),
                             .guide = std::move(with.guide),
                             .seed_if_none = scope.identity.draw_seed(),
                             .may_call = !request_->tools.empty(),
                             .reasoning = prompt.reasoning}),
                work_);
  }

  void start(Call call, Services& services) override {
    const ServedModel& model = *call.model;  // which goes with the call
    const uint64_t call_id_seed = call.identity->draw();
    stream_answer(std::move(call), services, std::move(work_), [&] {
      return grpc_chat_answer(model, std::move(turn_), call_id_seed,
                              logprobs_of(request_->top_logprobs));
    });
  }

 private:
  const Message message_;
  std::shared_ptr<const api::ChatRequest> request_;
  ChatTurn::Options turn_;
  EngineWork work_;
};

class GrpcText final : public ModelRequest {
 public:
  explicit GrpcText(Message message) : message_(std::move(message)) {}

  std::optional<api::ApiError> read(const std::string&, const Scope& scope) override {
    const Result<Json> body = completion_body(*message_);
    if (!body.ok()) return api::api_error(body.error());
    return keep(api::read_completion_request(*body, scope.model.request_limits()), request_);
  }
  Fields fields(const ServedModel&) const override {
    return fields_of(request_->generation, request_->model, {});
  }
  FormatCompiler::MakeGuide guide(const ServedModel& model) const override {
    return [request = request_, &model](const GrammarStore::TenantView& grammars) {
      return text_guide(request->generation.format, model, grammars);
    };
  }

  std::optional<api::ApiError> prepare(Prepared with, const Scope& scope) override {
    auto prompt = completion_prompt(request_->prompts[0], scope.model, "text");
    if (!prompt.ok()) return api::api_error(prompt.error());
    return keep(engine_work(scope, request_->generation,
                            {.id = new_id(scope),
                             .prompt = *std::move(prompt),
                             .prompt_field = "text",
                             .deadline_ns = with.deadline_ns,
                             .logprobs = request_->logprobs,
                             .prompt_logprobs = request_->generation.prompt_logprobs.value_or(-1),
                             .guide = std::move(with.guide),
                             .seed_if_none = scope.identity.draw_seed()}),
                work_);
  }

  void start(Call call, Services& services) override {
    const ServedModel& model = *call.model;  // which goes with the call
    stream_answer(std::move(call), services, std::move(work_), [&] {
      return grpc_text_answer(model, StopFilter(stop_strings(request_->generation)),
                              logprobs_of(request_->logprobs));
    });
  }

 private:
  const Message message_;
  std::shared_ptr<const api::CompletionRequest> request_;
  EngineWork work_;
};

class GrpcTokens final : public ModelRequest {
 public:
  explicit GrpcTokens(Message message) : message_(std::move(message)) {}

  std::optional<api::ApiError> read(const std::string&, const Scope& scope) override {
    const Result<Json> body = tokens_body(*message_);
    if (!body.ok()) return api::api_error(body.error());
    auto error = keep(api::read_generate_request(*body, scope.model.request_limits()), request_);
    if (!error) return std::nullopt;
    return in_proto_words(*std::move(error),
                          {{"sampling_params", "sampling"}, {"token_ids", "tokens.ids"}});
  }
  Fields fields(const ServedModel&) const override {
    return fields_of(request_.generation, request_.model, {});
  }

  std::optional<api::ApiError> prepare(Prepared with, const Scope& scope) override {
    return keep(engine_work(scope, request_.generation,
                            {.id = new_id(scope),
                             .prompt = std::move(request_.tokens),
                             .prompt_field = "tokens",
                             .deadline_ns = with.deadline_ns,
                             .logprobs = request_.logprobs,
                             .prompt_logprobs = request_.generation.prompt_logprobs.value_or(-1),
                             .seed_if_none = scope.identity.draw_seed()}),
                work_);
  }

  void start(Call call, Services& services) override {
    stream_answer(std::move(call), services, std::move(work_),
                  [&] { return grpc_tokens_answer(logprobs_of(request_.logprobs)); });
  }

 private:
  const Message message_;
  api::GenerateRequest request_;
  EngineWork work_;
};

std::unique_ptr<ModelRequest> request_of(Message message) {
  switch (message->prompt_case()) {
    case v1::GenerateRequest::kChat:
      return std::make_unique<GrpcChat>(std::move(message));
    case v1::GenerateRequest::kText:
      return std::make_unique<GrpcText>(std::move(message));
    case v1::GenerateRequest::kTokens:
      return std::make_unique<GrpcTokens>(std::move(message));
    case v1::GenerateRequest::PROMPT_NOT_SET:
      break;
  }
  return nullptr;
}

// It deletes itself when gRPC is done with it.
class GenerateCall final : public grpc::ServerWriteReactor<v1::GenerateChunk>,
                           public rpc::StreamWriter::Stream,
                           public net::LoopResponder {
 public:
  GenerateCall(GrpcServices& shared, grpc::CallbackServerContext& context,
               const v1::GenerateRequest& request)
      : shared_(shared),
        context_(context),
        message_(std::make_shared<const v1::GenerateRequest>(request)),
        place_(shared),
        writer_(shared.loop, *this, shared.stall_time_max) {
    const auto exchange = std::make_shared<net::LoopExchange>(shared.loop, *this);
    exchange_ = exchange;
    call_ = std::make_unique<Call>(grpc_call(shared, kRoute, context, request, exchange));
  }

  void start();  // on the loop, as is all but what gRPC calls

  // gRPC's threads.
  void OnWriteDone(bool ok) override {
    shared_.loop.post([this, ok] { written(ok); });
  }
  void OnCancel() override {
    shared_.loop.post([this] { client_left(); });
  }
  // Nothing is called after this, so what was posted before it is the last.
  void OnDone() override {
    shared_.loop.post([this] { delete this; });
  }

  // StreamWriter's.
  void start_write(const std::string& message) override {
    CHECK(writing_.ParseFromString(message), "an answer wrote what is no message");
    StartWrite(&writing_);
  }
  void finish_stream(const grpc::Status& status) override {
    if (const auto exchange = exchange_.lock()) exchange->end();
    Finish(status);
  }
  void cancel_stream() override { context_.TryCancel(); }

  void send(net::HttpResponse response) override {
    writer_.end_now(rpc::grpc_status(context_, rpc::call_error(response)));
  }
  void write(std::string_view frames) override;
  void finish() override { writer_.end(status_); }
  void abandon() override {
    if (writer_.ending()) return;
    writer_.end_now(grpc::Status(grpc::StatusCode::INTERNAL, "the call was dropped unanswered"));
  }
  size_t queued_bytes() const override { return writer_.queued_bytes(); }

 private:
  void written(bool ok);
  void client_left();

  GrpcServices& shared_;
  grpc::CallbackServerContext& context_;
  const Message message_;  // a copy: it may be read for longer than gRPC keeps its own
  GrpcPlace place_;
  std::weak_ptr<net::LoopExchange> exchange_;  // which the call holds
  std::unique_ptr<Call> call_;                 // until it is under way

  // The loop's thread only.
  rpc::StreamWriter writer_;
  v1::GenerateChunk writing_;
  grpc::Status status_;  // that the stream ends with
};

void GenerateCall::start() {
  const std::unique_ptr<Call> call = std::move(call_);
  if (writer_.ended()) return;  // cancelled before its turn came
  if (!admit(shared_, place_, context_, message_->model(), *call)) return;
  std::unique_ptr<ModelRequest> request = request_of(message_);
  if (request == nullptr) return call->send(no_generate_prompt());
  run_request(std::move(*call), shared_.services, std::move(request), Work::kSampled);
}

void GenerateCall::write(std::string_view frames) {
  for (;;) {
    const Result<std::optional<rpc::GrpcFrame>> frame = rpc::take_grpc_frame(frames);
    CHECK(frame.ok(), "an answer wrote half a message");
    if (!*frame) return;
    if ((*frame)->kind == rpc::GrpcFrame::Kind::kError) {
      status_ = rpc::grpc_status(context_, rpc::call_error((*frame)->bytes));
    } else {
      writer_.push(std::string((*frame)->bytes));
    }
  }
}

void GenerateCall::written(bool ok) {
  if (!ok && !writer_.ended()) return client_left();
  writer_.written();
  if (!writer_.idle() || writer_.ended()) return;
  if (const auto exchange = exchange_.lock()) exchange->drain();
}

void GenerateCall::client_left() {
  if (writer_.ended()) return;
  if (const auto exchange = exchange_.lock()) exchange->leave();
  writer_.end_now(grpc::Status::CANCELLED);
}

}  // namespace

std::unique_ptr<ModelRequest> generate_request(v1::GenerateRequest message) {
  return request_of(std::make_shared<const v1::GenerateRequest>(std::move(message)));
}

api::ApiError no_generate_prompt() {
  return api::api_error(
      {ErrorCode::kInvalidArgument, "a prompt is missing: 'text', 'tokens' or 'chat'", "prompt"});
}

grpc::ServerWriteReactor<v1::GenerateChunk>* start_generate(GrpcServices& shared,
                                                            grpc::CallbackServerContext& context,
                                                            const v1::GenerateRequest& request) {
  auto* call = new GenerateCall(shared, context, request);
  shared.loop.post([call] { call->start(); });
  return call;
}

}  // namespace pelton::server
