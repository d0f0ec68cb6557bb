// The part of gateway::Relay that looks after what runs. A worker says something of each answer at
// least every cluster::WorkerRecord::beat_ms, so that silence means that the connection stands
// still: its watch, which is another connection, may go on all the while. Measured by the fleet's
// clock, which leaves out pauses of this process; a worker that is silent altogether is found down
// before that.
#include <algorithm>
#include <utility>

#include "gateway/relay.h"

namespace pelton::gateway {
namespace {

constexpr std::chrono::milliseconds kLookTime{500};
constexpr int64_t kSilenceMinNs = 4'000'000'000;
constexpr int64_t kBeats = 8;  // that are missed

// A worker says nothing before the whole request has come, which takes no longer.
constexpr int64_t kSentByteNs = 1'000;

int64_t silence_max_ns(int beat_ms) {
  return std::max(kSilenceMinNs, kBeats * beat_ms * 1'000'000);
}

}  // namespace

int64_t Relay::silent_from_ns() const {
  return services_.fleet.awake_ns() + std::ssize(request_.http.body) * kSentByteNs;
}

void Relay::watch_attempt() {
  heard_ = false;
  heard_ns_ = silent_from_ns();
  exchange_->post_after(kLookTime, [weak = weak_from_this(), number = attempt_] {
    if (const auto self = weak.lock()) self->look_at_attempt(number);
  });
}

void Relay::look_at_attempt(int number) {
  if (over_ || !running_ || number != attempt_) return;
  if (services_.ends != nullptr && *services_.ends) return interrupt();
  const int64_t now_ns = services_.fleet.awake_ns();
  // Who is not read from is not silent.
  if (std::exchange(heard_, false) || paused_) heard_ns_ = now_ns;
  const int beat_ms = assignment_.beat_ms;
  if (beat_ms > 0 && now_ns - heard_ns_ > silence_max_ns(beat_ms)) {
    return end_attempt(Failure::kSilent, "its connection stands still");
  }
  if (warm_up_) {
    if (std::exchange(warm_up_->heard, false)) warm_up_->heard_ns = now_ns;
    const int its_beat_ms = warm_up_->target.beat_ms;
    if (its_beat_ms > 0 && now_ns - warm_up_->heard_ns > silence_max_ns(its_beat_ms)) {
      fail_warm_up(warm_up_->number, Fleet::Outcome::kFailed);
    }
  }
  exchange_->post_after(kLookTime, [weak = weak_from_this(), number] {
    if (const auto self = weak.lock()) self->look_at_attempt(number);
  });
}

// The gateway has waited for it as long as it may.
void Relay::interrupt() {
  if (over_) return;
  if (running_) {
    services_.client.cancel(call_);
    drop_warm_up(Fleet::Outcome::kNeither);
    end_split(SplitCounters::Outcome::kEnded);
    services_.fleet.note_outcome(assignment_, Fleet::Outcome::kNeither);
    if (std::exchange(is_trial_, false)) services_.quarantine.end_trial(assignment_.incarnation);
    running_ = false;
  }
  leave_hold();
  give_up(503, "gateway_stopped", "this gateway is being stopped; send the request again");
}

}  // namespace pelton::gateway
