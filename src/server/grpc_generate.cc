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
#include "server/generation_facts.h"
#include "server/generation_meter.h"
#include "server/generation_request.h"
#include "server/grpc_answer.h"
#include "server/grpc_words.h"
#include "server/model_admission.h"
#include "server/random_id.h"

namespace pelton::server {
namespace {

constexpr access::TrackedRequest::Route kRoute = {.handler = "/pelton.v1.Inference/Generate",
                                                  .method = "POST"};

// Of one message: its tokens, and each of their alternatives. Some 30 to 60 bytes each.
constexpr size_t kPendingCostMax = 512;

// A call that is understood: its prompt, what it asks for, and who makes chunks of the tokens.
struct Prepared {
  GenerationSource source;
  api::GenerationFields fields;
  FormatCompiler::MakeGuide make_guide;
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
  void compile_formats(Prepared prepared, FormatCompiler::Asked asked);
  void compiled(FormatCompiler::Guide guide);
  void begin(Prepared prepared, FormatCompiler::Guide guide);
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
  const std::shared_ptr<char> life_;  // gone with us: what is posted to us may come later
  std::shared_ptr<const ServedModel> model_;
  int64_t arrived_ns_ = 0;
  std::optional<Prepared> compiling_;  // while its formats are being compiled
  int64_t compile_began_ns_ = 0;
  std::shared_ptr<CompilePool::Ticket> compile_ticket_;
  std::unique_ptr<GrpcAnswer> answer_;
  std::optional<access::AdmissionTicket> ticket_;
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
  auto admitted = admit(house_, place_, context_, entry_, request_.model());
  if (const auto* error = std::get_if<api::ApiError>(&admitted)) return fail(*error);
  const GrpcCaller& caller = std::get<GrpcCaller>(admitted);
  auto entered = admit(house_.server.access(), caller.who, *caller.model, Work::kSampled);
  if (const auto* error = std::get_if<api::ApiError>(&entered)) return fail(*error);
  model_ = caller.model;
  ticket_.emplace(std::get<access::AdmissionTicket>(std::move(entered)));
  arrived_ns_ = caller.arrived_ns;
  PreparedOrError prepared = prepare(caller);
  if (const auto* error = std::get_if<api::ApiError>(&prepared)) return fail(*error);
  Prepared& ready = std::get<Prepared>(prepared);
  FormatCompiler::Asked asked{.model = caller.model,
                              .tenant = caller.tenant,
                              .account = access::billing_account(caller.tenant, ready.fields.user),
                              .weight = caller.who.weight,
                              .bytes = static_cast<int64_t>(request_.ByteSizeLong()),
                              .deadline_ns = caller.deadline_ns,
                              .make = ready.make_guide};
  if (std::optional<FormatCompiler::Guide> known = house_.server.formats().known(asked)) {
    return begin(std::move(ready), *std::move(known));
  }
  compile_formats(std::move(ready), std::move(asked));
}

// The ticket is let go on the loop before this is, and before the loop is: so what is posted there
// finds both.
void GenerateCall::compile_formats(Prepared prepared, FormatCompiler::Asked asked) {
  compiling_.emplace(std::move(prepared));
  compile_began_ns_ = house_.server.clock().now_ns();
  auto submitted = house_.server.formats().compile(
      std::move(asked),
      [this, &loop = house_.loop, weak = std::weak_ptr<char>(life_)](FormatCompiler::Guide guide) {
        const auto made = std::make_shared<FormatCompiler::Guide>(std::move(guide));
        loop.post([this, weak, made] {
          if (!weak.expired()) compiled(std::move(*made));
        });
      });
  if (!submitted.ok()) return compiled(submitted.error());
  compile_ticket_ = *std::move(submitted);
}

void GenerateCall::compiled(FormatCompiler::Guide guide) {
  if (finished_) return;
  if (access::RequestRecord* const record = entry_.record()) {
    record->compile_began_ns = compile_began_ns_;
    record->compile_ended_ns = house_.server.clock().now_ns();
  }
  begin(*std::exchange(compiling_, std::nullopt), std::move(guide));
}

void GenerateCall::begin(Prepared prepared, FormatCompiler::Guide guide) {
  if (!guide.ok()) {
    return fail(not_compiled(house_.server.access(), ticket_->principal(), guide.error(),
                             house_.server.formats().pool()));
  }
  prepared.source.guide = *std::move(guide);
  if (entry_.record() != nullptr) entry_.record()->asked = sampling_asked(prepared.fields);
  auto made = generation_request(*model_, prepared.fields, std::move(prepared.source));
  if (const auto* error = std::get_if<api::ApiError>(&made)) return fail(*error);
  auto& request = std::get<request::GenerationRequest>(made);
  answer_ = std::move(prepared.answer);
  const int output_max = request.stop.max_new_tokens;
  auto streams = server::submit(*ticket_, *model_, std::move(request), {});
  if (const auto* error = std::get_if<api::ApiError>(&streams)) return fail(*error);
  watch_.emplace(model_->state->meter, GenerationWatch::Start{.choice_count = 1,
                                                              .arrived_ns = arrived_ns_,
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
          .cache_salt = house_.server.access().cache_salt(caller.tenant, request_.cache_salt()),
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

// Of calls without a format.
FormatCompiler::Guide no_guide(const GrammarStore::Shelf& /*grammars*/) {
  return std::optional<grammar::TokenGuide>();
}

GrpcLogprobs logprobs_of(int wanted) {
  return wanted >= 0 ? GrpcLogprobs::kYes : GrpcLogprobs::kNo;
}

PreparedOrError GenerateCall::prepare_chat(const GrpcCaller& caller) {
  const ServedModel& model = *caller.model;
  const Result<std::string> body = chat_body(request_);
  if (!body.ok()) return api::api_error(body.error());
  Result<api::ChatRequest> parsed =
      api::parse_chat_request(*body, {.vocab_size = model.vocab_size});
  if (!parsed.ok()) return api::api_error(parsed.error());
  const auto request = std::make_shared<const api::ChatRequest>(*std::move(parsed));
  if (!model.answers_to(request->model)) return api::model_not_found(request->model);
  if (const auto error = model.no_chat()) return api::api_error(*error);
  ChatTurn::Options turn = turn_options(*request, model);
  ChatPrompt prompt = house_.server.chat_prompt_of(*request, model, caller.tenant);
  prompt.tokens.insert(prompt.tokens.end(), turn.opening.begin(), turn.opening.end());
  turn.place = {.turns = &house_.server.sampled_turns(), .history = prompt.history};
  GenerationSource from = source(caller, std::move(prompt.tokens), "messages");
  from.logprobs = request->top_logprobs;
  from.prompt_logprobs = request->generation.prompt_logprobs.value_or(-1);
  return Prepared{.source = std::move(from),
                  .fields = request->generation,
                  .make_guide = chat_guide_of(request, model),
                  .answer = grpc_chat_answer(model, std::move(turn), house_.server.draw(),
                                             logprobs_of(request->top_logprobs))};
}

PreparedOrError GenerateCall::prepare_text(const GrpcCaller& caller) {
  const ServedModel& model = *caller.model;
  const Result<std::string> body = completion_body(request_);
  if (!body.ok()) return api::api_error(body.error());
  Result<api::CompletionRequest> parsed =
      api::parse_completion_request(*body, {.vocab_size = model.vocab_size});
  if (!parsed.ok()) return api::api_error(parsed.error());
  if (!model.answers_to(parsed->model)) return api::model_not_found(parsed->model);
  Result<std::vector<TokenId>> prompt = completion_prompt(parsed->prompts[0], model, "text");
  if (!prompt.ok()) return api::api_error(prompt.error());
  GenerationSource from = source(caller, std::move(prompt).value(), "text");
  from.logprobs = parsed->logprobs;
  from.prompt_logprobs = parsed->generation.prompt_logprobs.value_or(-1);
  return Prepared{
      .source = std::move(from),
      .fields = parsed->generation,
      .make_guide =
          [format = parsed->generation.format, &model](const GrammarStore::Shelf& grammars) {
            return text_guide(format, model, grammars);
          },
      .answer = grpc_text_answer(model, StopFilter(stop_strings(parsed->generation)),
                                 logprobs_of(parsed->logprobs))};
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
  return Prepared{.source = std::move(from),
                  .fields = std::move(parsed->generation),
                  .make_guide = no_guide,
                  .answer = grpc_tokens_answer(logprobs_of(parsed->logprobs))};
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
      return fail(engine_error(ticket_->control(), *model_, taken_.end->error.value_or(none)));
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
  ticket_->note_output(static_cast<int64_t>(taken_.tokens.size()));
  if (!taken_.end) return;
  watch_->end(0, *taken_.end);
  note_end(*ticket_, *taken_.end);
  if (entry_.record() != nullptr) add_answer(entry_.record()->generation, *taken_.end);
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
  finish(grpc::Status::CANCELLED, access::RequestStatistics::kClientLeft);
}

void GenerateCall::fail(const api::ApiError& error) {
  if (!finished_) finish(grpc_status(context_, error), error.status);
}

// Once, also while a write runs: gRPC sees to the order. Cancels what still runs.
void GenerateCall::finish(const grpc::Status& status, int http_status) {
  if (finished_) return;
  finished_ = true;
  compile_ticket_.reset();
  compiling_.reset();
  stream_.reset();
  ticket_.reset();
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
