#include "chain_http/run_driver.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace pelton::chain_http {
namespace {

constexpr size_t kAnswersBytesMax = size_t{64} << 20;

}  // namespace

RunDriver::RunDriver(Parts parts, Json input, const chain::ChainRun::Options& options)
    : parts_(std::move(parts)),
      run_(*parts_.chain, std::move(input), options, parts_.clock.now_ns()) {}

void RunDriver::turn() {
  if (ended_) return;
  run_.hold_back(parts_.sink->backlog_bytes() > kBacklogBytesMax);
  const chain::ChainRun::Work work = run_.advance(parts_.clock.now_ns());
  for (const uint64_t call : work.ended) end_call(call);
  if (!run_.over()) {
    for (const chain::StepCall& call : work.calls) start_call(call);
  }
  if (!work.events.empty()) parts_.sink->on_events(work);
  if (!run_.over()) return set_timer();
  ended_ = true;
  calls_.clear();
  parts_.sink->on_end(run_);
}

// What has come up since is done in one turn.
void RunDriver::turn_soon() {
  if (ended_ || std::exchange(turn_posted_, true)) return;
  parts_.loop->post([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->turn_posted_ = false;
    self->turn();
  });
}

void RunDriver::start_call(const chain::StepCall& call) {
  const std::weak_ptr<RunDriver> weak = weak_from_this();
  StepCallEvents events;
  events.on_text = [weak, id = call.id](std::string text) {
    const auto self = weak.lock();
    if (self == nullptr || self->ended_) return;
    self->run_.on_text(id, std::move(text));
    self->turn_soon();
  };
  events.on_answer = [weak, id = call.id](chain::CallAnswer answer) {
    const auto self = weak.lock();
    if (self == nullptr || self->ended_) return;
    self->end_call(id);
    self->run_.on_answer(id, answer, self->parts_.clock.now_ns());
    self->turn_soon();
  };
  events.keep_bytes = [weak, id = call.id](size_t bytes) {
    const auto self = weak.lock();
    if (self == nullptr || self->answers_bytes_ + bytes > kAnswersBytesMax) return false;
    self->calls_[id].bytes += bytes;
    self->answers_bytes_ += bytes;
    return true;
  };
  events.backlog_bytes = [weak] {
    const auto self = weak.lock();
    return self == nullptr ? 0 : self->parts_.sink->backlog_bytes();
  };
  calls_[call.id].running = parts_.carry_out(call, std::move(events));
}

void RunDriver::end_call(uint64_t id) {
  const auto found = calls_.find(id);
  if (found == calls_.end()) return;
  answers_bytes_ -= found->second.bytes;
  calls_.erase(found);
}

void RunDriver::set_timer() {
  const std::optional<int64_t> wake_ns = run_.wake_ns();
  const int64_t now_ns = parts_.clock.now_ns();
  if (!wake_ns) return;
  if (*wake_ns <= now_ns) return turn_soon();
  if (timer_ns_ && *timer_ns_ <= *wake_ns) return;
  timer_ns_ = *wake_ns;
  // Whole milliseconds, not before it is time.
  const auto delay = std::chrono::milliseconds((*wake_ns - now_ns) / 1'000'000 + 1);
  parts_.loop->post_after(delay, [weak = weak_from_this(), at = *wake_ns] {
    const auto self = weak.lock();
    if (self == nullptr || self->timer_ns_ != at) return;
    self->timer_ns_.reset();
    self->turn();
  });
}

void RunDriver::on_drained() {
  if (ended_) return;
  for (const auto& [id, call] : calls_) call.running->on_drained();
  turn_soon();
}

void RunDriver::cancel() {
  if (ended_) return;
  run_.cancel();
  turn();
}

}  // namespace pelton::chain_http
