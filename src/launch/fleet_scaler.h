// Carries out what the autoscaler decides: gathers facts from gateways and the launcher, asks
// autoscaler::PoolScaler how many replicas each pool should have, and starts and stops them. One
// owner, one thread, but for states().
//
// A replica's way: ordered, starting (its process runs, gateways do not call it ready yet), ready,
// draining (gateways send it nothing new), stopping (it has been asked to end), gone. One that is
// to stand by is kept from requests once it is ready, until it is woken. One that
// shows no progress while it starts is ended; a start that fails is tried again after 1 s, 2 s, ...
// 60 s, and after three failures, or one that would repeat itself, the gateways refuse what they
// hold. Where there is none to be had (no stock, a quota) it is asked for again, and requests wait.
//
// One that was found and runs with other arguments than a new one would is kept, and said to be so;
// where the pool rolls another one is started beside it, and takes its place once it is ready.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "autoscaler/pool_announcement.h"
#include "autoscaler/pool_scaler.h"
#include "base/clock.h"
#include "base/log.h"
#include "launch/facts_recorder.h"
#include "launch/gpu_budget.h"
#include "launch/launcher.h"
#include "launch/start_seconds.h"

namespace pelton::launch {

// The gateways, as they are needed here: one in this process, or several over their admin
// listeners.
class ScaledFleet {
 public:
  virtual ~ScaledFleet() = default;

  struct Address {
    std::string pool;
    std::string host;
    int port = 0;

    friend auto operator<=>(const Address&, const Address&) = default;
  };
  struct Worker {
    std::string host;
    int port = 0;
    bool is_ready = false;  // takes requests, or would if it were not drained
    bool is_silent = false;
    // Its pool's models, none of which it has, and its own; empty: it has one of them.
    std::string lacks = {};
    int slots = 1;
    int open = 0;  // of ours, sent and not over
    int running = 0;
    int waiting = 0;
    double kv_used = 0;
    autoscaler::ReplicaModel model;  // its costs are those of its steps lately
  };

  virtual std::vector<autoscaler::GatewayReport> reports(const std::string& pool) = 0;
  // Gateways that have not reported for ten seconds.
  struct SilentGateway {
    std::string url;
    std::string why;  // "it answers 400: ..."; empty: nothing is known

    bool operator==(const SilentGateway&) const = default;
  };
  virtual std::vector<SilentGateway> silent_gateways() { return {}; }
  virtual std::vector<Worker> workers(const std::string& pool) = 0;
  // These and no others of those that were launched; but for `unknown` pools, of which it is not
  // known yet: whoever serves there goes on.
  virtual void set_launched(const std::vector<Address>& addresses,
                            const std::vector<std::string>& unknown) = 0;
  virtual void set_draining(const Address& address, bool draining) = 0;
  // It drains, has nothing to do and waits to be woken: its KV cache goes, until it drains no more.
  virtual void release_memory(const Address& address) = 0;
  // From now on requests are held in the name of this retirement; 0: no longer.
  virtual void retire(const std::string& pool, uint64_t retirement) = 0;
  virtual void announce(const std::string& pool,
                        const autoscaler::PoolAnnouncement& announcement) = 0;
};

struct ScaledPool {
  std::string name;
  autoscaler::PoolPolicy policy;
  // Of replicas that compute prompts for another pool's, which has PoolPolicy::prefill: that one,
  // which is the gateways' and stands before this one. Empty: they are of no other.
  std::string computes_for = {};
  double start_s = 30;           // of a replica, until one has been seen
  double progress_s = 120;       // a start that does not advance for so long is ended
  double stop_grace_s = 30;      // for what a draining replica still does
  bool is_advised_only = false;  // decides, and does nothing
  // Replicas that were started with other arguments are replaced, one after the other.
  bool rolls = false;
  int priority = 0;  // of several that share GPUs who has more takes first
};

class FleetScaler {
 public:
  // All outlive it. `recorder`: null: facts are not kept. `epoch`: of whoever leads, for the tokens
  // of its orders.
  FleetScaler(std::vector<ScaledPool> pools, Launcher& launcher, ScaledFleet& fleet,
              const base::Clock& clock, base::Log& log, FactsRecorder* recorder = nullptr,
              uint64_t epoch = 0);

