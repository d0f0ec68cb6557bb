// POST /v1/responses: items -> conversation -> tokens -> engine -> Generation -> store; and how
// many tokens its input has.
#include "server/responses.h"

#include <memory>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "api/tokenize_request.h"
#include "base/check.h"
#include "server/answer_guide.h"
#include "server/chat_turn_options.h"
#include "server/endpoints.h"
#include "server/item_reference.h"
#include "server/random_id.h"
#include "server/reply.h"
#include "server/request_pipeline.h"
#include "server/response_answer.h"
#include "server/response_plan.h"
#include "server/response_rounds.h"
#include "server/resumed_answers.h"

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
                                  .runs_builtins = request.builtins.any(),
                                  .code_outputs = request.code_outputs,
                                  .response_id = std::move(id),
                                  .reasoning_summary = request.reasoning_summary};
  if (request.generation.stream) options.framing = framing;
  return options;
}

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

// A process that is killed says nothing. Who asks for the response after the next start shall hear
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

// The call that a response in the background is an answer to, in place of the one that asks for it.
Call call_in_background(Services& services, Call& asking, const api::ResponseHead& head,
                        bool streamed) {
  const auto response = std::make_shared<BackgroundResponse>(
      BackgroundResponse::Options{.id = head.id,
                                  .owner = asking.tenant,
                                  .body = api::response_body(head, {}),
                                  .streamed = streamed,
                                  .connection = asking.exchange,
                                  .on_closed = [&services] { services.background.drop_oldest(); }});
  services.background.add(response);
  Call call{.request = {},
            .exchange = response,
            .headers = {},
            .tenant = asking.tenant,
            .arrived_ns = asking.arrived_ns,
            .model = asking.model};
  call.entry = std::make_unique<access::TrackedRequest>(
      services.statistics,
      access::TrackedRequest::Route{.handler = "/v1/responses", .method = "BACKGROUND"});
  if (const access::RequestRecord* const asked = asking.entry->record()) {
    services.report(*call.entry, {.path = asked->path,
                                  .remote = asked->remote,
                                  .request_id = asked->request_id,
                                  .request_bytes = asked->request_bytes,
                                  .within = asked});
    access::RequestRecord& record = *call.entry->record();
    record.tenant = asked->tenant;
    record.model = asked->model;
    record.asked = asked->asked;
    // It was in the engine's queue before it had a record of its own: its times count from there.
    record.arrived_ns = asked->arrived_ns;
    record.arrived_unix_ms = asked->arrived_unix_ms;
  }
  call.ticket = std::move(asking.ticket);
  return call;
}

// What is done when the response has ended: it is stored, the connection remembers it, and those
// who cancelled it hear of it. One that failed is stored only where nobody else would hear of it.
std::function<void(ResponseAnswer::Ended)> keep_response(Services& services,
                                                         const std::string& tenant,
                                                         std::shared_ptr<ResponseLink> link,
                                                         ResponsePlan plan,
                                                         const api::ResponseHead& head) {
  store::StoredResponse stored{.id = head.id,
                               .owner = tenant,
                               .previous = plan.request.previous_response_id,
                               .created_at = head.created_at};
  const bool is_kept = plan.request.store && services.options.response_store != nullptr;
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
    keep_in_case_we_end(*services.options.response_store, stored, head, services.log);
  }
  // Whoever waits for its end hears of it also when its client has left and there is none.
  auto waiters = std::shared_ptr<void>(nullptr, [&services, id = head.id](void*) {
    for (const RunningResponses::Waiter& waiter : services.running_responses.take(id)) waiter("");
  });
  return [&services, stored = std::move(stored), is_kept, is_linked, in_background,
          waiters = std::move(waiters), link = std::move(link), model = head.model,
          history = std::move(plan.history)](ResponseAnswer::Ended ended) mutable {
    stored.output = api::output_items_body(ended.items);
    stored.turn = std::move(ended.turn);
    if (is_kept && (!ended.failed || in_background)) {
      stored.body = ended.body;
      const Result<void> put = services.options.response_store->put(stored);
      // That a connection alone knows what came before is no fault.
      if (!put.ok() && put.error().code != ErrorCode::kNotFound) {
        services.log.warning(fmt::format("{} is not stored: {}", stored.id, put.error().message));
        ended.say_unstored();
      }
    }
    const auto background = in_background
                                ? services.background.find({.owner = stored.owner, .id = stored.id})
                                : nullptr;
    if (background != nullptr) background->end(ended.body);
    for (const RunningResponses::Waiter& waiter : services.running_responses.take(stored.id)) {
      waiter(ended.body);
    }
    if (!is_linked || ended.failed) return;
    Result<PastResponse> past = past_response(stored.input, stored.output, std::move(stored.turn));
    if (!past.ok()) return;
    past->model = model;
    history.push_back(std::move(past).value());
    link->last_id = stored.id;
    link->last_history = std::move(history);
  };
}

