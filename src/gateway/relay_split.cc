// The part of gateway::Relay that splits a request: the worker that computes its prompt says the
// first token and goes on until another one, which fetches keys and values from it, is warm. So it
// is a warm move (relay_move.cc) that begins with the first token. Whatever fails leaves the first
// worker talking.
//
//   p   prompt → t0 t1 t2 t3 t4 |           cut
//   d   fetches blocks as they are computed
//   d            t0 → t1 |                  what it says is nobody's
//   d                                       t0 … t4 → t5 t6 …
#include <algorithm>
#include <utility>

#include "gateway/relay.h"

namespace pelton::gateway {
namespace {

constexpr size_t kDecodersMax = 2;  // that are tried

}  // namespace

std::optional<Fleet::Wanted::Preferred> Relay::split_source() const {
  if (!splits_ || !running_) return std::nullopt;
  return Fleet::Wanted::Preferred{.worker = assignment_.worker, .serial = assignment_.serial};
}

void Relay::consider_split() {
  if (over_ || !running_ || said_count() == 0) return;
  if (said_.size() != 1 || said_.front().finished()) return;  // its end is on its way
  using Outcome = SplitCounters::Outcome;
  const bool had_tried = !split_tried_.empty();
  if (split_tried_.size() >= kDecodersMax) return end_split(Outcome::kFailed);
  tried_ = split_tried_;
  tried_.push_back(assignment_.worker);
  if (ahead_) preferred_ = {.worker = ahead_->target.worker, .serial = ahead_->target.serial};
  std::optional<Fleet::Assignment> next = assign();
  preferred_.reset();
  if (next && std::exchange(is_trial_, false)) {  // what may be ending workers stays with one
    services_.quarantine.end_trial(next->incarnation);
    services_.fleet.note_outcome(*next, Fleet::Outcome::kNeither);
    return end_split(Outcome::kNoDecoder);
  }
  if (next) decides_late_ = false;
  if (!next) return end_split(had_tried ? Outcome::kFailed : Outcome::kNoDecoder);
  split_tried_.push_back(next->worker);
  if (ahead_ && ahead_->target.worker == next->worker) {
    next->hit_tokens = std::min(next->hit_tokens, ahead_->target.hit_tokens);
  } else {
    drop_ahead();
  }
  const bool at_once =
      services_.fleet.split_of(request_.pool).handoff == SplitConfig::Handoff::kFirst;
  counts_found_ = at_once;
  at_once ? hand_over(*std::move(next), GatewayFigures::Move::kSplit)
          : start_warm_up(*std::move(next));
}

// Another one, if there is one; else the worker that talks goes on.
void Relay::retry_split() {
  if (splits_ && !warm_up_) consider_split();
}

void Relay::end_split(SplitCounters::Outcome outcome) {
  if (!std::exchange(splits_, false)) return;
  if (std::exchange(decides_late_, false)) return;  // it was none
  services_.counters.splits.note(outcome);
  if (outcome != SplitCounters::Outcome::kHandedOver) drop_ahead();
}

// Which worker goes on is chosen again when there is something to go on with: this one, if it still
// takes requests then.
void Relay::fetch_ahead() {
  // What has been begun goes on while the second one is asked to go on.
  if (assignment_.is_foreign || !splits_ || !assignment_.decoder) return;
  drop_ahead();
  const std::vector<size_t> excluded = {assignment_.worker};
  std::optional<Fleet::Assignment> target = services_.fleet.assign(
      {.pool = request_.pool,
       .model = request_.model,
       .excluded = excluded,
       .prompt = request_.prompt,
       .preferred = Fleet::Wanted::Preferred{.worker = assignment_.decoder->worker,
                                             .serial = assignment_.decoder->serial},
       .region = request_.region,
       .fingerprint = assignment_.fingerprint,
       .request_id = request_.request_id,
       .source = split_source(),
       .ahead = true});
  if (!target) return;
  if (target->peer.port == 0) {
    return services_.fleet.note_outcome(*target, Fleet::Outcome::kNeither);
  }
  const int number = ++aheads_;
  ahead_ = Ahead{.number = number, .target = *std::move(target)};
  net::HttpCallEvents events;
  const auto self = shared_from_this();
  events.on_body = [](std::string_view) {};
  events.on_done = [self, number](const Result<void>&) {
    self->exchange_->post([self, number] { self->end_ahead(number); });
  };
  ahead_->call = services_.client.start(call_to(ahead_->target, 1), std::move(events));
}

// It is remembered who has it.
void Relay::end_ahead(int number) {
  if (!ahead_ || ahead_->number != number || std::exchange(ahead_->is_over, true)) return;
  services_.fleet.note_outcome(ahead_->target, Fleet::Outcome::kNeither);
}

void Relay::drop_ahead() {
  if (!ahead_) return;
  services_.client.cancel(ahead_->call);
  end_ahead(ahead_->number);
  ahead_.reset();
}

// What the second one has computed of blocks that the first one has is work done twice.
int64_t Relay::note_split_found(int64_t tokens) {
  const int64_t named = std::ssize(request_.prompt.names) * int64_t{request_.prompt.block_tokens};
  const int64_t found = std::min(tokens, named);
  services_.counters.splits.found_tokens += found;
  services_.counters.splits.recomputed_tokens += named - found;
  return found;
}

void Relay::note_split_warm() {
  const int64_t found = note_split_found(warm_up_->found_tokens);
  const int64_t fetched = found - std::min(warm_up_->target.hit_tokens, found);
  services_.fleet.note_hand_over(
      warm_up_->target, static_cast<double>(services_.clock.now_ns() - warm_up_->begun_ns) * 1e-9,
      fetched);
}

}  // namespace pelton::gateway
