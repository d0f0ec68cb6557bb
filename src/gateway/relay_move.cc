// The part of gateway::Relay that leaves a worker which is being stopped, or has computed a prompt
// that another one goes on with (relay_split.cc): a warm move. The next one
// is sent what has been said and computes it, while this one goes on talking; once that one has
// gone on from there by a token of each choice, this one is cut and the answer sent to that one
// anew, which finds all but the last tokens in its prefix cache. So the client waits for a chunk of
// some tokens and not for the whole prompt.
//
//   source   … t40 t41 t42 t43 t44 t45 |              cut
//   warm-up      prompt, t0 … t40 → t41 |             what it says is nobody's
//   next                                  t0 … t45 → t46 t47 …    t0 … t32 are found, by blocks
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gateway/relay.h"

namespace pelton::gateway {
namespace {

constexpr int kWarmUpsMax = 3;  // that fail; then it is cut and computed anew
constexpr int64_t kWarmUpAgainNs = 300'000'000;

std::string_view why_left(bool is_split) {
  return is_split ? "has computed its prompt" : "is being stopped";
}

}  // namespace

void Relay::leave_worker() {
  if (runs_tools_ && begun()) return;
  if (request_.uplink && begun()) return;  // its worker ends it
  const int64_t now_ns = services_.clock.now_ns();
  if (warm_up_ || now_ns < warm_up_again_ns_) return;
  // It goes as others do: what it was to hand over with its first token is not there yet.
  if (decides_late_) splits_ = decides_late_ = false;
  tried_ = {assignment_.worker};
  const bool was_trial = std::exchange(is_trial_, false);
  if (was_trial) services_.quarantine.end_trial(assignment_.incarnation);
  std::optional<Fleet::Assignment> next = assign();
  if (!next) return;
  // Nothing that its client would miss, or what may be ending workers: one at a time of those.
  const bool is_cold = said_count() == 0 || is_trial_ || warm_ups_failed_ >= kWarmUpsMax;
  is_cold ? hand_over(*std::move(next), GatewayFigures::Move::kDrain)
          : start_warm_up(*std::move(next));
}

void Relay::start_warm_up(Fleet::Assignment target) {
  const int number = -++warm_ups_;
  warm_up_ = WarmUp{.number = number,
                    .target = std::move(target),
                    .said = said_count(),
                    .is_split = splits_,
                    .begun_ns = services_.clock.now_ns(),
                    .heard_ns = silent_from_ns()};
  services_.fleet.listen(warm_up_->target, weak_from_this(), number);
  services_.log.info(fmt::format("request {} attempt {} warms up worker {}:{} for {}:{}, which {}",
                                 request_.request_id, attempt_, warm_up_->target.host,
                                 warm_up_->target.port, assignment_.host, assignment_.port,
                                 why_left(splits_)));
  net::HttpCallEvents events;
  const auto self = shared_from_this();
  events.on_body = [self, number](std::string_view bytes) {
    self->exchange_->post(
        [self, number, bytes = std::string(bytes)] { self->on_warm_up_bytes(number, bytes); });
  };
  events.on_done = [self, number](const Result<void>&) {
    self->exchange_->post([self, number] { self->fail_warm_up(number, Fleet::Outcome::kNeither); });
  };
  // Its first token says that it is warm, and its end what it has found.
  warm_up_->call =
      services_.client.start(call_to(warm_up_->target, splits_ ? 1 : 0), std::move(events));
}

void Relay::on_warm_up_bytes(int number, const std::string& bytes) {
  if (over_ || !warm_up_ || warm_up_->number != number) return;
  warm_up_->heard = true;
  warm_up_->reader.push(bytes);
  for (;;) {
    const Result<std::optional<AnswerUpdate>> update = warm_up_->reader.next();
    if (!update.ok()) return fail_warm_up(number, Fleet::Outcome::kFailed);
    if (!*update) return;
    const bool is_refused = (*update)->error || ((*update)->head && (*update)->head->status != 200);
    if (is_refused) return fail_warm_up(number, Fleet::Outcome::kNeither);
    note_warm(**update);
    if (!is_warm()) continue;
    const Fleet::Wanted::Preferred warmed{.worker = warm_up_->target.worker,
                                          .serial = warm_up_->target.serial};
    preferred_ = warmed;
    if (warm_up_->is_split) note_split_warm();
    drop_warm_up(Fleet::Outcome::kServed);
    std::optional<Fleet::Assignment> next = assign();
    preferred_.reset();
    if (next && next->worker == warmed.worker && next->serial == warmed.serial) {
      warmed_attempt_ = attempt_ + 1;
    }
    // None: it has been filled meanwhile. It is asked again, as long as this one talks.
    if (!next) return retry_split();
    if (splits_) return hand_over(*std::move(next), GatewayFigures::Move::kSplit);
    ++services_.counters.warm_moves;
    return hand_over(*std::move(next), GatewayFigures::Move::kWarm);
  }
}

void Relay::note_warm(const AnswerUpdate& update) {
  std::vector<bool>& warm = warm_up_->warm;
  warm.resize(std::max(warm.size(), said_.size()));
  const auto note = [&](size_t choice) {
    if (choice < warm.size()) warm[choice] = true;
  };
  if (!warm_up_->is_split) {
    for (const auto& [choice, list] : update.tokens) note(choice);
  }
  for (const auto& [choice, end] : update.finished) {
    note(choice);
    const Result<cluster::ChoiceEnd> known = cluster::decode_choice_end(end);
    if (known.ok()) warm_up_->found_tokens = known->cached_tokens;
  }
}

// Choices that had said nothing when it began are computed there together with the others' prompt.
bool Relay::is_warm() const {
  for (size_t i = 0; i < said_.size(); ++i) {
    const bool is_open = said_[i].count() > 0 && !said_[i].finished();
    if (is_open && (i >= warm_up_->warm.size() || !warm_up_->warm[i])) return false;
  }
  return true;
}

void Relay::fail_warm_up(int number, Fleet::Outcome outcome) {
  if (over_ || !warm_up_ || warm_up_->number != number) return;
  drop_warm_up(outcome);
  if (splits_) return retry_split();
  ++warm_ups_failed_;
  warm_up_again_ns_ = services_.clock.now_ns() + kWarmUpAgainNs;
}

void Relay::drop_warm_up(Fleet::Outcome outcome) {
  if (!warm_up_) return;
  services_.client.cancel(warm_up_->call);
  services_.fleet.note_outcome(warm_up_->target, outcome);
  warm_up_.reset();
}

// What the worker has said and the client has not got yet is said again by the next one.
void Relay::hand_over(Fleet::Assignment next, GatewayFigures::Move kind) {
  begin_move(kind);
  const bool is_split = kind == GatewayFigures::Move::kSplit;
  end_split(SplitCounters::Outcome::kHandedOver);
  if (is_split && attempt_ == 0) split_source_hit_ = assignment_.hit_tokens;
  // Where nobody takes it this one does again: it has all of it.
  if (is_split) std::erase(tried_, assignment_.worker);
  services_.client.cancel(call_);
  services_.fleet.note_outcome(assignment_, Fleet::Outcome::kNeither);
  services_.log.info(fmt::format("request {} attempt {} leaves worker {}:{}, which {}",
                                 request_.request_id, attempt_, assignment_.host, assignment_.port,
                                 why_left(is_split)));
  ++attempt_;
  failures_ = 0;
  stalled_ns_ = services_.clock.now_ns();
  if (!is_split) ++services_.counters.drain_moves;
  send_to(std::move(next));
}

}  // namespace pelton::gateway
