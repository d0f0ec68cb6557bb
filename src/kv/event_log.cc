#include "kv/event_log.h"

#include <algorithm>

namespace pelton::kv {

void EventLog::add(Event event) {
  std::lock_guard lock(mutex_);
  if (!ring_.empty()) {
    event.number = next_;
    ring_[static_cast<size_t>(next_) % ring_.size()] = event;
  }
  ++next_;
}

EventLog::Reading EventLog::read(const Cursor& cursor) const {
  std::lock_guard lock(mutex_);
  const int64_t oldest = std::max<int64_t>(0, next_ - static_cast<int64_t>(ring_.size()));
  const int64_t wanted = std::clamp<int64_t>(cursor.from, 0, next_);
  const int64_t begin = std::max(wanted, oldest);
  const int64_t end = std::min(next_, begin + std::max(cursor.events_max, 0));
  Reading reading;
  reading.missed = begin - wanted;
  reading.next = end;
  for (int64_t number = begin; number < end; ++number) {
    reading.events.push_back(ring_[static_cast<size_t>(number) % ring_.size()]);
  }
  return reading;
}

int64_t EventLog::event_count() const {
  std::lock_guard lock(mutex_);
  return next_;
}

int64_t EventLog::dropped_count() const {
  std::lock_guard lock(mutex_);
  return std::max<int64_t>(0, next_ - static_cast<int64_t>(ring_.size()));
}

}  // namespace pelton::kv
