#include "engine/inbox.h"

#include <utility>

namespace pelton::engine {
namespace {

Error shutting_down() {
  return {ErrorCode::kUnavailable, "the engine is shutting down", ""};
}

}  // namespace

Result<void> Inbox::submit(Arrival arrival) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return shutting_down();
    const int answers = static_cast<int>(arrival.streams.size());
    // Before it counts: should there be no memory for it, it has never been here.
    if (arrivals_.size() == arrivals_.capacity()) arrivals_.reserve(2 * arrivals_.size() + 8);
    TRY(queue_.enter(arrival.request, answers, arrival.queued_ns));
    arrivals_.push_back(std::move(arrival));
    live_ += answers;
  }
  arrived_.notify_one();
  return {};
}

Result<void> Inbox::room_for(const AdmissionQueue::Candidate& candidate, int64_t now_ns) const {
  std::lock_guard lock(mutex_);
  if (closed_) return shutting_down();
  return queue_.room_for(candidate, now_ns);
}

int64_t Inbox::retry_after_ns(int64_t now_ns) const {
  std::lock_guard lock(mutex_);
  return queue_.retry_after_ns(now_ns);
}

Inbox::Delivery Inbox::take() {
  std::lock_guard lock(mutex_);
  return deliver();
}

Inbox::Delivery Inbox::wait() {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [&] { return stopping_ || is_woken_ || !arrivals_.empty(); });
  return deliver();
}

Inbox::Delivery Inbox::wait_for(std::chrono::nanoseconds limit) {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, limit, [&] { return stopping_ || is_woken_ || !arrivals_.empty(); });
  return deliver();
}

void Inbox::wake() {
  {
    std::lock_guard lock(mutex_);
    is_woken_ = true;
  }
  arrived_.notify_one();
}

Inbox::Delivery Inbox::deliver() {
  is_woken_ = false;
  return {.arrivals = std::exchange(arrivals_, {}), .stop = stopping_};
}

void Inbox::note_ended() {
  std::lock_guard lock(mutex_);
  if (--live_ == 0) all_ended_.notify_all();
}

Inbox::Queued Inbox::queued(int64_t now_ns) const {
  std::lock_guard lock(mutex_);
  return {
      .requests = queue_.requests(), .tokens = queue_.tokens(), .wait_ns = queue_.wait_ns(now_ns)};
}

void Inbox::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
}

void Inbox::stop() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    stopping_ = true;
  }
  arrived_.notify_one();
}

bool Inbox::wait_until_all_ended(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return all_ended_.wait_for(lock, limit, [&] { return live_ == 0; });
}

}  // namespace pelton::engine