  // Of all pools together, before the first turn; by their priority, then in their order.
  void share_gpus(int gpus_max) { gpus_max_ = gpus_max; }

  // Looks and acts; `asked`: something has happened that is not to wait for the next decision, as
  // a first request at an empty pool. Gives back when it wants to be called next.
  std::chrono::milliseconds turn(bool asked);

  // What whoever takes over needs in order to decide as this one would; and the reverse, before the
  // first turn. Times are the clock's. Errors: kInvalidArgument: it is no such memory; all is as it
  // was.
  struct Memory {
    std::string pool;
    std::string text;
  };
  std::vector<Memory> memories() const;
  Result<void> remember(const Memory& memory);

  // Any thread.
  struct PoolState {
    std::string pool;
    // As gateways and metrics call it: of replicas that compute prompts for another pool's, that
    // one. `role`: "prefill", "decode"; empty: each does the whole of a request.
    std::string served;
    std::string role;
    autoscaler::PoolAnnouncement announcement;
    autoscaler::PoolDecision decision;  // the last
    int starting = 0;
    int ready = 0;
    int draining = 0;
    int stopping = 0;
    int standby = 0;  // loaded, and kept from requests
    int64_t starts = 0;
    int64_t failed_starts = 0;
    StartSeconds start_seconds;  // of those that it has ordered itself
    int64_t woken = 0;
    int64_t lost = 0;  // replicas that ended by themselves after they were ready
    // How the last start that failed did, with what the replica said of it: its operators' alone.
    std::string last_failure;
    std::vector<ScaledFleet::SilentGateway> silent_gateways;
    std::optional<int> gpus_most;  // replicas that the GPUs of all pools leave to it
    bool acts = true;              // false: it is advised only
    // Replicas that were started with other arguments than one started now: name, what differs.
    std::map<std::string, std::string> outdated;
    bool rolls = false;  // they are replaced, one after the other
  };
  std::vector<PoolState> states() const;

 private:
  enum class Phase { kStarting, kReady, kStandby, kDraining, kStopping };
  struct Replica {
    ReplicaOrder order;
    Phase phase = Phase::kStarting;
    std::string host;
    int port = 0;
    int64_t ordered_ns = 0;
    int64_t progress_ns = 0;
    int64_t listens_ns = 0;  // since when; 0: not yet
    int64_t ready_ns = 0;
    int64_t draining_ns = 0;    // since when
    int64_t silent_ns = 0;      // since when gateways do not hear it; 0: they do
    bool stands_by = false;     // of kStarting: it will
    bool is_released = false;   // of kStandby: its KV cache's memory
    bool is_reclaimed = false;  // it will be taken back
    bool is_overdue = false;    // it was ended because it did not advance
    bool is_found = true;       // it was there, and this one has not ordered it
    bool is_anew = false;       // it had been ready before
    std::string outdated;       // how it differs from one that would be started now
    ScaledFleet::Worker worker;
  };
  struct Pool {
    explicit Pool(const ScaledPool& pool) : asked(pool), scaler(pool.policy) {}
    // As gateways call it.
    const std::string& served() const {
      return asked.computes_for.empty() ? asked.name : asked.computes_for;
    }
    ScaledFleet::Address at(const Replica& replica) const {
      return {served(), replica.host, replica.port};
    }
    const ScaledPool asked;
    autoscaler::PoolScaler scaler;
    std::map<int, Replica> replicas;  // by ordinal
    int failures = 0;                 // in a row: attempts, each of one start or several at once
    int64_t failed_ns = -1;           // when the last attempt failed
    std::string failure;              // why held requests are refused
    int64_t start_again_ns = 0;
    int64_t decide_ns = 0;     // when to decide next
    double service_s = 10;     // of a request, as last seen
    std::string logged;        // the last decision in the log
    int64_t waits = 0;         // orders in a row for which there was none to be had
    int64_t ready_before = 0;  // of the replicas, when that one was ordered
    uint64_t rolls_in = 0;     // the token of the replica that is to take another one's place
    bool is_known = true;      // Launcher::is_known
    PoolState state;
    // Of replicas that another one has seen become ready: when, by their ids.
    std::map<std::string, int64_t> remembered_ready_ns;
    std::set<std::string> remembered_standby;  // of those that stood by, their ids
  };

