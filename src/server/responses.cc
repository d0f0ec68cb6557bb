// POST /v1/responses: body -> items, behind those of the responses before -> conversation -> tokens
// -> formats -> engine -> Generation -> store.
#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "access/request_record.h"
#include "api/documented_fields.h"
#include "api/response_request.h"
#include "api/tokenize_request.h"
#include "base/check.h"
#include "server/answer_guide.h"
#include "server/generation.h"
#include "server/generation_facts.h"
#include "server/generation_request.h"
#include "server/item_reference.h"
#include "server/random_id.h"
#include "server/reply.h"
#include "server/response_answer.h"
#include "server/response_conversation.h"
#include "server/response_link.h"
#include "server/response_truncation.h"
#include "server/server.h"

namespace pelton::server {
namespace {

api::ResponseHead head_of(const Json& body, const api::ResponseRequest& request,
                          const ServedModel& model, std::string id) {
  const api::GenerationFields& fields = request.generation;
  return {.id = std::move(id),
          .model = model.shown_name(request.model),
          .echo = api::response_echo(
              body, {.temperature = fields.temperature.value_or(model.sampling.temperature),
                     .top_p = fields.top_p.value_or(model.sampling.top_p)}),
          .stored = request.store};
}

ResponseOutput::Options output_options(const api::ResponseRequest& request, std::string id,
                                       api::ResponseEvents::Framing framing) {
  ResponseOutput::Options options{.stop = stop_strings(request.generation),
                                  .logprobs = request.top_logprobs >= 0,
                                  .may_call = !request.tools.empty(),
                                  .one_call = !request.parallel_calls,
                                  .response_id = std::move(id),
                                  .reasoning_summary = request.reasoning_summary};
  if (request.generation.stream) options.framing = framing;
  return options;
}

// Of the context, what is kept for an answer of no given length.
constexpr int64_t kAnswerShareWhenTruncating = 8;

// Why a response over this link cannot be made in the background.
std::optional<Error> no_background(const ResponseLink& link, const store::ResponseStore* store) {
  if (link.framing == api::ResponseEvents::Framing::kLines) {
    return Error{ErrorCode::kUnsupported, "'background' is not supported over a WebSocket",
                 "background"};
  }
  if (store == nullptr) {
    return Error{ErrorCode::kUnsupported,
                 "'background' needs a store of responses, and this server has none", "background"};
  }
  return std::nullopt;
}

Error previous_not_found(std::string_view id) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("Previous response with id '{}' not found.", id.substr(0, 256)),
          "previous_response_id"};
}

Result<PastResponse> past_response(std::string_view input, std::string_view output,
                                   std::vector<TokenId> turn) {
  TRY_ASSIGN(const Json input_items, Json::parse(input));
  TRY_ASSIGN(const Json output_items, Json::parse(output));
  PastResponse past;
  TRY_ASSIGN(past.input, api::parse_response_items(input_items));
  TRY_ASSIGN(past.output, api::parse_response_items(output_items));
  past.turn = std::move(turn);
  return past;
}

// A process that is killed tells nobody. Who asks for the response after the next start shall hear
// that it failed, not that there was none.
void keep_in_case_we_end(store::ResponseStore& store, store::StoredResponse response,
                         const api::ResponseHead& head, base::Log& log) {
  const api::ApiError error = api::api_error(
      {ErrorCode::kUnavailable, "the server ended before this response did; ask again", ""});
  response.body =
      api::response_body(head, {.status = api::ResponseStatus::kFailed, .error = &error});
  response.output = "[]";
  const Result<void> put = store.put_unfinished(response);
  if (put.ok()) return;
  log.warning(fmt::format("{} would be lost if the server ended now: {}", response.id,
                          put.error().message));
}

}  // namespace