api::ApiError plan_error(const Error& error) {
  api::ApiError shown = api::api_error(error);
  if (shown.status != 400) return shown;
  if (shown.param == "previous_response_id") {
    shown.code = error.code == ErrorCode::kUnsupported ? "previous_response_in_progress"
                                                       : "previous_response_not_found";
  }
  if (shown.param.ends_with(".encrypted_content")) shown.code = "invalid_encrypted_content";
  return shown;
}

class ResponseCreation final : public ModelRequest {
 public:
  // `asked`: what came as a message; none: it is the call's body.
  ResponseCreation(std::optional<Json> asked, std::shared_ptr<ResponseLink> link, bool runs_tools)
      : asked_(std::move(asked)), link_(std::move(link)), runs_tools_(runs_tools) {}

  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    if (!asked_) {
      Result<Json> parsed = Json::parse(body);
      if (!parsed.ok()) return api::api_error(parsed.error());
      asked_ = *std::move(parsed);
    }
    Result<ResponsePlan> planned =
        plan_response(*std::exchange(asked_, {}), *link_, scope, runs_tools_);
    if (!planned.ok()) return plan_error(planned.error());
    plan_ = std::make_shared<ResponsePlan>(*std::move(planned));
    return std::nullopt;
  }

  Fields fields(const ServedModel& model) const override {
    const api::ResponseRequest& request = plan_->request;
    Fields fields = fields_of(request.generation, request.model, warnings_of(request, model));
    // What is made in the background may take longer than its client waits for an answer.
    if (request.background) fields.whole = Call::Whole::kNo;
    return fields;
  }

  std::optional<api::ApiError> refusal(const Call&, const Scope& scope) const override {
    if (!plan_->request.background) return std::nullopt;
    const auto error = no_background(*link_, scope.services.options.response_store);
    return error ? std::optional(api::api_error(*error)) : std::nullopt;
  }

  FormatCompiler::MakeGuide guide(const ServedModel& model) const override {
    return chat_guide_of(std::shared_ptr<const api::ResponseRequest>(plan_, &plan_->request),
                         model);
  }

  std::optional<api::ApiError> prepare(Prepared with, const Scope& scope) override {
    if (const auto written = write_prompt(*plan_, scope); !written.ok()) {
      return plan_error(written.error());
    }
    const api::ResponseRequest& request = plan_->request;
    scope.use_known_prompt(plan_->prompt->tokens);
    deadline_ns_ = with.deadline_ns;
    if (request.builtins.any()) guide_ = with.guide;
    auto error = keep(engine_work(scope, request.generation,
                                  {.id = random_id("resp_", {.seed = scope.identity.draw()}),
                                   .prompt = std::move(plan_->prompt->tokens),
                                   .prompt_field = "input",
                                   .prompt_kind = api::ContextLength::Prompt::kResponseInput,
                                   .deadline_ns = with.deadline_ns,
                                   .logprobs = request.top_logprobs,
                                   .guide = std::move(with.guide),
                                   .seed_if_none = scope.identity.draw_seed(),
                                   .may_call = !request.tools.empty() || request.builtins.any(),
                                   .reasoning = plan_->prompt->reasoning}),
                      work_);
    work_.answers = 1;
    work_.has_sampled_turns = plan_->prompt->has_sampled_turns;
    return error;
  }

  void start(Call call, Services& services) override;

 private:
  ResponseAnswer::Options answer_options(const Call& call, Services& services);

  std::optional<Json> asked_;
  const std::shared_ptr<ResponseLink> link_;
  const bool runs_tools_;
  std::shared_ptr<ResponsePlan> plan_;
  EngineWork work_;
  // For further rounds of one that tools are run for.
  std::optional<grammar::GrammarState> guide_;
  std::optional<int64_t> deadline_ns_;
};

ResponseAnswer::Options ResponseCreation::answer_options(const Call& call, Services& services) {
  const api::ResponseRequest& request = plan_->request;
  ResponseAnswer::Options options{
      .head = head_of(plan_->body, request, *call.model, work_.id),
      .output = output_options(request, work_.id, link_->framing),
      .opening = plan_->opening,
      .place = {.turns = &services.turn_cache, .history = plan_->prompt->history},
      .timings = request.generation.timings,
      .on_ended = {}};
  options.head.created_at = call.identity->created_s();
  options.output.functions = parsed_functions(request.tools, *call.model->chat);
  if (request.builtins.any()) {
    options.rounds =
        std::make_shared<ResponseRounds>(ResponseRounds::Parts{.services = services,
                                                               .model = call.model,
                                                               .tenant = call.tenant,
                                                               .identity = call.identity,
                                                               .id = work_.id,
                                                               .plan = {.body = {},
                                                                        .request = plan_->request,
                                                                        .history = plan_->history,
                                                                        .prompt = {},
                                                                        .opening = {}},
                                                               .guide = std::move(guide_),
                                                               .deadline_ns = deadline_ns_});
  }
  if (request.encrypted_reasoning) {
    options.output.encrypt_reasoning = [&services, tenant = call.tenant](std::string_view text) {
      return services.encrypted_reasoning.encrypt(text, tenant);
    };
  }
  return options;
}

