// POST /v1/messages and /v1/messages/count_tokens: Anthropic's protocol, on the way of a chat
// request.
#include <memory>
#include <utility>
#include <variant>

#include "api/messages_request.h"
#include "server/answer_guide.h"
#include "server/chat_prompt.h"
#include "server/chat_turn_options.h"
#include "server/generation.h"
#include "server/generation_facts.h"
#include "server/generation_request.h"
#include "server/messages_answer.h"
#include "server/random_id.h"
#include "server/reply.h"
#include "server/server.h"

namespace pelton::server {

// Understood, while its formats are compiled.
struct Server::MessageWork {
  const ServedModel& model;
  std::shared_ptr<const api::ChatRequest> request;
  std::optional<int64_t> deadline_ns;
  MessagesAnswer::Thinking thinking = MessagesAnswer::Thinking::kNone;
};

void Server::answer_message(Call call) {
  const ServedModel* model = model_at_work_for(call, Work::kSampled);
  if (model == nullptr) return;
  auto parsed = api::parse_messages_request(call.request.body, {.vocab_size = model->vocab_size},
                                            api::MessagesUse::kGenerate);
  if (!parsed.ok()) return call.send(api::api_error(parsed.error()));
  const auto shared = std::make_shared<const api::ChatRequest>(std::move(parsed->chat));
  const api::ChatRequest& request = *shared;
  if (model_named(call, request.model) == nullptr) return;
  if (const auto error = model->no_chat()) return call.send(api::api_error(*error));
  const Result<std::optional<int64_t>> deadline_ns =
      call.deadline_ns(request.generation.timeout_s,
                       request.generation.stream ? Call::Whole::kNo : Call::Whole::kYes);
  if (!deadline_ns.ok()) return call.send(api::api_error(deadline_ns.error()));
  call.add_warnings(request.warnings);
  with_guide(std::move(call),
             {.user = request.generation.user,
              .deadline_ns = *deadline_ns,
              .make = chat_guide_of(shared, *model)},
             [this, work = MessageWork{*model, shared, *deadline_ns, parsed->thinking}](
                 Call guided, std::optional<grammar::TokenGuide> guide) {
               begin_message(std::move(guided), work, std::move(guide));
             });
}

void Server::begin_message(Call call, const MessageWork& work,
                           std::optional<grammar::TokenGuide> guide) {
  const ServedModel& model = work.model;
  const api::ChatRequest& request = *work.request;
  ChatTurn::Options turn = turn_options(request, model);
  ChatPrompt prompt = chat_prompt_of(request, model, call.tenant);
  prompt.tokens.insert(prompt.tokens.end(), turn.opening.begin(), turn.opening.end());
  turn.place = {.turns = &sampled_turns_, .history = prompt.history};
  const auto prompt_tokens = static_cast<int64_t>(prompt.tokens.size());
  std::string id = random_id("msg_", {.seed = draw(), .counter = 0});
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
       .guide = std::move(guide),
       .seed_if_none = draw(),
       .may_call = !request.tools.empty()});
  if (const auto* error = std::get_if<api::ApiError>(&made)) return call.send(*error);
  const int output_max = std::get<request::GenerationRequest>(made).stop.max_new_tokens;
  auto streams = submit(call, std::get<request::GenerationRequest>(std::move(made)), 1);
  if (!streams) return;

  const bool streamed = request.generation.stream;
  MessagesAnswer::Options options{.head = {.id = id, .model = model.shown_name(request.model)},
                                  .turn = std::move(turn),
                                  .prompt_tokens = prompt_tokens,
                                  .thinking = work.thinking,
                                  .timings = request.generation.timings,
                                  .stream = streamed,
                                  .tool_id_seed = draw()};
  Generation::Parts parts{.id = std::move(id),
                          .call = std::move(call),
                          .streams = *std::move(streams),
                          .answer = std::make_unique<MessagesAnswer>(model, std::move(options)),
                          .mode = streamed ? Generation::Mode::kStream : Generation::Mode::kWhole,
                          .output_tokens_max = output_max};
  Generation::run(std::move(parts), {.log = log_, .meter = model.state->meter});
}

// The same prompt, and no more.
void Server::answer_message_tokens(Call call) {
  const ServedModel* model = model_for(call);
  if (model == nullptr) return;
  const auto parsed = api::parse_messages_request(
      call.request.body, {.vocab_size = model->vocab_size}, api::MessagesUse::kCount);
  if (!parsed.ok()) return call.send(api::api_error(parsed.error()));
  const api::ChatRequest& request = parsed->chat;
  if (model_named(call, request.model) == nullptr) return;
  if (const auto error = model->no_chat()) return call.send(api::api_error(*error));
  call.add_warnings(request.warnings);
  const size_t tokens = chat_prompt_of(request, *model, call.tenant).tokens.size() +
                        turn_options(request, *model).opening.size();
  call.send(json_reply(api::message_tokens_body(static_cast<int64_t>(tokens))));
}

}  // namespace pelton::server
