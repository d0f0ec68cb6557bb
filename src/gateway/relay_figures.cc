// The part of gateway::Relay that counts: what it waited for, how its answer moved, what became of
// it.
#include <algorithm>
#include <utility>

#include "gateway/relay.h"

namespace pelton::gateway {
namespace {

double seconds(int64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

}  // namespace

void Relay::begin_wait() {
  has_waited_ = true;
  if (waiting_since_ns_ != 0) return;
  waiting_since_ns_ = services_.clock.now_ns();
  services_.counters.figures.begin_wait();
}

void Relay::end_wait() {
  const int64_t since_ns = std::exchange(waiting_since_ns_, 0);
  if (since_ns == 0) return;
  services_.counters.figures.end_wait(seconds(services_.clock.now_ns() - since_ns));
}

// It is on its way to a worker.
void Relay::note_sent() {
  end_wait();
  if (attempt_ > 0 || has_waited_ || request_.received_ns == 0) return;
  services_.counters.figures.note_added(seconds(attempted_ns_ - request_.received_ns));
}

void Relay::begin_move(GatewayFigures::Move kind) {
  end_move(GatewayFigures::MoveEnd::kFailed);  // one that had come to nothing yet
  if (begun()) moving_ = kind;
}

void Relay::end_move(GatewayFigures::MoveEnd end) {
  if (!moving_) return;
  services_.counters.figures.note_move(*std::exchange(moving_, std::nullopt), end);
}

// A token, or an event, that is new.
void Relay::note_said(int64_t now_ns) {
  const int64_t before_ns = std::exchange(said_ns_, now_ns);
  if (!moving_) return;
  services_.counters.figures.note_stream_gap(seconds(now_ns - before_ns));
  end_move(GatewayFigures::MoveEnd::kContinued);
}

void Relay::note_over(ArmFigures::Outcome outcome, int status) {
  end_wait();
  // Who leaves does not hear whether it would have gone on.
  if (outcome == ArmFigures::Outcome::kLeft) moving_.reset();
  end_move(outcome == ArmFigures::Outcome::kError ? GatewayFigures::MoveEnd::kFailed
                                                  : GatewayFigures::MoveEnd::kContinued);
  services_.counters.figures.note_end(
      {.pool = request_.pool,
       .status = status,
       .outcome = GatewayFigures::kOutcomes[static_cast<size_t>(outcome)]});
  const int64_t tokens = foreign_ ? foreign_said_ : static_cast<int64_t>(said_count());
  note_pool_served(outcome, tokens);
  if (services_.requests != nullptr) record_request(outcome, status, tokens);
  if (!request_.arm) return;
  size_t longest = 0;
  for (const SaidTokens& one : said_) longest = std::max(longest, one.count());
  request_.arm->note_end({.outcome = outcome,
                          .tokens = tokens,
                          .tokens_longest = foreign_ ? tokens : static_cast<int64_t>(longest),
                          .further_s = answer_ns_ > 0 ? seconds(stalled_ns_ - answer_ns_) : 0.0});
}

void Relay::record_request(ArmFigures::Outcome outcome, int status, int64_t tokens) {
  const int64_t arrived_ns = request_.received_ns != 0 ? request_.received_ns : started_ns_;
  GroupedNames grouped = grouped_names(request_.prompt.names, request_.prompt.block_tokens);
  services_.requests->note(
      {.arrived_unix_ms = request_.created_ms,
       .pool = request_.pool,
       .input_tokens = prompt_tokens_ > 0 ? prompt_tokens_ : request_.prompt.tokens,
       .output_tokens = std::max(tokens, ended_tokens_),
       .cached_tokens = cached_tokens_,
       .names = std::move(grouped.names),
       .block_tokens = grouped.block_tokens,
       .status = status,
       .outcome = GatewayFigures::kOutcomes[static_cast<size_t>(outcome)],
       .first_token_s = answer_ns_ > 0 ? seconds(answer_ns_ - arrived_ns) : 0.0,
       .duration_s = seconds(services_.clock.now_ns() - arrived_ns)});
}

// Of an answer of which something was said; workers count no others.
void Relay::note_pool_served(ArmFigures::Outcome outcome, int64_t tokens) {
  if (!request_.served || (tokens == 0 && ended_tokens_ == 0)) return;
  using How = PoolServed::End::How;
  using Outcome = ArmFigures::Outcome;
  if (foreign_) request_.served->note_choice({.prompt_tokens = prompt_tokens_});
  const int64_t first_ns = answer_ns_ > 0 ? answer_ns_ : stalled_ns_;
  request_.served->note_end({.how = outcome == Outcome::kOk     ? How::kAnswered
                                    : outcome == Outcome::kLeft ? How::kLeft
                                                                : How::kFailed,
                             .further_tokens = std::max<int64_t>(tokens - ended_tokens_, 0),
                             .first_token_s = seconds(first_ns - started_ns_),
                             .whole_s = seconds(stalled_ns_ - started_ns_)});
}

GatewayFigures::Retry Relay::retry_of(Failure failure) {
  using Retry = GatewayFigures::Retry;
  switch (failure) {
    case Failure::kUnreached:
      return Retry::kUnreached;
    case Failure::kLost:
      return Retry::kLost;
    case Failure::kDown:
      return Retry::kDown;
    case Failure::kBusy:
      return Retry::kBusy;
    case Failure::kAnother:
      return Retry::kRestarted;
    case Failure::kRefused:
    case Failure::kUnknown:
      return Retry::kRefused;
    case Failure::kError:
    case Failure::kUnreadable:
      break;
  }
  return Retry::kFailed;
}

}  // namespace pelton::gateway
