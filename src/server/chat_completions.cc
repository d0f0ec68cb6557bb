// POST /v1/chat/completions, and how many tokens its prompt has.
#include <memory>
#include <utility>
#include <variant>

#include "api/chat_request.h"
#include "api/tokenize_request.h"
#include "server/answer_guide.h"
#include "server/chain_routes.h"
#include "server/chat_answer.h"
#include "server/chat_prompt.h"
#include "server/chat_turn_options.h"
#include "server/endpoints.h"
#include "server/generation.h"
#include "server/generation_request.h"
#include "server/random_id.h"
#include "server/reply.h"
#include "server/request_pipeline.h"

namespace pelton::server {
namespace {

ChatAnswer::Options answer_options(const api::ChatRequest& request, ChatTurn::Options turn,
                                   const ServedModel& model, const std::string& id,
                                   int64_t created_s) {
  return {.head = {.id = id,
                   .created = created_s,
                   .model = model.shown_name(request.model),
                   .reasoning_field = model.reasoning_field,
                   .legacy_calls = request.legacy_calls},
          .choice_count = request.generation.n,
          .include_usage = request.generation.include_usage,
          .continuous_usage = request.generation.continuous_usage,
          .timings = request.generation.timings,
          .prompt_logprobs = request.generation.prompt_logprobs.has_value(),
          .has_prediction = request.prediction.has_value(),
          .choice = {.turn = std::move(turn),
                     .hides_reasoning = !request.include_reasoning,
                     .logprobs = request.top_logprobs >= 0,
                     .tokens_as_ids = request.generation.tokens_as_ids,
                     .stream = request.generation.stream,
                     .legacy_calls = request.legacy_calls,
                     .token_ids = request.generation.return_token_ids,
                     .stop_token_ids = request.generation.stop_token_ids}};
}

class ChatCompletion final : public ModelRequest {
 public:
  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    return keep(api::parse_chat_request(body, scope.model.request_limits()), request_);
  }

  Fields fields(const ServedModel& model) const override {
    return fields_of(request_->generation, request_->model, warnings_of(*request_, model));
  }

  FormatCompiler::MakeGuide guide(const ServedModel& model) const override {
    return chat_guide_of(request_, model);
  }

  std::optional<api::ApiError> prepare(Prepared with, const Scope& scope) override {
    const api::GenerationFields& generation = request_->generation;
    ChatTurn::Options turn = turn_options(*request_, scope.model);
    Result<ChatPrompt> made = scope.services.chat_prompt_of(*request_, scope.model, scope.tenant,
                                                            scope.identity, turn.opening);
    if (!made.ok()) return api::api_error(made.error());
    ChatPrompt prompt = *std::move(made);
    std::string id = answer_id("chatcmpl-", generation.request_id, scope.identity.draw());
    options_ =
        answer_options(*request_, std::move(turn), scope.model, id, scope.identity.created_s());
    ChatChoice::Options& choice = options_.choice;
    scope.use_known_prompt(prompt.tokens);
    options_.prompt_tokens = static_cast<int64_t>(prompt.tokens.size());
    has_sampled_turns_ = prompt.has_sampled_turns;
    if (choice.token_ids) options_.prompt_token_ids = prompt.tokens;
    std::vector<TokenId> prediction;
    if (request_->prediction) prediction = scope.model.tokenizer.encode(*request_->prediction);
    if (!request_->continues_last) {
      choice.turn.place = {.turns = &scope.services.turn_cache, .history = prompt.history};
    }
    return keep(engine_work(scope, generation,
                            {.id = std::move(id),
                             .prompt = std::move(prompt.tokens),
                             .prompt_field = "messages",
                             .prompt_kind = api::ContextLength::Prompt::kMessages,
                             .deadline_ns = with.deadline_ns,
                             .logprobs = request_->top_logprobs,
                             .prompt_logprobs = generation.prompt_logprobs.value_or(-1),
                             .guide = std::move(with.guide),
                             .prediction = std::move(prediction),
                             .seed_if_none = scope.identity.draw_seed(),
                             .may_call = !request_->tools.empty(),
                             .reasoning = prompt.reasoning}),
                work_);
  }

  void start(Call call, Services& services) override {
    work_.can_be_controlled = true;
    work_.has_sampled_turns = has_sampled_turns_;
    const ServedModel& model = *call.model;  // which goes with the call
    options_.choice.call_id_seed = call.identity->draw();
    start_generation(std::move(call), services, std::move(work_),
                     [&] { return std::make_unique<ChatAnswer>(model, std::move(options_)); });
  }

 private:
  std::shared_ptr<const api::ChatRequest> request_;
  ChatAnswer::Options options_;
  bool has_sampled_turns_ = false;
  EngineWork work_;
};

// As llama.cpp has it: what the prompt of the same request would be.
class ChatInputTokens final : public ModelRequest {
 public:
  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    return keep(api::parse_chat_request(body, scope.model.request_limits()), request_);
  }
  Fields fields(const ServedModel& model) const override {
    return {.model = request_.model, .warnings = warnings_of(request_, model)};
  }
  std::optional<api::ApiError> prepare(Prepared, const Scope& scope) override {
    std::vector<TokenId> opening = turn_options(request_, scope.model).opening;
    const Result<ChatPrompt> prompt =
        scope.services.chat_prompt_of(request_, scope.model, scope.tenant, scope.identity, opening);
    if (!prompt.ok()) return api::api_error(prompt.error());
    count_ = prompt->tokens.size();
    return std::nullopt;
  }
  void start(Call call, Services&) override {
    call.send(json_reply(api::input_tokens_body(static_cast<int64_t>(count_))));
  }

 private:
  api::ChatRequest request_;
  size_t count_ = 0;
};

}  // namespace

void chat_completions(Call call, Services& services) {
  if (run_chain_as_chat(call, services)) return;
  run_request(std::move(call), services, std::make_unique<ChatCompletion>(), Work::kSampled);
}

void chat_input_tokens(Call call, Services& services) {
  run_request(std::move(call), services, std::make_unique<ChatInputTokens>(), std::nullopt);
}

}  // namespace pelton::server