Result<std::vector<PastResponse>> Server::response_history(const Call& call, const std::string& id,
                                                           const ResponseLink& link) {
  if (id.empty()) return std::vector<PastResponse>();
  if (id == link.last_id) return link.last_history;
  if (options_.response_store == nullptr) return previous_not_found(id);
  auto stored = options_.response_store->history({.owner = call.tenant, .id = id});
  if (!stored.ok() && stored.error().code == ErrorCode::kNotFound) return previous_not_found(id);
  if (!stored.ok()) return stored.error();
  std::vector<PastResponse> history;
  for (store::StoredResponse& one : *stored) {
    TRY_ASSIGN(PastResponse past, past_response(one.input, one.output, std::move(one.turn)));
    history.push_back(std::move(past));
  }
  return history;
}

// Reasoning that comes back as this server gave it out. What another server has encrypted, or this
// one before its key changed, nobody can read here: a conversation goes on without it.
Result<void> Server::read_encrypted_reasoning(api::ResponseRequest& request,
                                              std::string_view tenant) const {
  for (api::ResponseItem& item : request.items) {
    if (item.encrypted_content.empty()) continue;
    const std::string field = item.path + ".encrypted_content";
    auto read = encrypted_reasoning_.decrypt(item.encrypted_content, tenant);
    std::string().swap(item.encrypted_content);  // it may be large, and is said
    if (auto* text = std::get_if<std::string>(&read)) {
      item.text = std::move(*text);
    } else if (std::get<EncryptedReasoning::Unread>(read) == EncryptedReasoning::Unread::kForged) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("'{}' could not be verified: it is not what this server made for "
                               "this key; send the item without it",
                               field),
                   field};
    } else if (request.warnings.size() < api::kFieldWarningsMax) {
      request.warnings.push_back(api::unread_warning(field, "encrypted with another key"));
    }
  }
  return {};
}

// Everything that may be wrong with a request, its formats aside, is found here, before the engine
// hears of it.
Result<Server::ResponsePlan> Server::plan_response(const Call& call, Json body,
                                                   const ServedModel& model,
                                                   const ResponseLink& link) {
  if (std::optional<Error> error = model.no_chat()) return *error;
  ResponsePlan plan;
  TRY_ASSIGN(std::optional<Json> resolved,
             with_referenced_items(body, {call.tenant, options_.response_store}));
  plan.body = resolved ? *std::move(resolved) : std::move(body);
  TRY_ASSIGN(plan.request,
             api::parse_response_request(plan.body, {.vocab_size = model.vocab_size}));
  TRY(read_encrypted_reasoning(plan.request, call.tenant));
  const api::ResponseRequest& request = plan.request;
  TRY_ASSIGN(plan.history, response_history(call, request.previous_response_id, link));
  const std::string date = model.current_date.value_or(base::local_date(clock_.unix_ms()));
  const std::string salt = access_.cache_salt(call.tenant, request.generation.cache_salt);
  if (request.forced_call) {
    plan.opening = model.chat->call_opening(request.forced_call->function_name);
  }
  TRY_ASSIGN(plan.prompt,
             response_prompt(request, {.history = plan.history, .current_date = date, .salt = salt},
                             model, sampled_turns_));
  if (request.may_drop_items) TRY(drop_oldest_items(plan, model, date, salt));
  std::vector<TokenId>& tokens = plan.prompt->tokens;
  tokens.insert(tokens.end(), plan.opening.begin(), plan.opening.end());
  return plan;
}

