// Starts and stops replicas: the interface behind which processes, batch jobs or pods are. An order
// is known by (pool, ordinal, token): asking twice for the same one starts one replica, and an
// order with a token older than the newest seen at its place is refused, so that who has lost the
// lead changes nothing any more. list() is the truth; what its caller remembers is not.
//
// A token is the epoch of whoever leads and a number within it: (epoch << 20) + number. One of an
// older epoch than any seen is refused at every place.
//
// One owner, one thread; no call waits for a replica.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace pelton::launch {

struct ReplicaOrder {
  std::string pool;
  int ordinal = 0;     // its place in the pool, from 0
  uint64_t token = 0;  // rises from order to order

  friend auto operator<=>(const ReplicaOrder&, const ReplicaOrder&) = default;
};

constexpr int kTokenNumberBits = 20;
constexpr uint64_t epoch_of(uint64_t token) {
  return token >> kTokenNumberBits;
}

struct LaunchedReplica {
  enum class State { kRunning, kStopping, kEnded };

  ReplicaOrder order;
  State state = State::kRunning;
  std::string host;  // of its fleet port; valid from the moment that `port` is
  int port = 0;      // 0: it does not listen yet
  // By the launcher's clock; of one that an earlier life has started, as far as it is known.
  int64_t ordered_ns = 0;
  int64_t progress_ns = 0;  // when its start was last seen to advance
  // Of kEnded: how, in words; and the last that its log says of why, which is its operators' alone,
  // as it may name folders and hosts; empty: nothing, or it cannot be read.
  std::string ended;
  std::string said = {};
  bool is_reclaimed = false;  // it will be taken back: nothing new is to be sent to it
  bool is_hopeless = false;   // it would end likewise again: a wrong flag, no such model, no memory
  // What it was started with that one started now would not be: "other --max-num-seqs". Empty:
  // nothing, or it cannot be seen.
  std::string outdated;
};

class Launcher {
 public:
  virtual ~Launcher() = default;

  // Errors: kInvalidArgument (no such pool, an older token, another replica runs at that place),
  // kIo; kUnavailable: there is none to be had now, which is no failure of a start.
  virtual Result<void> start(const ReplicaOrder& order) = 0;
  // Asks it to stop, and ends it after `grace`. One that is not there has stopped.
  virtual void stop(const ReplicaOrder& order, std::chrono::milliseconds grace) = 0;
  // All that run, also those of an earlier life, and of each place the last that has ended.
  virtual std::vector<LaunchedReplica> list() = 0;
  // No order that was ever taken has a newer one, as far as is known.
  virtual uint64_t newest_token() const = 0;
  // False: it has not been seen yet what runs for this pool, and list() says nothing of it. Nothing
  // is to be decided of it so long.
  virtual bool is_known(const std::string& /*pool*/) const { return true; }
};

}  // namespace pelton::launch
