#include "engine/inbox.h"

#include <utility>

#include <fmt/format.h>

namespace pelton::engine {

Result<void> Inbox::submit(Arrival arrival) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return Error{ErrorCode::kUnavailable, "the engine is shutting down"};
    const int answers = static_cast<int>(arrival.streams.size());
    if (queued_ > 0 && queued_ + answers > options_.requests_max) {
      return Error{ErrorCode::kOverloaded, fmt::format("{} requests are waiting already; {} may",
                                                       queued_, options_.requests_max)};
    }
    const int64_t tokens = static_cast<int64_t>(arrival.request.prompt.size());
    if (queued_ > 0 && queued_tokens_ + tokens > options_.tokens_max) {
      return Error{ErrorCode::kOverloaded,
                   fmt::format("{} prompt tokens are waiting already; {} more are over the {} that "
                               "may wait",
                               queued_tokens_, tokens, options_.tokens_max)};
    }
    arrivals_.push_back(std::move(arrival));
    queued_ += answers;
    queued_tokens_ += tokens;
    live_ += answers;
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

void Inbox::note_left_queue(int prompt_tokens) {
  std::lock_guard lock(mutex_);
  --queued_;
  queued_tokens_ -= prompt_tokens;
}

void Inbox::note_ended() {
  std::lock_guard lock(mutex_);
  if (--live_ == 0) all_ended_.notify_all();
}

Inbox::Queued Inbox::queued() const {
  std::lock_guard lock(mutex_);
  return {.requests = queued_, .tokens = queued_tokens_};
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
