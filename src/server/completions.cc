// POST /v1/completions: text or tokens -> engine -> Generation, one choice for each prompt.
#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "api/completion_request.h"
#include "base/random.h"
#include "server/answer_guide.h"
#include "server/completion_answer.h"
#include "server/completion_prompt.h"
#include "server/generation.h"
#include "server/generation_facts.h"
#include "server/generation_request.h"
#include "server/random_id.h"
#include "server/server.h"

namespace pelton::server {
namespace {

struct Submitted {
  std::vector<engine::TokenStream> streams;   // none where no token is asked for
  std::vector<std::vector<TokenId>> prompts;  // if they are to be told, or their log-probabilities
  std::vector<std::string> echoes;            // if they are
  std::vector<int64_t> prompt_sizes;
  int64_t prompt_tokens = 0;  // of all prompts
};

// n streams for each prompt, or the answer that says why not. Streams already running are
// cancelled as they go.
struct Submission {
  const api::CompletionRequest& request;
  const ServedModel& model;
  const std::string& id;
  uint64_t seed_if_none;
  std::optional<int64_t> deadline_ns;
  const std::optional<grammar::TokenGuide>& guide;
};
std::variant<Submitted, api::ApiError> submit_all(const Submission& all, const Call& call,
                                                  access::AccessControl& control,
                                                  Couriers& couriers) {
  const api::CompletionRequest& request = all.request;
  const ServedModel& model = all.model;
  // An echo's log-probabilities are as many as the answer's.
  const int prompt_logprobs = std::max(request.generation.prompt_logprobs.value_or(-1),
                                       request.echo ? request.logprobs : -1);
  int64_t told = 0;
  call.note_asked(sampling_asked(request.generation));
  std::vector<request::GenerationRequest> requests;
  Submitted submitted;
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    Result<std::vector<TokenId>> tokens = completion_prompt(request.prompts[i], model, "prompt");
    if (!tokens.ok()) return api::api_error(tokens.error());
    if (!request.generation.stop.empty()) {
      if (const auto error = model.no_text("stop")) return api::api_error(*error);
    }
    auto made = generation_request(
        model, request.generation,
        {.id = fmt::format("{}/{}", all.id, i),
         .prompt = std::move(tokens).value(),
         .prompt_field = "prompt",
         .tenant = call.tenant,
         .cache_salt = control.cache_salt(call.tenant, request.generation.cache_salt),
         .deadline_ns = all.deadline_ns,
         .logprobs = request.logprobs,
         .prompt_logprobs = prompt_logprobs,
         .guide = all.guide,
         .seed_if_none = base::random_bits(all.seed_if_none, i)});
    if (auto* error = std::get_if<api::ApiError>(&made)) return std::move(*error);
    requests.push_back(std::get<request::GenerationRequest>(std::move(made)));
    told += static_cast<int64_t>(requests.back().prompt.size()) * (prompt_logprobs + 1) *
            request.generation.n;
    if (const std::optional<Error> error = too_many_prompt_logprobs(told, request.generation)) {
      return api::api_error(*error);
    }
  }
  for (request::GenerationRequest& one : requests) {
    submitted.prompt_tokens += static_cast<int64_t>(one.prompt.size());
    submitted.prompt_sizes.push_back(static_cast<int64_t>(one.prompt.size()));
    const bool keeps = request.generation.return_token_ids || prompt_logprobs >= 0;
    if (keeps) submitted.prompts.push_back(one.prompt);
    if (request.echo) submitted.echoes.push_back(model.tokenizer.decode(one.prompt));
    if (request.generation.max_tokens == 0) {
      if (prompt_logprobs < 0) continue;
      one.stop.max_new_tokens = 1;  // it comes with what is asked for, and is not told
    }
    auto answers = server::submit(
        *call.ticket, model, std::move(one),
        {.answers = request.generation.n, .courier = couriers.of_thread(*call.exchange)});
    if (auto* error = std::get_if<api::ApiError>(&answers)) return std::move(*error);
    for (engine::TokenStream& stream : std::get<std::vector<engine::TokenStream>>(answers)) {
      submitted.streams.push_back(std::move(stream));
    }
  }
  return submitted;
}

// "max_tokens": 0: the prompts alone, as echoes or counts; the engine is not asked.
void end_without_tokens(const std::vector<int64_t>& prompt_sizes, int n, CompletionAnswer& answer) {
  for (size_t i = 0; i < prompt_sizes.size() * static_cast<size_t>(n); ++i) {
    answer.end(i, {.reason = engine::FinishReason::kLength,
                   .prompt_tokens = static_cast<int>(prompt_sizes[i / static_cast<size_t>(n)])});
  }
}

}  // namespace

