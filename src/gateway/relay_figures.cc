// The part of gateway::Relay that counts: what it waited for, how its answer moved, what became of
// it.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "access/audited_exchange.h"
#include "gateway/relay.h"

namespace pelton::gateway {
namespace {

constexpr int kMeasuredMin = 8;     // tokens, from which an answer's speed means something
constexpr int64_t kUnsaidMax = 16;  // tokens that count and are not said: a stop's own

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
  if (request_.rollout) note_rollout(outcome, status, tokens);
  if (!request_.arm) return;
  size_t longest = 0;
  for (const SaidTokens& one : said_) longest = std::max(longest, one.count());
  request_.arm->note_end({.outcome = outcome,
                          .tokens = tokens,
                          .tokens_longest = foreign_ ? tokens : static_cast<int64_t>(longest),
                          .further_s = answer_ns_ > 0 ? seconds(stalled_ns_ - answer_ns_) : 0.0});
}

void Relay::note_refused_region(std::string_view result) const {
  if (services_.audit == nullptr || request_.region.empty()) return;
  // Where nobody is there at all, or an answer has broken off, its region is not why.
  if (attempt_ > 0 || services_.fleet.supply(request_.pool).ready == 0) return;
  services_.audit->note_often({.who = request_.principal.tenant,
                               .from = access::address_of(request_.http),
                               .what = "refuse by residency",
                               .target = request_.region,
                               .result = std::string(result)});
}

// What its client's own mistake was says nothing of the arm. Who leaves before the first token has
// waited so long at least.
void Relay::note_rollout(ArmFigures::Outcome outcome, int status, int64_t tokens) {
  using Outcome = ArmFigures::Outcome;
  const bool has_left = outcome == Outcome::kLeft;
  // A 501 is no fault of a worker's, but may well be its version's.
  const bool failed = arm_failed_ || outcome == Outcome::kError || status >= 500;
  RolloutTicket::End end{.failed = failed, .counts = failed || outcome != Outcome::kClientError};
  const int64_t first_ns = answer_ns_ == 0 && has_left ? services_.clock.now_ns() : answer_ns_;
  if (!left_arm_ && first_ns > 0) end.ttft_s = seconds(first_ns - started_ns_);
  if (!left_arm_ && outcome == Outcome::kOk && tokens > 0) end.output_tokens = tokens;
  request_.rollout->note_end(end);
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
    case Failure::kLeaving:
      return Retry::kBusy;
    case Failure::kAnother:
      return Retry::kRestarted;
    case Failure::kRefused:
    case Failure::kUnknown:
      return Retry::kRefused;
    case Failure::kError:
    case Failure::kUnreadable:
    case Failure::kSilent:
      break;
  }
  return Retry::kFailed;
}

