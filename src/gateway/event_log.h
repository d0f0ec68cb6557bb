// What has changed at a gateway lately, as events with numbers, for whoever follows them: states of
// workers, roll-outs, replicas and alerts as they become others, and what is said of a change.
// Bounded: the oldest go. Numbers begin at the millisecond in which the process did, so that after
// a restart they go on behind those that somebody may know. Any thread; one lock.
//
// Example: a worker that was ready is so no more:
//   {"n":1764469000123,"at":1764469002500,"kind":"worker","name":"gpu-7","was":"ready","is":"down"}
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace pelton::gateway {

class EventLog {
 public:
  static constexpr size_t kEventsMax = 1024;
  static constexpr size_t kNameMax = 256;  // bytes of each text; more is cut

  explicit EventLog(int64_t started_unix_ms)
      : first_(started_unix_ms), newest_(started_unix_ms - 1) {}

  // All of that kind, as they are now, by name; what is not among them any more is "".
  void note_states(std::string_view kind, std::map<std::string, std::string> states,
                   int64_t unix_ms);
  // Something that has happened.
  struct Happened {
    std::string_view kind;
    std::string_view name = {};
    std::string_view who = {};
    std::vector<std::string> changes = {};
  };
  void note(const Happened& happened, int64_t unix_ms);

  struct Event {
    int64_t number = 0;
    std::string text;  // a JSON object; empty: nothing is newer
  };
  // The one behind that number. Where some behind it are not kept any more, or it is not of this
  // process's, one of the kind "missed" says how many are not (-1: nobody knows) and has the number
  // before the first one that is kept: read anew what it is about. 0: the first one that is kept.
  Event after(int64_t number) const;

 private:
  void add(std::string text);  // with the lock held

  const int64_t first_;
  mutable std::mutex mutex_;
  // All guarded by mutex_.
  int64_t newest_;
  std::deque<std::string> events_;  // the last is newest_'s
  std::map<std::string, std::map<std::string, std::string>, std::less<>> states_;  // by kind
};

}  // namespace pelton::gateway
