#include "server/response_answer.h"

#include <algorithm>
#include <utility>

#include "server/generation_facts.h"
#include "server/response_conversation.h"
#include "server/response_rounds.h"

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
  ++round_tokens_;
  turn_.push_back(token.token);
  output_.push(token);
  // What a model writes behind a call that is run is not what it writes when it knows the result.
  return output_.stopped() || output_.has_open_call() ? Wants::kNothing : Wants::kMore;
}

void ResponseAnswer::begin_waiting(std::weak_ptr<Generation> generation) {
  options_.rounds->run(*this, std::move(generation));
}

void ResponseAnswer::begin_round(const RollingHash& history, const std::vector<TokenId>& opening) {
  goes_on_ = false;
  has_rounds_ = true;
  round_tokens_ = 0;
  options_.place.history = history;
  turn_ = opening;
  output_.next_round();
  output_.open(opening);
}

void ResponseAnswer::end(size_t, const engine::StreamEnd& end) {
  const bool stopped = output_.stopped();
  const bool called = output_.has_open_call() && !goes_on_;
  const bool whole = stopped || called || end.reason == engine::FinishReason::kStop;
  // Of one that waits the model's turn is over already.
  if (!std::exchange(goes_on_, false)) {
    output_.finish(whole ? chat::StopCause::kStopToken : chat::StopCause::kLength);
    add_usage(end);
  }
  std::string_view incomplete_reason = "max_output_tokens";
  status_ = status_of(end, output_.stopped());
  if (output_.has_open_call()) {
    if (whole && options_.rounds->may_go_on()) {
      keep_turn();
      goes_on_ = true;
      return;
    }
    output_.give_up_call();
    if (whole) {
      status_ = ResponseStatus::kIncomplete;
      incomplete_reason = "max_tool_calls";
    }
  }
  api::ResponseState state{.status = status_,
                           .output = output_.items(),
                           .usage = usage_,
                           .error = nullptr,
                           .incomplete_reason = incomplete_reason,
                           .completed_at = {}};
  if (status_ == ResponseStatus::kCompleted) state.completed_at = clock_.unix_ms() / 1000;
  const api::Timings timings = timings_of(facts_);
  if (options_.timings) state.timings = &timings;
  body_ = api::response_body(options_.head, state);
  const bool kept = !output_.stopped() && end.reason == engine::FinishReason::kStop &&
                    status_ == ResponseStatus::kCompleted;
  std::vector<TokenId> turn = kept ? keep_turn() : std::vector<TokenId>();
  // Of several turns there is no one that stands for all items.
  if (has_rounds_) turn.clear();
  report_end(state, std::move(turn));
}

void ResponseAnswer::add_usage(const engine::StreamEnd& end) {
  usage_.prompt_tokens += end.prompt_tokens;
  usage_.cached_tokens += end.cached_tokens;
  usage_.completion_tokens += round_tokens_;
  usage_.reasoning_tokens = output_.reasoning_tokens();
  add_answer(facts_, end);
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
  const std::span<const api::OutputItem> items = output_.round_items();
  const auto calls =
      std::ranges::count_if(items, [](const api::OutputItem& item) { return !item.has_parts(); });
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
  if (!std::exchange(goes_on_, false)) {
    output_.cut_off();
    add_usage(end);
  }
  if (output_.has_open_call()) output_.give_up_call();
  const api::ResponseState state{.status = ResponseStatus::kFailed,
                                 .output = output_.items(),
                                 .usage = usage_,
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
