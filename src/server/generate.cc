// POST /inference/v1/generate: tokens -> engine -> Generation -> tokens. What the tokens say is the
// caller's business, so control tokens may stand among them: a rendered prompt is full of them.
#include <memory>
#include <utility>
#include <variant>

#include "api/generate_request.h"
#include "server/generation.h"
#include "server/generation_facts.h"
#include "server/generation_request.h"
#include "server/random_id.h"
#include "server/server.h"
#include "server/tokens_answer.h"

namespace pelton::server {

void Server::answer_generate(Call call) {
  const ServedModel* model = model_at_work_for(call, Work::kSampled);
  if (model == nullptr) return;
  Result<api::GenerateRequest> parsed =
      api::parse_generate_request(call.request.body, {.vocab_size = model->vocab_size});
  if (!parsed.ok()) return call.send(api::api_error(parsed.error()));
  api::GenerateRequest& request = *parsed;
  if (model_named(call, request.model) == nullptr) return;
  call.add_warnings(request.warnings);
  const Result<std::optional<int64_t>> deadline_ns =
      call.deadline_ns(request.generation.timeout_s,
                       request.generation.stream ? Call::Whole::kNo : Call::Whole::kYes);
  if (!deadline_ns.ok()) return call.send(api::api_error(deadline_ns.error()));

  const std::string id = random_id("gen-", {.seed = draw(), .counter = 0});
  call.note_asked(sampling_asked(request.generation));
  auto made = generation_request(
      *model, request.generation,
      {.id = id,
       .prompt = std::move(request.tokens),
       .prompt_field = "token_ids",
       .tenant = call.tenant,
       .cache_salt = access_.cache_salt(call.tenant, request.generation.cache_salt),
       .deadline_ns = *deadline_ns,
       .logprobs = request.logprobs,
       .prompt_logprobs = request.generation.prompt_logprobs.value_or(-1),
       .seed_if_none = draw()});
  if (const auto* error = std::get_if<api::ApiError>(&made)) return call.send(*error);
  const int output_max = std::get<request::GenerationRequest>(made).stop.max_new_tokens;
  auto streams =
      submit(call, std::get<request::GenerationRequest>(std::move(made)), request.generation.n);
  if (!streams) return;

  TokensAnswer::Options options{
      .id = request.request_id.empty() ? id : request.request_id,
      .choice_count = request.generation.n,
      .logprobs = request.logprobs >= 0,
      .prompt_logprobs = request.generation.prompt_logprobs ? &model->tokenizer : nullptr,
      .include_usage = request.generation.include_usage};
  const bool streamed = request.generation.stream;
  Generation::Parts parts{.id = id,
                          .call = std::move(call),
                          .streams = *std::move(streams),
                          .answer = std::make_unique<TokensAnswer>(std::move(options)),
                          .mode = streamed ? Generation::Mode::kStream : Generation::Mode::kWhole,
                          .output_tokens_max = output_max};
  std::string().swap(parts.call.request.body);  // it may be large, and is said
  Generation::run(std::move(parts), {.log = log_, .meter = model->state->meter});
}

}  // namespace pelton::server
