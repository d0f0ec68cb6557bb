#include "server/grpc_generate.h"

#include <chrono>
#include <optional>
#include <utility>

#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/generate_request.h"
#include "server/answer_guide.h"
#include "server/chat_turn_options.h"
#include "server/completion_prompt.h"
#include "server/generation_meter.h"
#include "server/generation_request.h"
#include "server/grpc_answer.h"
#include "server/grpc_words.h"
#include "server/random_id.h"

namespace pelton::server {
namespace {

constexpr RequestEntry::Route kRoute = {.handler = "/pelton.v1.Inference/Generate",
                                        .method = "POST"};

// Of one message: its tokens, and each of their alternatives. Some 30 to 60 bytes each.
constexpr size_t kPendingCostMax = 512;

// A call that may run: its prompt as the engine's request, and who makes chunks of the tokens.
struct Prepared {
  request::GenerationRequest request;
  std::unique_ptr<GrpcAnswer> answer;
};
using PreparedOrError = std::variant<Prepared, api::ApiError>;

class GenerateCall final : public grpc::ServerWriteReactor<v1::GenerateChunk> {
 public:
  GenerateCall(GrpcHouse& house, grpc::CallbackServerContext& context,
               const v1::GenerateRequest& request)
      : house_(house),
        context_(context),
        request_(request),
        place_(house),
        entry_(house, kRoute, context, request),
        life_(std::make_shared<char>()) {}

  void start();  // on the loop

  // gRPC's threads.
  void OnWriteDone(bool ok) override {
    house_.loop.post([this, ok] { written(ok); });
  }
  void OnCancel() override {
    house_.loop.post([this] { client_left(); });
  }
  // Nothing is called after this, so what was posted before it is the last.
  void OnDone() override {
    house_.loop.post([this] { delete this; });
  }

 private:
  PreparedOrError prepare(const GrpcCaller& caller);
  PreparedOrError prepare_chat(const GrpcCaller& caller);
  PreparedOrError prepare_text(const GrpcCaller& caller);
  PreparedOrError prepare_tokens(const GrpcCaller& caller);
  GenerationSource source(const GrpcCaller& caller, std::vector<TokenId> prompt,
                          std::string_view field) const;

  void pump();
  void take();
  void begin_watch();
  void watch_write(std::chrono::milliseconds after);
  void written(bool ok);
  void client_left();
  void write_or_finish();
  void fail(const api::ApiError& error);
  void finish(const grpc::Status& status, int http_status);

  GrpcHouse& house_;
  grpc::CallbackServerContext& context_;
  const v1::GenerateRequest& request_;  // gRPC keeps it until OnDone
  const GrpcPlace place_;
  GrpcEntry entry_;