// As few as must go for the prompt to leave room for the answer. More may go only where less is
// left: so the number is found from the newest item on, by doubling and then halving what is kept.
// An input may be far longer than the context: it is not to be written again and again.
Result<void> Server::drop_oldest_items(ResponsePlan& plan, const ServedModel& model,
                                       const std::string& date, const std::string& salt) {
  const int64_t context = model.context_limit();
  const api::GenerationFields& fields = plan.request.generation;
  const int64_t answer =
      std::max(fields.max_tokens.value_or(context / kAnswerShareWhenTruncating), fields.min_tokens);
  const auto fits = [&](const ChatPrompt& prompt) {
    return static_cast<int64_t>(prompt.tokens.size() + plan.opening.size()) + answer <= context;
  };
  if (fits(*plan.prompt)) return {};
  const ResponseItems all{.history = plan.history, .items = plan.request.items};
  api::ResponseRequest told = plan.request;
  const auto prompt_without = [&](size_t count) {
    ResponseItems left = without_oldest(all, count);
    told.items = std::move(left.items);
    return response_prompt(told, {.history = left.history, .current_date = date, .salt = salt},
                           model, sampled_turns_);
  };
  const size_t most = droppable_items(all);
  TRY_ASSIGN(plan.prompt, prompt_without(most));
  if (!fits(*plan.prompt)) return {};  // as good as it gets
  size_t too_few = 0;
  size_t enough = most;
  for (size_t kept = 1; too_few + 1 < enough; kept *= 2) {
    const size_t count =
        too_few > 0 || kept >= most ? too_few + (enough - too_few) / 2 : most - kept;
    TRY_ASSIGN(ChatPrompt prompt, prompt_without(count));
    if (fits(prompt)) {
      enough = count;
      plan.prompt = std::move(prompt);
    } else {
      too_few = count;
    }
  }
  // A connection remembers what came before without a store's bounds: not what has been dropped,
  // or each turn would add to it for ever.
  plan.history = without_oldest(all, enough).history;
  return {};
}

void Server::answer_response(Call call) {
  Result<Json> body = Json::parse(call.request.body);
  if (!body.ok()) return call.send(api::api_error(body.error()));
  create_response(std::move(call), *std::move(body), std::make_shared<ResponseLink>());
}

void Server::create_response(Call call, Json asked, const std::shared_ptr<ResponseLink>& link) {
  call.model_asked = asked.string("model").value_or("");
  const ServedModel* model = model_at_work_for(call, Work::kSampled);
  if (model == nullptr) return;
  Result<ResponsePlan> planned = plan_response(call, std::move(asked), *model, *link);
  if (!planned.ok()) {
    api::ApiError error = api::api_error(planned.error());
    if (error.param == "previous_response_id" && error.status == 400) {
      error.code = "previous_response_not_found";
    }
    if (error.param.ends_with(".encrypted_content") && error.status == 400) {
      error.code = "invalid_encrypted_content";
    }
    return call.send(error);
  }
  const auto plan = std::make_shared<ResponsePlan>(*std::move(planned));
  const api::ResponseRequest& request = plan->request;
  if (model_named(call, request.model) == nullptr) return;
  // What is made in the background may take longer than its client waits for an answer.
  const bool waits_for_all = !request.generation.stream && !request.background;
  const Result<std::optional<int64_t>> deadline_ns = call.deadline_ns(
      request.generation.timeout_s, waits_for_all ? Call::Whole::kYes : Call::Whole::kNo);
  if (!deadline_ns.ok()) return call.send(api::api_error(deadline_ns.error()));
  if (request.background) {
    if (const std::optional<Error> error = no_background(*link, options_.response_store)) {
      return call.send(api::api_error(*error));
    }
  }
  plan->deadline_ns = *deadline_ns;
  link->compiling = true;
  with_guide(
      std::move(call),
      {.user = request.generation.user,
       .deadline_ns = plan->deadline_ns,
       .make = chat_guide_of(std::shared_ptr<const api::ResponseRequest>(plan, &request), *model)},
      [this, model, plan, link](Call guided, std::optional<grammar::TokenGuide> guide) {
        link->compiling = false;
        begin_response(std::move(guided), *model, std::move(*plan), link, std::move(guide));
      });
}

