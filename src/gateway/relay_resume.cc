// The part of gateway::Relay for streams whose client may go on at another gateway
// (stream_ticket.h): places beside what is passed on, and the way back to such a place. There the
// answer is computed anew, unheard, until its choices have said what the client has; then it is cut
// to that, and the worker says the rest, as one does that goes on where another one was lost.
//
//   lost gateway   t0 t1 t2 t3 |
//   this one       t0 t1 t2 t3 t4 |      nobody hears it; is it the same?
//   this one                     t4 t5 …
#include <utility>

#include "base/random.h"
#include "gateway/gateway_errors.h"
#include "gateway/interruption.h"
#include "gateway/relay.h"

namespace pelton::gateway {

// Of all that has been said.
StreamPlace Relay::place() const {
  StreamPlace place;
  for (size_t i = 0; i < said_.size(); ++i) {
    place.choices.push_back({.tokens = said_[i].count(), .finished = said_[i].finished()});
    if (said_[i].count() > 0) place.digest ^= base::random_bits(said_[i].digest(), i);
  }
  return place;
}

// Whole events, of which the last one says where the client is behind them.
void Relay::write_events(std::string events) {
  if (request_.resume && events.ends_with("\n\n")) {
    events.insert(events.size() - 1, "id: " + place().text() + "\n");
  }
  exchange_->write(events);
}

// An update of an answer that is said again.
bool Relay::replay(bool is_last) {
  const StreamPlace& from = *request_.resume->from;
  bool is_there = true;
  for (size_t i = 0; i < from.choices.size(); ++i) {
    const StreamPlace::Choice& had = from.choices[i];
    if (had.tokens == 0 && !had.finished) continue;
    is_there = is_there && i < said_.size() && said_[i].count() >= had.tokens &&
               (said_[i].finished() || !had.finished);
  }
  if (!is_there && !is_last) return true;
  for (size_t i = 0; i < said_.size(); ++i) {
    const StreamPlace::Choice had =
        i < from.choices.size() ? from.choices[i] : StreamPlace::Choice();
    said_[i].cut(had.tokens, had.finished);
  }
  services_.client.cancel(call_);
  if (!is_there || place().digest != from.digest) {
    close(Fleet::Outcome::kNeither);
    ++services_.counters.unserved;
    note_over(ArmFigures::Outcome::kClientError, kCannotResume);
    exchange_->send(error_answer(
        request_.http.path, cannot_resume("the answer is another one here"), request_.request_id));
    return false;
  }
  replayed_ = streaming_ = true;
  exchange_->start_stream(head_->status, head_headers());
  services_.fleet.note_outcome(assignment_, Fleet::Outcome::kNeither);
  if (std::exchange(is_trial_, false)) services_.quarantine.end_trial(assignment_.incarnation);
  drop_warm_up(Fleet::Outcome::kNeither);
  in_flight_.reset();
  running_ = false;
  ++attempt_;
  failures_ = 0;
  tried_.clear();
  stalled_ns_ = services_.clock.now_ns();
  preferred_ = {.worker = assignment_.worker, .serial = assignment_.serial};
  attempt();
  return false;
}

}  // namespace pelton::gateway
