#include "server/response_answer.h"

#include <algorithm>
#include <utility>

#include "server/generation_facts.h"
#include "server/response_conversation.h"

namespace pelton::server {
namespace {

using api::ResponseStatus;

ResponseStatus status_of(const engine::StreamEnd& end, bool stopped) {
  if (stopped || end.reason == engine::FinishReason::kStop ||
      end.reason == engine::FinishReason::kRepetition) {
    return ResponseStatus::kCompleted;
  }
  return end.reason == engine::FinishReason::kLength ? ResponseStatus::kIncomplete
                                                     : ResponseStatus::kCancelled;
}

}  // namespace

ResponseAnswer::ResponseAnswer(const ServedModel& model, Options options, const base::Clock& clock)
    : model_(model),
      options_(std::move(options)),
      clock_(clock),
      output_(model, options_.output),
      turn_(options_.opening) {
  if (options_.output.framing) {
    const std::string body = api::response_body(options_.head, {});
    output_.events().lifecycle("response.created", body, prologue_);
    output_.events().lifecycle("response.in_progress", body, prologue_);
  }
  output_.open(options_.opening);
}

Answer::Wants ResponseAnswer::push(size_t, const engine::SampledToken& token) {
  ++sampled_tokens_;
  turn_.push_back(token.token);
  output_.push(token);
  return output_.stopped() ? Wants::kNothing : Wants::kMore;
}

void ResponseAnswer::end(size_t, const engine::StreamEnd& end) {
  const bool stopped = output_.stopped();
  const bool whole = stopped || end.reason == engine::FinishReason::kStop;
  output_.finish(whole ? chat::StopCause::kStopToken : chat::StopCause::kLength);
  status_ = status_of(end, output_.stopped());
  api::ResponseState state{.status = status_,
                           .output = output_.items(),
                           .usage = usage(end),
                           .error = nullptr,
                           .completed_at = {}};
  if (status_ == ResponseStatus::kCompleted) state.completed_at = clock_.unix_ms() / 1000;
  access::GenerationFacts facts;
  add_answer(facts, end);
  const api::Timings timings = timings_of(facts);
  if (options_.timings) state.timings = &timings;
  body_ = api::response_body(options_.head, state);
  const bool kept = !output_.stopped() && end.reason == engine::FinishReason::kStop;
  std::vector<TokenId> turn = kept ? keep_turn() : std::vector<TokenId>();
  report_end(state, std::move(turn));
}

api::Usage ResponseAnswer::usage(const engine::StreamEnd& end) const {
  return {.prompt_tokens = end.prompt_tokens,
          .cached_tokens = end.cached_tokens,
          .completion_tokens = sampled_tokens_,
          .reasoning_tokens = output_.reasoning_tokens()};
}

void ResponseAnswer::report_end(const api::ResponseState& state, std::vector<TokenId> turn) {
  if (!options_.on_ended) return;
  const auto say_unstored = [&] {
    options_.head.stored = false;
    body_ = api::response_body(options_.head, state);
  };
  options_.on_ended({.body = body_,
                     .items = output_.items(),
                     .turn = std::move(turn),
                     .failed = state.status == ResponseStatus::kFailed,
                     .say_unstored = say_unstored});
}

// Only what the items stand for entirely.
std::vector<TokenId> ResponseAnswer::keep_turn() {
  if (!output_.well_formed()) return {};
  std::vector<TokenId> turn = model_.chat->cacheable_turn(std::move(turn_));
  if (turn.empty()) return turn;
  const std::vector<api::OutputItem>& items = output_.items();
  const auto calls =
      std::ranges::count(items, api::OutputItem::Kind::kCall, &api::OutputItem::kind);
  // Of several calls the words of one do not identify the turn.
  if (calls < 2) {
    options_.place.turns->keep(options_.place.history, words_of(items).view(), turn);
  }
  return turn;
}

void ResponseAnswer::take_events(std::string& out) {
  out += prologue_;
  prologue_.clear();
  output_.take_events(out);
}

void ResponseAnswer::take_last_events(std::string& out) {
  take_events(out);
  const bool completed = status_ == ResponseStatus::kCompleted;
  output_.events().lifecycle(completed ? "response.completed" : "response.incomplete", body_, out);
}

void ResponseAnswer::fail(const api::ApiError& error, const engine::StreamEnd& end) {
  output_.cut_off();
  const api::ResponseState state{.status = ResponseStatus::kFailed,
                                 .output = output_.items(),
                                 .usage = usage(end),
                                 .error = &error,
                                 .completed_at = {}};
  body_ = api::response_body(options_.head, state);
  report_end(state, {});
}

void ResponseAnswer::append_error(const api::ApiError& /*error*/, std::string& out) {
  take_events(out);
  output_.events().lifecycle("response.failed", body_, out);
}

}  // namespace pelton::server