void Server::begin_response(Call call, const ServedModel& model, ResponsePlan plan,
                            const std::shared_ptr<ResponseLink>& link,
                            std::optional<grammar::TokenGuide> guide) {
  const api::ResponseRequest& request = plan.request;
  call.add_warnings(request.warnings);

  const std::string id = random_id("resp_", {.seed = draw(), .counter = 0});
  call.note_asked(sampling_asked(request.generation));
  auto made = generation_request(
      model, request.generation,
      {.id = id,
       .prompt = std::move(plan.prompt->tokens),
       .prompt_field = "input",
       .prompt_kind = api::ContextLength::Prompt::kResponseInput,
       .tenant = call.tenant,
       .cache_salt = access_.cache_salt(call.tenant, request.generation.cache_salt),
       .deadline_ns = plan.deadline_ns,
       .logprobs = request.top_logprobs,
       .guide = std::move(guide),
       .seed_if_none = draw(),
       .may_call = !request.tools.empty()});
  if (const auto* error = std::get_if<api::ApiError>(&made)) return call.send(*error);
  auto streams = submit(call, std::get<request::GenerationRequest>(std::move(made)), 1);
  if (!streams) return;

  ResponseAnswer::Options options{
      .head = head_of(plan.body, request, model, id),
      .output = output_options(request, id, link->framing),
      .opening = plan.opening,
      .place = {.turns = &sampled_turns_, .history = plan.prompt->history},
      .timings = request.generation.timings,
      .on_ended = {}};
  options.head.created_at = clock_.unix_ms() / 1000;
  if (request.encrypted_reasoning) {
    options.output.encrypt_reasoning = [this, tenant = call.tenant](std::string_view text) {
      return encrypted_reasoning_.encrypt(text, tenant);
    };
  }
  const bool streamed = options.output.framing.has_value();
  const bool in_background = request.background;
  options.on_ended = keep_response(call, link, std::move(plan), options.head);
  std::optional<Call> asking;  // to be answered at once
  if (in_background) {
    asking.emplace(std::move(call));
    call = call_in_background(*asking, options.head, streamed);
  }
  const std::shared_ptr<net::Exchange> exchange = call.exchange;
  const std::string owner = call.tenant;
  link->running_id = id;
  link->running = Generation::run(
      {.id = id,
       .call = std::move(call),
       .streams = *std::move(streams),
       .answer = std::make_unique<ResponseAnswer>(model, std::move(options), clock_),
       .mode = streamed ? Generation::Mode::kStream : Generation::Mode::kWhole,
       // Who follows it later has to know its name, though its turn comes late.
       .begins_at_once = asking.has_value()},
      {.log = log_, .meter = model.state->meter});
  running_responses_.add(id, {.owner = owner, .exchange = exchange, .generation = link->running});
  if (std::exchange(link->cancel_asked, false)) cancel_generation(exchange, link->running);
  if (!asking) return;
  const auto background = background_.find({.owner = owner, .id = id});
  CHECK(background != nullptr, "it has just been noted");
  if (streamed) return BackgroundResponse::follow(background, *std::move(asking), -1);
  asking->send(json_reply(background->body()));
}

// The call that a response in the background is an answer to, in place of the one that asks for it.
Call Server::call_in_background(Call& asking, const api::ResponseHead& head, bool streamed) {
  const auto response = std::make_shared<BackgroundResponse>(
      BackgroundResponse::Options{.id = head.id,
                                  .owner = asking.tenant,
                                  .body = api::response_body(head, {}),
                                  .streamed = streamed,
                                  .connection = asking.exchange,
                                  .on_closed = [this] { background_.drop_oldest(); }});
  background_.add(response);
  Call call{.request = {},
            .exchange = response,
            .headers = {},
            .tenant = asking.tenant,
            .arrived_ns = asking.arrived_ns,
            .model = asking.model};
  call.entry = std::make_unique<access::TrackedRequest>(
      book_, access::TrackedRequest::Route{.handler = "/v1/responses", .method = "BACKGROUND"});
  if (const access::RequestRecord* const asked = asking.entry->record()) {
    report(*call.entry, {.path = asked->path,
                         .remote = asked->remote,
                         .request_id = asked->request_id,
                         .request_bytes = asked->request_bytes,
                         .within = asked});
    access::RequestRecord& record = *call.entry->record();
    record.tenant = asked->tenant;
    record.asked = asked->asked;
    // It was in the engine's queue before it had a record of its own: its times count from there.
    record.arrived_ns = asked->arrived_ns;
    record.arrived_unix_ms = asked->arrived_unix_ms;
  }
  call.ticket = std::move(asking.ticket);
  return call;
}

