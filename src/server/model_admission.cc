#include "server/model_admission.h"

#include <utility>

namespace pelton::server {
namespace {

using By = access::RefusalCounts::By;

}  // namespace

std::variant<access::AdmissionTicket, api::ApiError> admit(access::AccessControl& control,
                                                           const access::Principal& principal,
                                                           const ServedModel& model, Work work) {
  const Result<void> room =
      model.engine.room_for({.tenant = principal.tenant, .weight = principal.weight, .kind = work});
  if (!room.ok()) {
    return control.overloaded(room.error(), *model.state->refusals, By::kQueue,
                              model.engine.retry_after_ns());
  }
  return control.admit(principal, *model.state->refusals);
}

std::variant<std::vector<engine::TokenStream>, api::ApiError> submit(
    access::AdmissionTicket& ticket, const ServedModel& model, request::GenerationRequest request,
    StreamsWanted wanted) {
  access::AccessControl& control = ticket.control();
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  const int64_t output_tokens = control.expected_output(request.stop.max_new_tokens);
  if (auto refused = control.reserve(ticket, prompt_tokens + wanted.answers * output_tokens,
                                     *model.state->refusals)) {
    return *std::move(refused);
  }
  request.weight = ticket.principal().weight;
  Result<std::vector<engine::TokenStream>> streams =
      model.engine.submit_answers(std::move(request), wanted.answers, std::move(wanted.outbox));
  if (!streams.ok()) {
    const bool is_callers = streams.error().code != ErrorCode::kOverloaded &&
                            streams.error().code != ErrorCode::kUnavailable;
    if (!is_callers) control.refund_request(ticket.principal());
    return control.overloaded(streams.error(), *model.state->refusals, By::kQueue,
                              model.engine.retry_after_ns());
  }
  ticket.note_prompt(prompt_tokens);
  return std::move(streams).value();
}

void note_end(access::AdmissionTicket& ticket, const engine::StreamEnd& end) {
  const bool complete =
      end.reason == engine::FinishReason::kStop || end.reason == engine::FinishReason::kLength;
  ticket.note_end({.prompt_tokens = end.prompt_tokens,
                   .output_tokens = end.output_tokens,
                   .scheduled = end.times.scheduled_ns != 0 || end.output_tokens > 0,
                   .complete = complete});
}

api::ApiError engine_error(const access::AccessControl& control, const ServedModel& model,
                           const Error& error) {
  return control.with_retry(error, model.engine.retry_after_ns());
}

}  // namespace pelton::server
