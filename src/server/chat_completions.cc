// POST /v1/chat/completions: body -> formats -> conversation -> tokens -> engine -> Generation.
#include <memory>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "api/chat_request.h"
#include "server/answer_guide.h"
#include "server/chat_answer.h"
#include "server/chat_conversation.h"
#include "server/chat_prompt.h"
#include "server/chat_turn_options.h"
#include "server/generation.h"
#include "server/generation_facts.h"
#include "server/generation_request.h"
#include "server/random_id.h"
#include "server/server.h"

namespace pelton::server {
namespace {

ChatAnswer::Options answer_options(const api::ChatRequest& request, const ServedModel& model,
                                   std::string id, const base::Clock& clock) {
  return {.head = {.id = std::move(id),
                   .created = clock.unix_ms() / 1000,
                   .model = model.shown_name(request.model),
                   .reasoning_field = model.reasoning_field,
                   .legacy_calls = request.legacy_calls},
          .choice_count = request.generation.n,
          .include_usage = request.generation.include_usage,
          .continuous_usage = request.generation.continuous_usage,
          .timings = request.generation.timings,
          .prompt_logprobs = request.generation.prompt_logprobs.has_value(),
          .choice = {.turn = turn_options(request, model),
                     .hides_reasoning = !request.include_reasoning,
                     .logprobs = request.top_logprobs >= 0,
                     .tokens_as_ids = request.generation.tokens_as_ids,
                     .stream = request.generation.stream,
                     .legacy_calls = request.legacy_calls,
                     .token_ids = request.generation.return_token_ids,
                     .stop_token_ids = request.generation.stop_token_ids}};
}

}  // namespace

ChatPrompt Server::chat_prompt_of(const api::ChatRequest& request, const ServedModel& model,
                                  std::string_view tenant) {
  const std::string date = model.current_date.value_or(base::local_date(clock_.unix_ms()));
  return chat_prompt(conversation_of(request, date), request.messages, model, sampled_turns_,
                     access_.cache_salt(tenant, request.generation.cache_salt));
}

// Understood, while its formats are compiled.
struct Server::ChatWork {
  const ServedModel& model;
  std::shared_ptr<const api::ChatRequest> request;
  std::optional<int64_t> deadline_ns;
};

void Server::answer_chat_completion(Call call) {
  const ServedModel* model = model_at_work_for(call, Work::kSampled);
  if (model == nullptr) return;
  auto parsed = api::parse_chat_request(call.request.body, {.vocab_size = model->vocab_size});
  if (!parsed.ok()) return call.send(api::api_error(parsed.error()));
  const auto shared = std::make_shared<const api::ChatRequest>(*std::move(parsed));
  const api::ChatRequest& request = *shared;
  if (model_named(call, request.model) == nullptr) return;
  if (const auto error = model->no_chat()) return call.send(api::api_error(*error));
  const Result<std::optional<int64_t>> deadline_ns =
      call.deadline_ns(request.generation.timeout_s,
                       request.generation.stream ? Call::Whole::kNo : Call::Whole::kYes);
  if (!deadline_ns.ok()) return call.send(api::api_error(deadline_ns.error()));
  call.add_warnings(warnings_of(request, *model));
  with_guide(std::move(call),
             {.user = request.generation.user,
              .deadline_ns = *deadline_ns,
              .make = chat_guide_of(shared, *model)},
             [this, work = ChatWork{*model, shared, *deadline_ns}](
                 Call guided, std::optional<grammar::TokenGuide> guide) {
               begin_chat(std::move(guided), work, std::move(guide));
             });
}

void Server::begin_chat(Call call, const ChatWork& work, std::optional<grammar::TokenGuide> guide) {
  const ServedModel& model = work.model;
  const api::ChatRequest& request = *work.request;
  ChatPrompt prompt = chat_prompt_of(request, model, call.tenant);
  std::string id = answer_id("chatcmpl-", request.generation.request_id, draw());
  ChatAnswer::Options options = answer_options(request, model, id, clock_);
  const std::vector<TokenId>& opening = options.choice.turn.opening;
  prompt.tokens.insert(prompt.tokens.end(), opening.begin(), opening.end());
  options.prompt_tokens = static_cast<int64_t>(prompt.tokens.size());
  if (options.choice.token_ids) options.prompt_token_ids = prompt.tokens;
  call.note_asked(sampling_asked(request.generation));
  auto made = generation_request(
      model, request.generation,
      {.id = id,
       .prompt = std::move(prompt.tokens),
       .prompt_field = "messages",
       .prompt_kind = api::ContextLength::Prompt::kMessages,
       .tenant = call.tenant,
       .cache_salt = access_.cache_salt(call.tenant, request.generation.cache_salt),
       .deadline_ns = work.deadline_ns,
       .logprobs = request.top_logprobs,
       .prompt_logprobs = request.generation.prompt_logprobs.value_or(-1),
       .guide = std::move(guide),
       .seed_if_none = draw(),
       .may_call = !request.tools.empty()});
  if (const auto* error = std::get_if<api::ApiError>(&made)) return call.send(*error);
  const int output_tokens_max = std::get<request::GenerationRequest>(made).stop.max_new_tokens;
  auto streams =
      submit(call, std::get<request::GenerationRequest>(std::move(made)), request.generation.n);
  if (!streams) return;

  options.choice.call_id_seed = draw();
  options.choice.turn.place = {.turns = &sampled_turns_, .history = prompt.history};
  const bool streamed = request.generation.stream;
  Generation::Parts parts{.id = std::move(id),
                          .call = std::move(call),
                          .streams = *std::move(streams),
                          .answer = std::make_unique<ChatAnswer>(model, std::move(options)),
                          .mode = streamed ? Generation::Mode::kStream : Generation::Mode::kWhole,
                          .output_tokens_max = output_tokens_max};
  Generation::run(std::move(parts),
                  {.log = log_, .meter = model.state->meter, .running = &running_});
}

}  // namespace pelton::server
