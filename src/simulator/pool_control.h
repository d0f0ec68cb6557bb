// The autoscaler's hands in a simulated fleet: it counts as a gateway does, asks the shipped
// autoscaler (autoscaler/pool_scaler.h) how many replicas there should be, and keeps the phases of
// those that start and stop. Owned by the simulation; one thread.
//
// While it scales, requests that find no free slot wait in the gateway and go to the first replica
// that has one: a request given to a busy replica could not profit of one that becomes ready.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "autoscaler/pool_scaler.h"
#include "simulator/dispatcher.h"

namespace pelton::simulator {

// As asked of a simulation.
struct Autoscaling {
  autoscaler::PoolPolicy policy;
  double start_s = 30;      // from its order until a replica is ready
  double start_spread = 0;  // each start takes (1 - spread) to (1 + spread) times that
  int replicas = 1;         // ready at the beginning
  double tick_s = 2;
};

class PoolControl {
 public:
  struct Options {
    Autoscaling asked;
    int slots = 1;                  // of a replica
    double service_s_assumed = 10;  // of a request
    uint64_t seed = 0;
  };
  explicit PoolControl(const Options& options);

  // What became of requests, in the order of time.
  void note_request(int64_t now_ns);   // it came, and waits in the gateway
  void note_sent(int64_t now_ns);      // to a replica
  void note_returned(int64_t now_ns);  // its replica died, and it waits again
  void note_finished(int64_t now_ns, bool was_sent);

  struct Start {
    int replica = 0;
    int64_t ready_ns = 0;
  };
  // What a decision at `now_ns` sets off: starts, whose replicas are to be made ready in time. A
  // drained replica takes no requests from now on.
  std::vector<Start> decide(int64_t now_ns, std::span<const ReplicaState> replicas);
  // A start that was not cancelled meanwhile.
  bool become_ready(int replica, int64_t now_ns);
  // A draining replica has nothing left to do, or one has died.
  void note_gone(int replica, int64_t now_ns);

  bool takes_requests(int replica) const { return phase(replica) == Phase::kReady; }
  bool drains(int replica) const { return phase(replica) == Phase::kDraining; }
  int held() const { return held_; }
  // None runs and none comes: whatever waits is in nobody's hands until the next decision.
  bool empty() const;

  int replicas_max() const { return options_.asked.policy.replicas_max; }
  int64_t tick_ns() const { return static_cast<int64_t>(options_.asked.tick_s * 1e9); }
  // From each order until its replica was gone, up to `now_ns`.
  double replica_seconds(int64_t now_ns) const;
  int most() const { return most_; }
  int started() const { return started_; }
  int direction_changes() const { return direction_changes_; }

 private:
  enum class Phase { kGone, kOrdered, kReady, kDraining };
  struct Replica {
    Phase phase = Phase::kGone;
    int64_t ordered_ns = 0;
    int64_t ready_ns = 0;
    int64_t starts = 0;  // its identity, with its place
  };

  Phase phase(int replica) const { return replicas_[static_cast<size_t>(replica)].phase; }
  void pass(int64_t now_ns);
  autoscaler::PoolFacts facts(int64_t now_ns, std::span<const ReplicaState> replicas);
  std::string id_of(size_t replica) const;
  size_t place_of(const std::string& id) const;
  int64_t drawn_start_ns();

  const Options options_;
  autoscaler::PoolScaler scaler_;
  std::vector<Replica> replicas_;
  autoscaler::GatewayReport report_;
  int64_t passed_ns_ = 0;
  int held_ = 0;
  int in_service_ = 0;
  double past_seconds_ = 0;  // of replicas that are gone
  uint64_t draws_ = 0;
  int most_ = 0;
  int started_ = 0;
  int direction_ = 0;
  int direction_changes_ = 0;
};

}  // namespace pelton::simulator
