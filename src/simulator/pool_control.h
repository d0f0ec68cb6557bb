// The autoscaler's hands in a simulated fleet: it counts as a gateway does, asks the shipped
// autoscaler (autoscaler/pool_scaler.h) how many replicas there should be, and keeps the phases of
// those that start and stop. Owned by the simulation; one thread.
//
// Of a pool whose requests are split it scales both roles, by the one decision: the first places
// are those of replicas that compute prompts, the others of those that go on with answers.
//
// While it scales, requests that find no free slot wait in the gateway and go to the first replica
// that has one: a request given to a busy replica could not profit of one that becomes ready.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autoscaler/pool_scaler.h"
#include "simulator/dispatcher.h"
#include "simulator/fault.h"
#include "simulator/scaling_history.h"
#include "simulator/start_fetches.h"

namespace pelton::simulator {

// What a start goes through, one after the other. Each takes `seconds`, or is drawn from the
// log-normal distribution with that median and that 90th percentile.
struct StartPhase {
  std::string name;
  double seconds = 0;
  double p90_s = 0;  // not above `seconds`: it always takes as long
  // Instead of `seconds`: so many bytes, which a start fetches so fast, and all starts together
  // (0: no bound). One phase of a start at most.
  double bytes = 0;
  double bytes_per_s = 0;
  double shared_bytes_per_s = 0;
};

// As asked of a simulation.
struct Autoscaling {
  autoscaler::PoolPolicy policy;
  double start_s = 30;             // from its order until a replica is ready
  std::vector<StartPhase> phases;  // of that; none: one of start_s
  int replicas = 1;                // ready at the beginning
  int prefill_replicas = 0;        // likewise, of those that compute prompts
  double tick_s = 2;
  // Of a request, until some have been seen; 0: what the model of a step's time says of this load.
  double service_s_assumed = 0;
  // Of requests that no replica has a free slot for.
  int held_max = INT32_MAX;
  double hold_s_max = 1e9;
  // Facts are so old when the autoscaler hears them, and this share of them it does not hear: it
  // decides by those before them (at most ten seconds old, or nothing goes down).
  double facts_delay_s = 0;
  double facts_lost = 0;
  int64_t begin_unix_s = 0;  // the time of day at the beginning, for schedules
  // Gets each decision with its facts as a line, as `pelton autoscale --record-facts` writes them;
  // `pool` is the name in them.
  std::function<void(std::string_view line)> record;
  std::string pool = "simulated";

  // Of both roles, at most; those that compute prompts come first.
  int prefill_max() const { return policy.prefill ? policy.prefill->replicas_max : 0; }
  int replicas_max() const { return prefill_max() + policy.replicas_max; }
  // Of a start that no other one slows down, by its phases' medians.
  double start_seconds() const;
  // Errors: kInvalidArgument.
  Result<void> check() const;
};

class PoolControl {
 public:
  struct Options {
    Autoscaling asked;
    int slots = 1;                   // of a replica
    double service_s_assumed = 10;   // of a request
    autoscaler::ReplicaModel model;  // what a replica says that its steps cost
    bool facts_are_cut = false;      // sooner or later
    uint64_t seed = 0;
  };
  explicit PoolControl(const Options& options);

  // What became of requests, in the order of time.
  void note_request(int64_t now_ns);   // it came, and waits in the gateway
  void note_sent(int64_t now_ns);      // to a replica
  void note_returned(int64_t now_ns);  // its replica died, and it waits again
  void note_finished(int64_t now_ns, bool was_sent);
  // Of one that a single replica has answered, before it is finished.
  void note_served(const autoscaler::ServedSums::Request& request, int64_t count = 1) {
    report_.served.add(request, count);
  }
  // All of it at once, by whoever counts himself: since the beginning, and now.
  struct Amounts {
    int64_t requests = 0;
    int64_t finished = 0;
    double held = 0;
    double in_service = 0;
  };
  void note_amounts(int64_t now_ns, const Amounts& amounts);

  struct Start {
    int replica = 0;
    int64_t ready_ns = 0;  // or when it fails
  };
  // What a decision at `now_ns` sets off: starts, whose replicas are to be made ready in time. A
  // drained replica takes no requests from now on.
  std::vector<Start> decide(int64_t now_ns, std::span<const ReplicaState> replicas);
  // A start that was not cancelled meanwhile, and did not fail.
  bool become_ready(int replica, int64_t now_ns);
  // Facts that are on their way for a part of the time from one decision to the next are sent so
  // long before each of them, by whoever calls this then; 0: they are sent with the decisions.
  int64_t facts_ahead_ns() const { return facts_delay_ns() % tick_ns(); }
  int64_t facts_delay_ns() const {
    return static_cast<int64_t>(options_.asked.facts_delay_s * 1e9);
  }
  void send_facts(int64_t now_ns, std::span<const ReplicaState> replicas);
  // What befalls launcher and starts, and a gateway that is gone.
  void begin_fault(const Fault& fault);
  void end_fault(const Fault& fault);
  // A draining replica has nothing left to do: it goes, or stands by where some are wanting.
  void note_gone(int replica, int64_t now_ns);
  // It has died, whatever it did; one that was starting is a start that failed.
  void note_died(int replica, int64_t now_ns);