void ResponseCreation::start(Call call, Services& services) {
  link_->compiling = false;
  const std::string id = work_.id;
  ResponseAnswer::Options options = answer_options(call, services);
  std::vector<EngineWork> all;
  all.push_back(std::move(work_));
  auto streams = services.submit(call, std::move(all));
  if (!streams) return;
  const bool streamed = options.output.framing.has_value();
  const bool in_background = plan_->request.background;
  // Which another worker's client gets: that one keeps it.
  if (call.resumed != nullptr && call.resumed->further_max > 0) plan_->request.store = false;
  options.on_ended = keep_response(services, call.tenant, link_, std::move(*plan_), options.head);
  std::optional<Call> asking;  // to be answered at once
  if (in_background) {
    asking.emplace(std::move(call));
    call = call_in_background(services, *asking, options.head, streamed);
  }
  const std::shared_ptr<net::Exchange> exchange = call.exchange;
  const std::string owner = call.tenant;
  auto answer = std::make_unique<ResponseAnswer>(*call.model, std::move(options), services.clock);
  link_->running_id = id;
  link_->running = run_generation(
      services, {.id = id,
                 .call = std::move(call),
                 .streams = *std::move(streams),
                 .answer = std::move(answer),
                 .mode = streamed ? Generation::Mode::kStream : Generation::Mode::kWhole,
                 // Who follows it later has to know its name, though its turn
                 // comes late.
                 .begins_at_once = in_background});
  services.running_responses.add(
      id, {.owner = owner, .exchange = exchange, .generation = link_->running});
  if (std::exchange(link_->cancel_asked, false)) cancel_generation(exchange, link_->running);
  if (!asking) return;
  const auto background = services.background.find({.owner = owner, .id = id});
  CHECK(background != nullptr, "it has just been noted");
  if (streamed) return BackgroundResponse::follow(background, *std::move(asking), -1);
  asking->send(json_reply(background->body()));
}

// Its formats are compiled only to be refused as they would be there.
class ResponseTokens final : public ModelRequest {
 public:
  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    Result<Json> parsed = Json::parse(body);
    if (!parsed.ok()) return api::api_error(parsed.error());
    Result<ResponsePlan> planned = plan_response(*std::move(parsed), {}, scope);
    if (!planned.ok()) return api::api_error(planned.error());
    plan_ = std::make_shared<ResponsePlan>(*std::move(planned));
    return std::nullopt;
  }
  Fields fields(const ServedModel& model) const override {
    return {.model = plan_->request.model,
            .warnings = warnings_of(plan_->request, model),
            .user = plan_->request.generation.user};
  }
  FormatCompiler::MakeGuide guide(const ServedModel& model) const override {
    return chat_guide_of(std::shared_ptr<const api::ResponseRequest>(plan_, &plan_->request),
                         model);
  }
  std::optional<api::ApiError> prepare(Prepared, const Scope& scope) override {
    const auto written = write_prompt(*plan_, scope);
    return written.ok() ? std::nullopt : std::optional(plan_error(written.error()));
  }
  void start(Call call, Services&) override {
    const auto tokens = static_cast<int64_t>(plan_->prompt->tokens.size());
    call.send(json_reply(api::input_tokens_body(tokens)));
  }

 private:
  std::shared_ptr<ResponsePlan> plan_;
};

}  // namespace

void create_response(Call call, Services& services, std::optional<Json> asked,
                     std::shared_ptr<ResponseLink> link) {
  link->compiling = true;
  if (asked) {  // a frame of a WebSocket, which is not in the call's body
    const Json* const model = asked->find("model");
    call.model_asked = model != nullptr && model->is_string() ? model->as_string() : std::string();
  }
  // A gateway may let another worker go on, unless it promises that none will: what a tool has
  // printed, and done, that one has not.
  const bool is_ours = call.observer == nullptr || call.request.headers.has("x-pelton-stays");
  const bool runs_tools = is_ours && call.resumed == nullptr;
  auto request = std::make_unique<ResponseCreation>(std::move(asked), std::move(link), runs_tools);
  run_request(std::move(call), services, std::move(request), Work::kSampled);
}

void responses(Call call, Services& services) {
  create_response(std::move(call), services, std::nullopt, std::make_shared<ResponseLink>());
}

void response_input_tokens(Call call, Services& services) {
  run_request(std::move(call), services, std::make_unique<ResponseTokens>(), std::nullopt);
}

}  // namespace pelton::server