// What is done when the response has ended: it is stored, the connection remembers it, and those
// who cancelled it are told. One that failed is stored only where nobody else would hear of it.
std::function<void(ResponseAnswer::Ended)> Server::keep_response(const Call& call,
                                                                 std::shared_ptr<ResponseLink> link,
                                                                 ResponsePlan plan,
                                                                 const api::ResponseHead& head) {
  store::StoredResponse stored{.id = head.id,
                               .owner = call.tenant,
                               .previous = plan.request.previous_response_id,
                               .created_at = head.created_at};
  const bool is_kept = plan.request.store && options_.response_store != nullptr;
  const bool is_linked = link->framing == api::ResponseEvents::Framing::kLines;
  const bool in_background = plan.request.background;
  if (is_kept || is_linked) {
    uint64_t number = 0;
    const Json* input = plan.body.find("input");
    stored.input =
        api::listed_items(input == nullptr ? Json() : *input, [&](std::string_view prefix) {
          return item_id(prefix, head.id, {.part = ItemNumber::Part::kInput, .count = number++});
        }).dump();
  }
  if (is_kept && in_background) {
    keep_in_case_we_end(*options_.response_store, stored, head, log_);
  }
  // Whoever waits for its end is told also when its client has left and there is none.
  auto waiters = std::shared_ptr<void>(nullptr, [this, id = head.id](void*) {
    for (const RunningResponses::Waiter& waiter : running_responses_.take(id)) waiter("");
  });
  return [this, stored = std::move(stored), is_kept, is_linked, in_background,
          waiters = std::move(waiters), link = std::move(link),
          history = std::move(plan.history)](ResponseAnswer::Ended ended) mutable {
    stored.output = api::output_items_body(ended.items);
    stored.turn = std::move(ended.turn);
    if (is_kept && (!ended.failed || in_background)) {
      stored.body = ended.body;
      const Result<void> put = options_.response_store->put(stored);
      // That a connection alone knows what came before is no fault.
      if (!put.ok() && put.error().code != ErrorCode::kNotFound) {
        log_.warning(fmt::format("{} is not stored: {}", stored.id, put.error().message));
        ended.say_unstored();
      }
    }
    const auto background =
        in_background ? background_.find({.owner = stored.owner, .id = stored.id}) : nullptr;
    if (background != nullptr) background->end(ended.body);
    for (const RunningResponses::Waiter& waiter : running_responses_.take(stored.id)) {
      waiter(ended.body);
    }
    if (!is_linked || ended.failed) return;
    Result<PastResponse> past = past_response(stored.input, stored.output, std::move(stored.turn));
    if (!past.ok()) return;
    history.push_back(std::move(past).value());
    link->last_id = stored.id;
    link->last_history = std::move(history);
  };
}

void Server::answer_response_tokens(Call call) {
  const ServedModel* model = model_for(call);
  if (model == nullptr) return;
  Result<Json> body = Json::parse(call.request.body);
  if (!body.ok()) return call.send(api::api_error(body.error()));
  Result<ResponsePlan> planned = plan_response(call, *std::move(body), *model, {});
  if (!planned.ok()) return call.send(api::api_error(planned.error()));
  const auto plan = std::make_shared<const ResponsePlan>(*std::move(planned));
  if (model_named(call, plan->request.model) == nullptr) return;
  call.add_warnings(plan->request.warnings);
  // Its formats are compiled only to be refused as they would be there.
  const std::shared_ptr<const api::ResponseRequest> request(plan, &plan->request);
  with_guide(std::move(call),
             {.user = request->generation.user,
              .deadline_ns = std::nullopt,
              .make = chat_guide_of(request, *model)},
             [plan](const Call& guided, const std::optional<grammar::TokenGuide>&) {
               const auto tokens = static_cast<int64_t>(plan->prompt->tokens.size());
               guided.send(json_reply(api::input_tokens_body(tokens)));
             });
}

}  // namespace pelton::server
