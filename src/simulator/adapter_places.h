// The LoRA adapters of one simulated replica: which are in memory, which is being read, who waits
// for one. The rules are those of server/adapter_registry, in virtual time and without names and
// files: one load at a time, so many a second beyond a first burst, in the order in which they were
// first asked for (all requests are one tenant's); what nobody uses makes room, the least recently
// used first; where all are in use for longer than the patience, the one longest in memory takes no
// new requests until the others have had their turn. Owned by a replica; one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "admission/load_rate.h"

namespace pelton::simulator {

// Of one replica or of several together.
struct AdapterCounts {
  int64_t hits = 0;    // requests that found theirs in memory
  int64_t misses = 0;  // that did not
  int64_t loads = 0;
  int64_t evictions = 0;
  int64_t refused = 0;    // too many waited already
  int64_t waited_ns = 0;  // of the misses that were answered, together
  int64_t waited_max_ns = 0;
  int64_t answered = 0;  // of the misses
  int resident_max = 0;

  AdapterCounts& operator+=(const AdapterCounts& other);
  double hits_share() const;  // of those that were not refused; 0 of none
};

class AdapterPlaces {
 public:
  struct Options {
    int resident_max = 0;  // 0: no adapters
    int64_t load_ns = 20'000'000;
    double loads_per_second = 16;  // beyond a first burst of resident_max; 0: no bound
    int waiting_max = 4096;
    int64_t patience_ns = 1'000'000'000;
  };

  explicit AdapterPlaces(const Options& options);

  enum class Answer { kInMemory, kWaits, kRefused };
  // Of a request for an adapter, by its identity. In memory: the use begins now. Waits: wake()
  // gives the request once its use has begun.
  Answer ask(int64_t now_ns, int64_t adapter, int64_t request);
  // A use has ended.
  void release(int64_t now_ns, int64_t adapter);

  // When a load ends, or may begin; none: nobody waits, or only for uses to end.
  std::optional<int64_t> wakes_at_ns() const { return wakes_at_ns_; }
  void wake(int64_t now_ns, std::vector<int64_t>& begun);

  // In memory or on their way there.
  std::vector<int64_t> residents() const;
  // What requests waited lately for those that were not there: an average.
  double wait_s() const { return wait_s_; }
  int waiting_count() const { return waiting_; }
  int uses() const;
  const AdapterCounts& counts() const { return counts_; }

 private:
  struct Resident {
    int uses = 0;
    uint64_t last_use = 0;  // the later, the higher
    uint64_t loaded_as = 0;
    bool leaving = false;  // nobody begins with it any more
  };
  struct Waiter {
    int64_t request = 0;
    int64_t since_ns = 0;
  };
  struct Load {
    int64_t adapter = 0;
    int64_t ends_ns = 0;
  };
  void go_on(int64_t now_ns);
  bool make_room();
  void ask_to_leave();
  void use(Resident& resident);
  void begin_waiters(int64_t now_ns, int64_t adapter, std::vector<int64_t>& begun);

  const Options options_;
  std::map<int64_t, Resident> residents_;
  std::map<int64_t, std::vector<Waiter>> waiters_;  // by adapter
  std::deque<int64_t> queue_;                       // adapters to be loaded
  std::optional<Load> loading_;
  std::optional<int64_t> wakes_at_ns_;
  std::optional<int64_t> blocked_since_ns_;  // the first of the queue finds no room
  admission::LoadRate load_rate_;
  uint64_t ticks_ = 0;
  double wait_s_ = 0;
  int waiting_ = 0;
  AdapterCounts counts_;
};

}  // namespace pelton::simulator
