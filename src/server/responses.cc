// POST /v1/responses: body -> items -> conversation -> tokens -> engine -> Generation.
#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include "api/response_request.h"
#include "chat/call_opening.h"
#include "server/generation.h"
#include "server/generation_request.h"
#include "server/random_id.h"
#include "server/response_answer.h"
#include "server/response_conversation.h"
#include "server/server.h"

namespace pelton::server {
namespace {

std::vector<TokenId> opening_of(const api::ResponseRequest& request, const ServedModel& model) {
  if (!request.forced_call) return {};
  return chat::call_opening(model.tokenizer, model.harmony, request.forced_call->function_name);
}

api::ResponseHead head_of(const Json& body, const api::ResponseRequest& request,
                          const ServedModel& model, std::string id) {
  const api::GenerationFields& fields = request.generation;
  return {.id = std::move(id),
          .model = request.model.empty() ? model.id : request.model,
          .echo = api::response_echo(
              body, {.temperature = fields.temperature.value_or(model.sampling.temperature),
                     .top_p = fields.top_p.value_or(model.sampling.top_p)})};
}

ResponseOutput::Options output_options(const api::ResponseRequest& request, uint64_t id_seed) {
  ResponseOutput::Options options{.stop = request.generation.stop,
                                  .stop_text = request.generation.include_stop
                                                   ? StopFilter::StopText::kKept
                                                   : StopFilter::StopText::kCut,
                                  .logprobs = request.top_logprobs >= 0,
                                  .id_seed = id_seed};
  if (request.generation.stream) options.framing = api::ResponseEvents::Framing::kServerSent;
  return options;
}

void add_warnings(const std::vector<std::string>& warnings, net::HttpHeaders& headers) {
  constexpr size_t kWarningsMax = 8;
  for (size_t i = 0; i < std::min(warnings.size(), kWarningsMax); ++i) {
    headers.add("x-pelton-warning", warnings[i]);
  }
}

}  // namespace

void Server::answer_response(Call call) {
  const ServedModel* model = model_for(call);
  if (model == nullptr) return;
  Result<Json> body = Json::parse(call.request.body);
  if (!body.ok()) return call.send(api::api_error(body.error()));
  call.request.body = {};  // it may be large, and is said
  const auto parsed = api::parse_response_request(*body, {.vocab_size = model->vocab_size});
  if (!parsed.ok()) return call.send(api::api_error(parsed.error()));
  const api::ResponseRequest& request = *parsed;
  if (model_named(call, request.model) == nullptr) return;
  const Result<std::optional<int64_t>> deadline_ns = call.deadline_ns();
  if (!deadline_ns.ok()) return call.send(api::api_error(deadline_ns.error()));
  add_warnings(request.warnings, call.headers);

  const std::vector<PastResponse> history;
  const std::string date = model->current_date.value_or(base::local_date(clock_.unix_ms()));
  const std::string salt = cache_salt(call.tenant, request.generation.cache_salt);
  Result<ChatPrompt> prompt = response_prompt(
      request, {.history = history, .current_date = date, .salt = salt}, *model, sampled_turns_);
  if (!prompt.ok()) return call.send(api::api_error(prompt.error()));
  std::vector<TokenId> opening = opening_of(request, *model);
  prompt->tokens.insert(prompt->tokens.end(), opening.begin(), opening.end());

  std::string id = random_id("resp_", {.seed = draw(), .counter = 0});
  auto made = generation_request(*model, request.generation,
                                 {.id = id,
                                  .prompt = std::move(prompt->tokens),
                                  .prompt_field = "input",
                                  .tenant = call.tenant,
                                  .deadline_ns = *deadline_ns,
                                  .logprobs = request.top_logprobs,
                                  .seed_if_none = draw()});
  if (const auto* error = std::get_if<api::ApiError>(&made)) return call.send(*error);
  Result<std::vector<engine::TokenStream>> streams =
      model->engine.submit_answers(std::get<request::GenerationRequest>(std::move(made)), 1);
  if (!streams.ok()) return call.send(api::api_error(streams.error()));

  ResponseAnswer::Options options{.head = head_of(*body, request, *model, id),
                                  .output = output_options(request, draw()),
                                  .opening = std::move(opening),
                                  .place = {.turns = &sampled_turns_, .history = prompt->history},
                                  .on_ended = {}};
  options.head.created_at = clock_.unix_ms() / 1000;
  const bool streamed = request.generation.stream;
  Generation::run({.id = std::move(id),
                   .call = std::move(call),
                   .streams = std::move(streams).value(),
                   .answer = std::make_unique<ResponseAnswer>(*model, std::move(options), clock_),
                   .mode = streamed ? Generation::Mode::kStream : Generation::Mode::kWhole},
                  {.log = log_, .meter = meter_});
}

}  // namespace pelton::server
