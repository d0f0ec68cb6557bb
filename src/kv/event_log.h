// What became and what ceased to be findable in the prefix cache, for a router to know it too: a
// bounded stream of numbered events that drops the oldest. A reader that fell behind learns how
// many it missed and should ask for the whole. Written by the engine thread, read by any.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "kv/block_hash.h"
#include "kv/group.h"

namespace pelton::kv {

struct Event {
  enum class Kind { kStored, kRemoved };

  int64_t number = 0;  // consecutive, from 0
  Kind kind = Kind::kStored;
  int group = 0;
  Tier tier = kDevice;
  BlockHash block;
};

class EventLog {
 public:
  explicit EventLog(int events_max) : ring_(static_cast<size_t>(events_max)) {}

  // Its number is given here.
  void add(Event event);

  struct Reading {
    std::vector<Event> events;  // in order, the first being `from` unless that one is forgotten
    int64_t missed = 0;         // events from `from` on that are forgotten
    int64_t next = 0;           // where to go on reading
  };
  struct Cursor {
    int64_t from = 0;
    int events_max = 1024;
  };
  Reading read(const Cursor& cursor) const;

  int64_t event_count() const;    // so far
  int64_t dropped_count() const;  // forgotten so far, read or not

 private:
  mutable std::mutex mutex_;
  std::vector<Event> ring_;  // number n stands at n % size
  int64_t next_ = 0;
};

}  // namespace pelton::kv
