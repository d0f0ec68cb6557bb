// POST /inference/v1/generate: tokens -> engine -> Generation -> tokens. What the tokens say is the
// caller's business, so control tokens may stand among them: a rendered prompt is full of them.
#include <memory>
#include <utility>

#include "api/generate_request.h"
#include "server/endpoints.h"
#include "server/random_id.h"
#include "server/request_pipeline.h"
#include "server/tokens_answer.h"

namespace pelton::server {
namespace {

class Generate final : public ModelRequest {
 public:
  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    return keep(api::parse_generate_request(body, scope.model.request_limits()), request_);
  }

  Fields fields(const ServedModel&) const override {
    return fields_of(request_.generation, request_.model, request_.warnings);
  }

  std::optional<api::ApiError> prepare(Prepared with, const Scope& scope) override {
    const api::GenerationFields& generation = request_.generation;
    const chat::PromptReasoning reasoning = reasoning_at_end(scope.model, request_.tokens);
    return keep(engine_work(scope, generation,
                            {.id = random_id("gen-", {.seed = scope.identity.draw(), .counter = 0}),
                             .prompt = std::move(request_.tokens),
                             .prompt_field = "token_ids",
                             .deadline_ns = with.deadline_ns,
                             .logprobs = request_.logprobs,
                             .prompt_logprobs = generation.prompt_logprobs.value_or(-1),
                             .seed_if_none = scope.identity.draw_seed(),
                             .reasoning = reasoning}),
                work_);
  }

  void start(Call call, Services& services) override {
    const api::GenerationFields& generation = request_.generation;
    TokensAnswer::Options options{
        .id = request_.request_id.empty() ? work_.id : request_.request_id,
        .choice_count = generation.n,
        .logprobs = request_.logprobs >= 0,
        .prompt_logprobs = generation.prompt_logprobs ? &call.model->tokenizer : nullptr,
        .include_usage = generation.include_usage};
    start_generation(std::move(call), services, std::move(work_),
                     [&] { return std::make_unique<TokensAnswer>(std::move(options)); });
  }

 private:
  api::GenerateRequest request_;
  EngineWork work_;
};

}  // namespace

void generate(Call call, Services& services) {
  run_request(std::move(call), services, std::make_unique<Generate>(), Work::kSampled);
}

}  // namespace pelton::server