  // The loop's thread only.
  const std::shared_ptr<char> life_;  // gone with us: what the engine posts may come later
  std::unique_ptr<GrpcAnswer> answer_;
  std::optional<Pass> pass_;
  std::optional<GenerationWatch> watch_;
  std::optional<engine::TokenStream> stream_;
  engine::TokenStream::Batch taken_;
  size_t taken_at_ = 0;  // of its tokens
  v1::GenerateChunk pending_;
  size_t pending_cost_ = 0;
  v1::GenerateChunk writing_;
  bool has_pending_ = false;
  bool write_runs_ = false;
  bool write_watched_ = false;
  std::chrono::steady_clock::time_point write_began_;
  bool silenced_ = false;  // a stop string ended it; its end is still to come
  bool ended_ = false;     // the last chunk is pending or written
  bool finished_ = false;
};

void GenerateCall::start() {
  if (finished_) return;  // cancelled before its turn came
  auto admitted = admit(house_, place_, context_, entry_);
  if (const auto* error = std::get_if<api::ApiError>(&admitted)) return fail(*error);
  const GrpcCaller& caller = std::get<GrpcCaller>(admitted);
  auto entered = house_.server.desk().enter(caller.who, *caller.model, FrontDesk::Work::kSampled);
  if (const auto* error = std::get_if<api::ApiError>(&entered)) return fail(*error);
  pass_.emplace(std::get<Pass>(std::move(entered)));
  PreparedOrError prepared = prepare(caller);
  if (const auto* error = std::get_if<api::ApiError>(&prepared)) return fail(*error);
  Prepared& ready = std::get<Prepared>(prepared);
  answer_ = std::move(ready.answer);
  const int output_max = ready.request.stop.max_new_tokens;
  auto streams = house_.server.desk().submit(*pass_, std::move(ready.request), {});
  if (const auto* error = std::get_if<api::ApiError>(&streams)) return fail(*error);
  watch_.emplace(house_.server.meter(), GenerationWatch::Start{.choice_count = 1,
                                                               .arrived_ns = caller.arrived_ns,
                                                               .output_tokens_max = output_max});
  stream_.emplace(std::move(std::get<std::vector<engine::TokenStream>>(streams).front()));
  stream_->on_ready([this, &loop = house_.loop, weak = std::weak_ptr<char>(life_)] {
    loop.post([this, weak] {
      if (!weak.expired()) pump();
    });
  });
}

GenerationSource GenerateCall::source(const GrpcCaller& caller, std::vector<TokenId> prompt,
                                      std::string_view field) const {
  return {.id = random_id("grpc-", {.seed = house_.server.draw(), .counter = 0}),
          .prompt = std::move(prompt),
          .prompt_field = field,
          .tenant = caller.tenant,
          .cache_salt = house_.server.desk().cache_salt(caller.tenant, request_.cache_salt()),
          .deadline_ns = caller.deadline_ns,
          .seed_if_none = house_.server.draw()};
}

PreparedOrError GenerateCall::prepare(const GrpcCaller& caller) {
  switch (request_.prompt_case()) {
    case v1::GenerateRequest::kChat:
      return prepare_chat(caller);
    case v1::GenerateRequest::kText:
      return prepare_text(caller);
    case v1::GenerateRequest::kTokens:
      return prepare_tokens(caller);
    case v1::GenerateRequest::PROMPT_NOT_SET:
      break;
  }
  return api::api_error(
      {ErrorCode::kInvalidArgument, "a prompt is missing: 'text', 'tokens' or 'chat'", "prompt"});
}

template <typename T>
PreparedOrError with_answer(std::variant<request::GenerationRequest, api::ApiError> made,
                            T&& make_answer) {
  if (auto* error = std::get_if<api::ApiError>(&made)) return std::move(*error);
  return Prepared{std::get<request::GenerationRequest>(std::move(made)), make_answer()};
}

GrpcLogprobs logprobs_of(int wanted) {
  return wanted >= 0 ? GrpcLogprobs::kYes : GrpcLogprobs::kNo;
}

PreparedOrError GenerateCall::prepare_chat(const GrpcCaller& caller) {
  const ServedModel& model = *caller.model;
  const Result<std::string> body = chat_body(request_);
  if (!body.ok()) return api::api_error(body.error());
  const auto parsed = api::parse_chat_request(*body, {.vocab_size = model.vocab_size});
  if (!parsed.ok()) return api::api_error(parsed.error());
  if (!model.answers_to(parsed->model)) return api::model_not_found(parsed->model);
  ChatTurn::Options turn = turn_options(*parsed, model);
  ChatPrompt prompt = house_.server.chat_prompt_of(*parsed, model, caller.tenant);
  prompt.tokens.insert(prompt.tokens.end(), turn.opening.begin(), turn.opening.end());
  turn.place = {.turns = &house_.server.sampled_turns(), .history = prompt.history};
  GenerationSource from = source(caller, std::move(prompt.tokens), "messages");
  Result<std::optional<grammar::TokenGuide>> guide =
      chat_guide({.format = parsed->generation.format,
                  .tools = parsed->tools,
                  .forced_call = parsed->forced_call},
                 model, house_.server.grammars().of(caller.tenant));
  if (!guide.ok()) return api::api_error(guide.error());
  from.guide = *std::move(guide);
  from.logprobs = parsed->top_logprobs;
  from.prompt_logprobs = parsed->generation.prompt_logprobs.value_or(-1);
  return with_answer(generation_request(model, parsed->generation, std::move(from)), [&] {
    return grpc_chat_answer(model, std::move(turn), house_.server.draw(),
                            logprobs_of(parsed->top_logprobs));
  });
}

PreparedOrError GenerateCall::prepare_text(const GrpcCaller& caller) {
  const ServedModel& model = *caller.model;
  const Result<std::string> body = completion_body(request_);
  if (!body.ok()) return api::api_error(body.error());
  const auto parsed = api::parse_completion_request(*body, {.vocab_size = model.vocab_size});
  if (!parsed.ok()) return api::api_error(parsed.error());
  if (!model.answers_to(parsed->model)) return api::model_not_found(parsed->model);
  Result<std::vector<TokenId>> prompt = completion_prompt(parsed->prompts[0], model, "text");
  if (!prompt.ok()) return api::api_error(prompt.error());
  GenerationSource from = source(caller, std::move(prompt).value(), "text");
  Result<std::optional<grammar::TokenGuide>> guide =
      text_guide(parsed->generation.format, model, house_.server.grammars().of(caller.tenant));
  if (!guide.ok()) return api::api_error(guide.error());
  from.guide = *std::move(guide);
  from.logprobs = parsed->logprobs;
  from.prompt_logprobs = parsed->generation.prompt_logprobs.value_or(-1);
  return with_answer(generation_request(model, parsed->generation, std::move(from)), [&] {
    return grpc_text_answer(model, StopFilter(stop_strings(parsed->generation)),
                            logprobs_of(parsed->logprobs));
  });
}

PreparedOrError GenerateCall::prepare_tokens(const GrpcCaller& caller) {
  const ServedModel& model = *caller.model;
  const Result<std::string> body = tokens_body(request_);
  if (!body.ok()) return api::api_error(body.error());
  auto parsed = api::parse_generate_request(*body, {.vocab_size = model.vocab_size});
  if (!parsed.ok()) {
    return in_proto_words(api::api_error(parsed.error()),
                          {{"sampling_params", "sampling"}, {"token_ids", "tokens.ids"}});
  }
  if (!model.answers_to(parsed->model)) return api::model_not_found(parsed->model);
  GenerationSource from = source(caller, std::move(parsed->tokens), "tokens");
  from.logprobs = parsed->logprobs;
  from.prompt_logprobs = parsed->generation.prompt_logprobs.value_or(-1);
  return with_answer(generation_request(model, parsed->generation, std::move(from)),
                     [&] { return grpc_tokens_answer(logprobs_of(parsed->logprobs)); });
}

// What a reader is behind by stays with the engine's stream: a message that takes a slow one more
// than the stall time would look like one that nobody reads.
void GenerateCall::pump() {
  if (finished_ || ended_ || !stream_) return;
  while (pending_cost_ < kPendingCostMax) {
    if (taken_at_ == taken_.tokens.size()) {
      if (taken_.end) break;
      take();
      if (taken_.tokens.empty() && !taken_.end) break;
      continue;
    }
    const engine::SampledToken& token = taken_.tokens[taken_at_++];
    if (silenced_) continue;
    pending_cost_ += 1 + token.top.size();
    has_pending_ = true;
    silenced_ = answer_->push(token, pending_) == Answer::Wants::kNothing;
    if (!silenced_) continue;
    watch_->stopped(0);
    stream_->cancel();
  }
  if (taken_.end && taken_at_ == taken_.tokens.size()) {
    if (taken_.end->reason == engine::FinishReason::kError) {
      const Error none{ErrorCode::kInternal, "the engine failed", ""};
      return fail(pass_->told(taken_.end->error.value_or(none)));
    }
    answer_->end(*taken_.end, pending_);
    has_pending_ = ended_ = true;
  }
  write_or_finish();
}

void GenerateCall::take() {
  taken_ = stream_->take();
  taken_at_ = 0;
  if (!silenced_) watch_->tokens(0, taken_.tokens.size());
  add_prompt(taken_.prompt, pending_);
  pass_->note_output(static_cast<int64_t>(taken_.tokens.size()));
  if (!taken_.end) return;
  watch_->end(0, *taken_.end);
  pass_->note_end(*taken_.end);
  if (entry_.record() != nullptr) entry_.record()->generation.add(*taken_.end);
}

void GenerateCall::write_or_finish() {
  if (write_runs_ || finished_) return;
  if (has_pending_) {
    writing_.Clear();
    writing_.Swap(&pending_);
    has_pending_ = false;
    pending_cost_ = 0;
    write_runs_ = true;
    begin_watch();
    StartWrite(&writing_);
  } else if (ended_) {
    finish(grpc::Status::OK, 200);
  }
}

// One timer for many writes and the goodbye: it looks at the one that runs when its time comes.
// Without, a client that takes nothing would keep its call, and what is written to it, for good.
void GenerateCall::begin_watch() {
  write_began_ = std::chrono::steady_clock::now();
  if (!std::exchange(write_watched_, true)) watch_write(house_.stall_time_max);
}

void GenerateCall::watch_write(std::chrono::milliseconds after) {
  house_.loop.post_after(after, [this, weak = std::weak_ptr<char>(life_)] {
    if (weak.expired()) return;
    write_watched_ = false;
    if (!write_runs_ && !finished_) return;
    const auto ran = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - write_began_);
    if (ran >= house_.stall_time_max) return context_.TryCancel();
    write_watched_ = true;
    watch_write(house_.stall_time_max - ran);
  });
}

void GenerateCall::written(bool ok) {
  write_runs_ = false;
  if (!ok && !finished_) return client_left();
  write_or_finish();
  pump();  // there may be room again
}

void GenerateCall::client_left() {
  finish(grpc::Status::CANCELLED, RequestBook::kClientLeft);
}

void GenerateCall::fail(const api::ApiError& error) {
  if (!finished_) finish(grpc_status(context_, error), error.status);
}

// Once, also while a write runs: gRPC sees to the order. Cancels what still runs.
void GenerateCall::finish(const grpc::Status& status, int http_status) {
  if (finished_) return;
  finished_ = true;
  stream_.reset();
  pass_.reset();
  entry_.answered(http_status);
  begin_watch();
  Finish(status);
}

}  // namespace

grpc::ServerWriteReactor<v1::GenerateChunk>* start_generate(GrpcHouse& house,
                                                            grpc::CallbackServerContext& context,
                                                            const v1::GenerateRequest& request) {
  auto* call = new GenerateCall(house, context, request);
  house.loop.post([call] { call->start(); });
  return call;
}

}  // namespace pelton::server