// Understood, while its format is compiled.
struct Server::CompletionWork {
  const ServedModel& model;
  std::shared_ptr<const api::CompletionRequest> request;
  std::optional<int64_t> deadline_ns;
};

void Server::answer_completion(Call call) {
  const ServedModel* model = model_at_work_for(call, Work::kSampled);
  if (model == nullptr) return;
  auto parsed = api::parse_completion_request(call.request.body, {.vocab_size = model->vocab_size});
  if (!parsed.ok()) return call.send(api::api_error(parsed.error()));
  const auto request = std::make_shared<const api::CompletionRequest>(*std::move(parsed));
  if (model_named(call, request->model) == nullptr) return;
  call.add_warnings(request->warnings);
  const api::GenerationFields& fields = request->generation;
  const Result<std::optional<int64_t>> deadline_ns =
      call.deadline_ns(fields.timeout_s, fields.stream ? Call::Whole::kNo : Call::Whole::kYes);
  if (!deadline_ns.ok()) return call.send(api::api_error(deadline_ns.error()));
  with_guide(std::move(call),
             {.user = fields.user,
              .deadline_ns = *deadline_ns,
              .make =
                  [request, model](const GrammarStore::Shelf& grammars) {
                    return text_guide(request->generation.format, *model, grammars);
                  }},
             [this, work = CompletionWork{*model, request, *deadline_ns}](
                 Call guided, std::optional<grammar::TokenGuide> guide) {
               begin_completion(std::move(guided), work, std::move(guide));
             });
}

void Server::begin_completion(Call call, const CompletionWork& work,
                              std::optional<grammar::TokenGuide> guide) {
  const ServedModel& model = work.model;
  const api::CompletionRequest& request = *work.request;
  const api::GenerationFields& fields = request.generation;
  std::string id = answer_id("cmpl-", fields.request_id, draw());
  auto submitted = submit_all({.request = request,
                               .model = model,
                               .id = id,
                               .seed_if_none = draw(),
                               .deadline_ns = work.deadline_ns,
                               .guide = guide},
                              call, access_, couriers_);
  access_.add_limits(call.caller, call.headers);
  if (const auto* error = std::get_if<api::ApiError>(&submitted)) return call.send(*error);

  Submitted& made = std::get<Submitted>(submitted);
  CompletionAnswer::Options options{
      .head = {.id = id,
               .created = clock_.unix_ms() / 1000,
               .model = model.shown_name(request.model)},
      .choice_count = request.prompts.size() * static_cast<size_t>(fields.n),
      .choices_per_prompt = static_cast<size_t>(fields.n),
      .stop = stop_strings(fields),
      .logprobs = request.logprobs,
      .prompt_logprobs = fields.prompt_logprobs,
      .prompt_alone = fields.max_tokens == 0,
      .stream = fields.stream,
      .include_usage = fields.include_usage,
      .continuous_usage = fields.continuous_usage,
      .prompt_tokens = made.prompt_tokens,
      .timings = fields.timings,
      .shows_marks = request.shows_marks,
      .ends_marked = fields.ignore_eos,
      .tokens_as_ids = fields.tokens_as_ids,
      .token_ids = fields.return_token_ids,
      .stop_token_ids = fields.stop_token_ids,
      .prompts = std::move(made.prompts),
      .echoes = std::move(made.echoes)};
  auto answer = std::make_unique<CompletionAnswer>(model, std::move(options));
  if (made.streams.empty()) end_without_tokens(made.prompt_sizes, fields.n, *answer);
  Generation::Parts parts{
      .id = std::move(id),
      .call = std::move(call),
      .streams = std::move(made.streams),
      .answer = std::move(answer),
      .mode = fields.stream ? Generation::Mode::kStream : Generation::Mode::kWhole,
      .output_tokens_max = static_cast<int>(fields.max_tokens.value_or(0))};
  Generation::run(std::move(parts), {.log = log_, .meter = model.state->meter});
}

}  // namespace pelton::server