// What the worker found of its prompt, beside what was expected; of an answer that has moved the
// worker says something else than was asked of it.
void Relay::note_end(const std::string& choice_end, const SaidTokens& said) {
  Result<cluster::ChoiceEnd> end = cluster::decode_choice_end(choice_end);
  if (!end.ok()) return;
  // Whatever it claims: no more than it has said.
  end->prompt_tokens = static_cast<int>(std::min<int64_t>(end->prompt_tokens, kClaimedTokensMax));
  end->cached_tokens = std::min(end->cached_tokens, end->prompt_tokens);
  end->output_tokens = static_cast<int>(
      std::clamp<int64_t>(end->output_tokens, 0, static_cast<int64_t>(said.count()) + kUnsaidMax));
  services_.fleet.note_output(request_.pool, end->output_tokens);
  if (std::exchange(counts_found_, false)) note_split_found(end->cached_tokens);
  // Its client's: what others find later was computed for it.
  const int cached =
      std::min(said.cached_tokens().value_or(end->cached_tokens), end->prompt_tokens);
  if (request_.arm) request_.arm->note_finish(end->reason);
  if (request_.served) {
    ended_tokens_ += end->output_tokens;
    request_.served->note_choice({.prompt_tokens = end->prompt_tokens,
                                  .cached_tokens = cached,
                                  .output_tokens = end->output_tokens,
                                  .reason = end->reason});
  }
  prompt_tokens_ = std::max<int64_t>(prompt_tokens_, end->prompt_tokens);
  cached_tokens_ = cached;
  if (request_.ticket != nullptr) {
    request_.ticket->note_end({.prompt_tokens = end->prompt_tokens,
                               .output_tokens = end->output_tokens,
                               .scheduled = true,
                               .complete = end->reason == "stop" || end->reason == "length"});
  }
  if (attempt_ > 0) return;
  // How fast it really is: of one answer alone, that no client held up.
  if (said_.size() == 1 && !was_paused_ && end->output_tokens > kMeasuredMin) {
    services_.fleet.note_further_tokens(
        assignment_, static_cast<double>(stalled_ns_ - first_ns_) * 1e-9, end->output_tokens - 1);
  }
  if (request_.prompt.block_tokens == 0) return;
  RelayCounters& counters = services_.counters;
  if (end->prompt_tokens != request_.prompt.tokens) ++counters.prompt_mismatches;
  // Of an activated adapter's prompt the beginning is the model's own: more than was named for it.
  if (request_.names_adapter && end->cached_tokens > assignment_.hit_tokens) return;
  ++counters.named;
  counters.expected_hit_tokens += assignment_.hit_tokens;
  counters.real_hit_tokens += end->cached_tokens;
  const int64_t difference = std::abs(assignment_.hit_tokens - end->cached_tokens);
  if (difference >= request_.prompt.block_tokens) ++counters.hit_mismatches;
  services_.fleet.note_hit(assignment_, {.expected_tokens = assignment_.hit_tokens,
                                         .real_tokens = end->cached_tokens,
                                         .block_tokens = request_.prompt.block_tokens});
}

// What the worker has fetched of a whole request's prompt, and what that took.
void Relay::note_fetched() {
  if (assignment_.peer.port == 0) return;
  // It is the worker's word: never more than it was offered.
  const int64_t fetched =
      std::min<int64_t>(said_.front().fetched_tokens(), assignment_.peer.tokens);
  services_.counters.prefix_copy_tokens += fetched;
  services_.fleet.note_fetched(
      assignment_, static_cast<double>(services_.clock.now_ns() - attempted_ns_) * 1e-9, fetched);
}

// What was computed counts, whoever is to blame that it did not reach its client; a request of
// which nothing was does not.
void Relay::settle(Fleet::Outcome outcome) {
  if (request_.ticket == nullptr) return;
  const std::unique_ptr<access::AdmissionTicket> ticket = std::move(request_.ticket);
  const bool is_computed = outcome == Fleet::Outcome::kServed && head_ && head_->status == 200;
  if (!is_computed && !begun()) {
    if (outcome != Fleet::Outcome::kServed) ticket->control().refund_request(ticket->principal());
    return;
  }
  // Of several prompts the sum is not known: as it was reserved.
  const bool is_known = prompt_tokens_ > 0 && said_.size() <= 1;
  ticket->note_prompt(is_known ? prompt_tokens_ : std::max(prompt_tokens_, request_.prompt.tokens));
  ticket->note_output(foreign_ ? foreign_said_ : static_cast<int64_t>(said_count()));
}

// What the autoscaler counts of it: of answers that one worker has given, or two as they were meant
// to, and no client held up. Of a split one the first worker has computed the prompt. Of
// several choices each has its rows, and its gaps, at the same time; how much of several prompts
// was computed is not known, and then no more than what was asked.
void Relay::note_served() {
  const auto output = static_cast<int64_t>(said_count());
  const bool is_split = attempt_ == 1 && split_source_hit_.has_value();
  if (!request_.gate || foreign_ || (attempt_ > 0 && !is_split) || said_.empty() || output == 0 ||
      answer_ns_ == 0 || was_paused_) {
    return;
  }
  const auto choices = static_cast<double>(said_.size());
  const int64_t prompt =
      said_.size() == 1 ? prompt_tokens_ : std::max(prompt_tokens_, request_.prompt.tokens);
  request_.gate->note_served(
      {.input = prompt,
       .computed = std::max<int64_t>(prompt - (is_split ? *split_source_hit_ : cached_tokens_), 1),
       .output = output,
       .first_token_s = static_cast<double>(answer_ns_ - first_attempted_ns_) * 1e-9,
       .further_s = choices * static_cast<double>(stalled_ns_ - answer_ns_) * 1e-9});
}

}  // namespace pelton::gateway