  void find_unknown();
  void set_members(const std::vector<LaunchedReplica>& launched);
  void stop_strangers(const std::vector<LaunchedReplica>& launched);
  // True: something has changed that is a reason to decide now.
  bool follow(Pool& pool, const std::vector<LaunchedReplica>& launched, int64_t now_ns);
  bool follow_launched(Pool& pool, const std::vector<LaunchedReplica>& launched, int64_t now_ns);
  bool follow_worker(Pool& pool, Replica& replica, const std::vector<ScaledFleet::Worker>& workers,
                     int64_t now_ns);
  void note_gone(Pool& pool, const Replica& replica, const LaunchedReplica* ended, int64_t now_ns);
  struct FailedStart {
    std::string how;
    std::string said = {};     // by the replica
    bool is_hopeless = false;  // it would fail likewise again
    int64_t ordered_ns = 0;
  };
  void note_failed_start(Pool& pool, const FailedStart& failed, int64_t now_ns);
  void end_stranger(Pool& pool, Replica& replica, int64_t now_ns);
  void end_overdue(Pool& pool, int64_t now_ns);
  void finish_drains(Pool& pool, int64_t now_ns);
  void decide(Pool& pool, int64_t now_ns);
  void record(const Pool& pool, int64_t now_ns, const autoscaler::PoolFacts& facts,
              const autoscaler::PoolDecision& decision);
  void begin_record();
  int room(Pool& pool);
  void note_outdated(Pool& pool, Replica& replica, const std::string& how);
  void roll(Pool& pool, int64_t now_ns);
  void take_place(Pool& pool, int64_t now_ns);
  void replace(Pool& pool, Replica& replica, int64_t now_ns);
  void note_none_to_be_had(Pool& pool, const std::string& why, int64_t now_ns);
  void carry_out(Pool& pool, const autoscaler::PoolDecision& decision, int64_t now_ns);
  void start_one(Pool& pool, bool stands_by, int64_t now_ns);
  void note_reclaimed(Pool& pool, Replica& replica, int64_t now_ns);
  void stand_by(Pool& pool, Replica& replica);
  void release_standby(Pool& pool);
  void wake(Pool& pool, Replica& replica, int64_t now_ns);
  static int standby_wanting(const Pool& pool);
  autoscaler::PoolFacts facts(Pool& pool) const;
  // That has the replicas of the other role; null: it has but one.
  Pool* other_role(const Pool& pool);
  bool is_led(const Pool& pool);
  void add_other_role(Pool& pool, autoscaler::PoolFacts& facts, int64_t now_ns);
  std::optional<GpuShare> gpu_share(const Pool& pool) const;
  void limit_gpus(Pool& pool, autoscaler::PoolFacts& facts) const;
  const std::string& served_name(const std::string& pool) const;
  void announce(Pool& pool, int64_t now_ns);
  static Replica* find(Pool& pool, std::string_view id);
  static Replica* oldest_outdated(Pool& pool);
  static int64_t ready_of(const Pool& pool);

  Launcher& launcher_;
  ScaledFleet& fleet_;
  const base::Clock& clock_;
  base::Log& log_;
  FactsRecorder* const recorder_;
  std::optional<int> gpus_max_;  // none: each pool has its own
  std::vector<Pool> pools_;
  std::vector<ScaledFleet::Address> members_;  // as the fleet has them
  std::vector<std::string> unknown_;           // pools, as the fleet has them
  std::set<ReplicaOrder> strangers_;           // that were asked to stop
  bool members_set_ = false;
  uint64_t token_;
  mutable std::mutex mutex_;
  std::vector<PoolState> states_;  // guarded by mutex_
};

}  // namespace pelton::launch
