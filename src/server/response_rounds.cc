#include "server/response_rounds.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "access/api_keys.h"
#include "server/generation.h"
#include "server/model_admission.h"
#include "server/request_pipeline.h"
#include "server/response_answer.h"

namespace pelton::server {
namespace {

using api::OutputItem;
using api::ResponseItem;

ResponseItem item_of(const OutputItem& item) {
  ResponseItem made{.text = item.text};
  switch (item.kind) {
    case OutputItem::Kind::kReasoning:
      made.kind = ResponseItem::Kind::kReasoning;
      break;
    case OutputItem::Kind::kMessage:
      made.role = api::ChatRole::kAssistant;
      made.phase = item.commentary ? ResponseItem::Phase::kPreamble : ResponseItem::Phase::kAnswer;
      break;
    default:
      made.kind = ResponseItem::Kind::kCall;
      made.call_id = item.call_id;
      made.name = item.name;
  }
  return made;
}

int64_t calls_max_of(const ToolServers& tools, const api::ResponseRequest& request) {
  const int64_t ours = tools.calls_max();
  return std::min(ours, request.tool_calls_max.value_or(ours));
}

}  // namespace

ResponseRounds::ResponseRounds(Parts parts)
    : parts_(std::move(parts)),
      plan_(std::move(parts_.plan)),
      calls_max_(calls_max_of(*parts_.services.options.tools, plan_.request)),
      tokens_left_(plan_.request.generation.max_tokens),
      session_(*parts_.services.options.tools, plan_.request.builtins) {}

void ResponseRounds::add_items(const ResponseAnswer& answer) {
  for (const OutputItem& item : answer.round_items()) {
    plan_.request.items.push_back(item_of(item));
  }
}

void ResponseRounds::run(ResponseAnswer& answer, std::weak_ptr<Generation> generation) {
  const auto running = generation.lock();
  if (running == nullptr) return;
  add_items(answer);
  if (tokens_left_) *tokens_left_ -= answer.round_tokens();
  const auto waiting =
      std::make_shared<Waiting>(Waiting{.answer = &answer,
                                        .generation = std::move(generation),
                                        .exchange = running->call().exchange,
                                        .call_id = plan_.request.items.back().call_id});
  waiting_ = waiting;
  if (parts_.deadline_ns) {
    const auto left =
        std::chrono::nanoseconds(*parts_.deadline_ns - parts_.services.clock.now_ns());
    waiting->exchange->post_after(std::chrono::ceil<std::chrono::milliseconds>(left),
                                  [weak = weak_from_this(), of = std::weak_ptr(waiting)] {
                                    const auto self = weak.lock();
                                    if (const auto held = of.lock(); self && held) {
                                      self->give_up(held);
                                    }
                                  });
  }
  const OutputItem& call = answer.round_items().back();
  if (++calls_ > calls_max_) {
    return on_result(waiting,
                     {.text = fmt::format("No more than {} calls are answered; answer with "
                                          "what there is.",
                                          calls_max_),
                      .failed = true});
  }
  session_.run(call.name, call.text,
               [weak = weak_from_this(), waiting](ToolServers::Session::Outcome outcome) {
                 waiting->exchange->post([weak, waiting, outcome = std::move(outcome)] {
                   if (const auto self = weak.lock()) self->on_result(waiting, outcome);
                 });
               });
}

void ResponseRounds::give_up(const std::shared_ptr<Waiting>& waiting) {
  const auto generation = waiting->generation.lock();
  if (generation == nullptr || !generation->waits() || waiting_.lock() != waiting) return;
  generation->go_on_with(api::api_error(
      {ErrorCode::kDeadline, "the request's time was over while a tool ran for it", ""}));
}

void ResponseRounds::on_result(const std::shared_ptr<Waiting>& waiting,
                               ToolServers::Session::Outcome outcome) {
  const auto generation = waiting->generation.lock();
  if (generation == nullptr || !generation->waits()) return;
  waiting->answer->end_call(outcome.text, outcome.failed);
  generation->say();
  if (tokens_left_ && *tokens_left_ < 1) {
    return generation->end_waiting(engine::FinishReason::kLength);
  }
  ResponseItem result{.kind = ResponseItem::Kind::kResult, .text = std::move(outcome.text)};
  result.call_id = waiting->call_id;
  result.path = "output";
  plan_.request.items.push_back(std::move(result));
  prepare(waiting);
}

void ResponseRounds::prepare(const std::shared_ptr<Waiting>& waiting) {
  const std::weak_ptr<ResponseRounds> weak = weak_from_this();
  WorkPool::Job job{.tenant = access::billing_account(parts_.tenant, ""),
                    .deadline_ns = parts_.deadline_ns};
  job.run = [self = shared_from_this()](const WorkPool::Attempt&) {
    self->refused_ = self->write_next();
    return WorkPool::Outcome::kDone;
  };
  job.done = [weak, waiting](const std::optional<Error>& error) {
    waiting->exchange->post([weak, waiting, error] {
      if (const auto self = weak.lock()) self->submit(waiting, error);
    });
  };
  auto ticket = parts_.services.preparation.submit(std::move(job));
  if (!ticket.ok()) return submit(waiting, ticket.error());
  preparing_ = *std::move(ticket);
}

std::optional<api::ApiError> ResponseRounds::write_next() {
  const ModelRequest::Scope scope{.services = parts_.services,
                                  .model = *parts_.model,
                                  .tenant = parts_.tenant,
                                  .identity = *parts_.identity};
  api::ResponseRequest& request = plan_.request;
  request.forced_call.reset();
  request.generation.max_tokens = tokens_left_;
  plan_.opening.clear();
  if (const auto written = write_prompt(plan_, scope); !written.ok()) {
    return api::api_error(written.error());
  }
  return keep(engine_work(scope, request.generation,
                          {.id = parts_.id,
                           .prompt = std::move(plan_.prompt->tokens),
                           .prompt_field = "input",
                           .prompt_kind = api::ContextLength::Prompt::kResponseInput,
                           .deadline_ns = parts_.deadline_ns,
                           .logprobs = request.top_logprobs,
                           .guide = parts_.guide,
                           .seed_if_none = parts_.identity->draw_seed(),
                           .may_call = true,
                           .reasoning = plan_.prompt->reasoning}),
              work_);
}

void ResponseRounds::submit(const std::shared_ptr<Waiting>& waiting,
                            const std::optional<Error>& error) {
  const auto generation = waiting->generation.lock();
  if (generation == nullptr || !generation->waits()) return;
  if (error) return generation->go_on_with(generation->call().reported(*error));
  // What does not fit any more ends as an answer that is too long does.
  if (refused_) return generation->end_waiting(engine::FinishReason::kLength);
  const int output_tokens_max = work_.request.stop.max_new_tokens;
  auto submitted = server::submit(
      *generation->call().ticket, *parts_.model, std::move(work_.request),
      {.answers = 1, .outbox = parts_.services.outboxes.of_thread(*waiting->exchange)});
  if (const auto* refused = std::get_if<api::ApiError>(&submitted)) {
    return generation->go_on_with(*refused);
  }
  waiting->answer->begin_round(plan_.prompt->history, plan_.opening);
  generation->go_on(std::move(std::get<0>(submitted)), output_tokens_max);
}

}  // namespace pelton::server