  bool takes_requests(int replica) const { return phase(replica) == Phase::kReady; }
  bool drains(int replica) const { return phase(replica) == Phase::kDraining; }
  int held() const { return held_; }
  int in_service() const { return in_service_; }
  // None serves and none comes to: whatever waits is in nobody's hands until the next decision.
  bool empty() const;
  // Ready now: those that go on with answers, or do all of them, and those that compute prompts.
  int ready() const;
  int prefill_ready() const;

  int replicas_max() const { return options_.asked.replicas_max(); }
  int64_t tick_ns() const { return static_cast<int64_t>(options_.asked.tick_s * 1e9); }
  // From each order until its replica was gone, up to `now_ns`.
  double replica_seconds(int64_t now_ns) const;
  int most() const { return most_; }
  int started() const { return started_; }
  int direction_changes() const { return direction_changes_; }
  int failed_starts() const { return failed_starts_; }
  int64_t facts_unheard() const { return facts_unheard_; }
  int64_t decisions_held() const { return decisions_held_; }
  double held_seconds() const { return report_.held_s; }
  const ScalingHistory& history() const { return history_; }

 private:
  enum class Phase { kGone, kOrdered, kReady, kStandby, kDraining };
  struct Replica {
    Phase phase = Phase::kGone;
    int64_t ordered_ns = 0;
    int64_t ready_ns = 0;
    int64_t starts = 0;
    std::string id;                    // its place and which start of it
    std::vector<int64_t> progress_ns;  // the ends of its phases, but the last one's
    // Of a phase that fetches bytes: its place among the phases, and what the phases behind it
    // take.
    std::optional<size_t> fetches;
    std::vector<int64_t> behind_ns = {};
    bool fails = false;      // when it should be ready
    bool stands_by = false;  // of kOrdered: it will be kStandby
  };

  // Of replicas of one role, which have places of their own.
  struct Side {
    Side(const autoscaler::PoolPolicy& policy, std::string pool, size_t begin, size_t end)
        : policy(policy), scaler(policy), pool(std::move(pool)), begin(begin), end(end) {}

    autoscaler::PoolPolicy policy;
    autoscaler::PoolScaler scaler;
    std::string pool;  // as recorded facts name it
    size_t begin;
    size_t end;
    autoscaler::PoolDecision decision;  // the last
    // The launcher's: as launch/fleet_scaler counts failures and waits longer each time.
    int failures = 0;
    int64_t start_again_ns = 0;
    int direction = 0;  // of its last change
  };

  Phase phase(int replica) const { return replicas_[static_cast<size_t>(replica)].phase; }
  void pass(int64_t now_ns);
  Side& side_of(const Replica& replica);
  autoscaler::ReplicaFacts facts_of(size_t place, int64_t now_ns, const ReplicaState& state) const;
  // What the autoscaler has heard when it decides.
  struct Heard {
    autoscaler::GatewayReport report;
    std::vector<ReplicaState> replicas;
  };
  bool loses_facts() const {
    return options_.asked.facts_delay_s > 0 || options_.asked.facts_lost > 0 ||
           options_.facts_are_cut;
  }
  void renew_report(int64_t now_ns);
  void hear(int64_t now_ns);
  autoscaler::PoolFacts facts(const Side& side, int64_t now_ns,
                              std::span<const ReplicaState> replicas);
  void decide(Side& side, int64_t now_ns, std::span<const ReplicaState> replicas,
              std::vector<Start>& starts);
  int ready_between(size_t begin, size_t end) const;
  std::string id_of(const Replica& replica) const;
  size_t place_of(const std::string& id) const;
  int64_t order(Replica& replica, int64_t now_ns);
  void follow_fetches(int64_t now_ns, std::vector<Start>& starts);
  void carry_out(const autoscaler::PoolDecision& decision, int64_t now_ns);
  void end(Replica& replica, int64_t now_ns);
  int standby() const;
  void note_failed_start(Side& side, int64_t now_ns);
  void note_direction(Side& side, int started);
  void note_sample(int64_t now_ns);
  void note_step(int64_t now_ns, const Side& side, int started);

  const Options options_;
  std::vector<Side> sides_;  // that decides first
  std::vector<Replica> replicas_;
  autoscaler::GatewayReport report_;
  int64_t passed_ns_ = 0;
  int held_ = 0;
  int in_service_ = 0;
  struct Past {
    int64_t from_ns = 0;
    int64_t to_ns = 0;
  };
  std::vector<Past> past_;  // of replicas that are gone
  uint64_t draws_ = 0;
  std::optional<StartFetches> fetches_;
  int most_ = 0;
  int started_ = 0;
  int direction_changes_ = 0;
  int failed_starts_ = 0;
  int stock_outs_ = 0;       // under way
  double start_factor_ = 1;  // of starts ordered now
  int starts_to_fail_ = 0;
  int cuts_ = 0;            // of facts, under way
  int downs_ = 0;           // of the autoscaler, under way
  std::deque<Heard> sent_;  // facts on their way, in the order of their sending
  std::optional<Heard> heard_;
  uint64_t facts_drawn_ = 0;
  int64_t facts_unheard_ = 0;
  int64_t decisions_held_ = 0;
  ScalingHistory history_;
};

}  // namespace pelton::simulator
