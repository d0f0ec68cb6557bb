// The part of gateway::Relay that splits a request: the worker that computes its prompt says the
// first token and goes on until another one, which fetches keys and values from it, is warm. So it
// is a warm move (relay_move.cc) that begins with the first token. Whatever fails leaves the first
// worker talking.
//
//   p        prompt → t0 t1 t2 t3 t4 |                 cut
//   d                   asks p for blocks, t0 → t1 |   what it says is nobody's
//   d                                                  t0 … t4 → t5 t6 …
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
  std::optional<Fleet::Assignment> next = assign();
  if (next && std::exchange(is_trial_, false)) {  // what may be ending workers stays with one
    services_.quarantine.end_trial(next->incarnation);
    services_.fleet.note_outcome(*next, Fleet::Outcome::kNeither);
    return end_split(Outcome::kNoDecoder);
  }
  if (!next) return end_split(had_tried ? Outcome::kFailed : Outcome::kNoDecoder);
  split_tried_.push_back(next->worker);
  const bool at_once =
      services_.fleet.split_of(request_.pool).handoff == SplitConfig::Handoff::kFirst;
  at_once ? hand_over(*std::move(next), GatewayFigures::Move::kSplit)
          : start_warm_up(*std::move(next));
}

// Another one, if there is one; else the worker that talks goes on.
void Relay::retry_split() {
  if (splits_ && !warm_up_) consider_split();
}

void Relay::end_split(SplitCounters::Outcome outcome) {
  if (std::exchange(splits_, false)) services_.counters.splits.note(outcome);
}

// What the second one has computed of blocks that the first one has is work done twice.
void Relay::note_split_warm() {
  const int64_t named = std::ssize(request_.prompt.names) * int64_t{request_.prompt.block_tokens};
  const int64_t found = std::min(warm_up_->found_tokens, named);
  services_.counters.splits.found_tokens += found;
  services_.counters.splits.recomputed_tokens += named - found;
  const int64_t fetched = found - std::min(warm_up_->target.hit_tokens, found);
  services_.fleet.note_hand_over(
      warm_up_->target, static_cast<double>(services_.clock.now_ns() - warm_up_->begun_ns) * 1e-9,
      fetched);
}

}  // namespace pelton::gateway
