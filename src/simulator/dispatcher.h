// Who of several replicas gets a request: the plain ones. The gateway's router takes this place
// once a fleet is simulated with it. Owned by the simulation; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"

namespace pelton::simulator {

struct ReplicaState {
  bool is_up = true;
  int running = 0;
  int queued = 0;
  int64_t queued_tokens = 0;
};

class Dispatcher {
 public:
  enum class Policy {
    kRoundRobin,
    kLeastBusy,  // the fewest requests running and waiting
    kSession,    // a conversation stays with one replica while that is up
  };

  explicit Dispatcher(Policy policy) : policy_(policy) {}

  // The replica's index; -1: none is up.
  int choose(std::span<const ReplicaState> replicas, int64_t conversation);

 private:
  const Policy policy_;
  size_t next_ = 0;
};

// "round-robin", "least-busy", "session".
Result<Dispatcher::Policy> parse_dispatch(std::string_view name);

}  // namespace pelton::simulator
