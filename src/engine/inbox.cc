#include "engine/inbox.h"

#include <utility>

#include <fmt/format.h>

namespace pelton::engine {

Result<void> Inbox::submit(Arrival arrival) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return Error{ErrorCode::kUnavailable, "the engine is shutting down"};
    if (queued_ >= queued_max_) {
      return Error{ErrorCode::kOverloaded,
                   fmt::format("{} requests are waiting already", queued_max_)};
    }
    arrivals_.push_back(std::move(arrival));
    ++queued_;
    ++live_;
  }
  arrived_.notify_one();
  return {};
}

Inbox::Delivery Inbox::take() {
  std::lock_guard lock(mutex_);
  return deliver();
}

Inbox::Delivery Inbox::wait() {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [&] { return stopping_ || !arrivals_.empty(); });
  return deliver();
}

Inbox::Delivery Inbox::deliver() {
  return {.arrivals = std::exchange(arrivals_, {}), .stop = stopping_};
}

void Inbox::note_admitted() {
  std::lock_guard lock(mutex_);
  --queued_;
}

void Inbox::note_ended(bool was_admitted) {
  std::lock_guard lock(mutex_);
  if (!was_admitted) --queued_;
  if (--live_ == 0) all_ended_.notify_all();
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

void Inbox::wait_until_all_ended(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  all_ended_.wait_for(lock, limit, [&] { return live_ == 0; });
}

}  // namespace pelton::engine
