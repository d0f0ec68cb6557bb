#include "launch/fleet_scaler.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "autoscaler/replica_count.h"
#include "base/json.h"
#include "base/json_writer.h"

namespace pelton::launch {
namespace {

using autoscaler::PoolAnnouncement;
using autoscaler::PoolDecision;
using autoscaler::PoolFacts;
using autoscaler::PoolPhase;
using autoscaler::PoolPolicy;
using autoscaler::ReplicaPhase;

constexpr int64_t kDecideAgain_ns = 2'000'000'000;
constexpr int64_t kRetireAgain_ns = 50'000'000;     // while gateways are asked whether they hold
constexpr std::chrono::milliseconds kLookSoon{10};  // while something starts or stops
constexpr std::chrono::milliseconds kLookLater{200};
constexpr int kFailuresMax = 3;  // in a row, until held requests are refused
constexpr double kAgainMax_s = 60;
constexpr int64_t kSilentMax_ns = 30'000'000'000;  // a ready replica whom no gateway hears
constexpr int kSlotsAssumed = 16;
constexpr std::chrono::seconds kStopGrace{10};

int64_t nanoseconds(double seconds) {
  return static_cast<int64_t>(seconds * 1e9);
}

double seconds(int64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

std::string id_of(const ReplicaOrder& order) {
  return fmt::format("{}.{}", order.ordinal, order.token);
}

std::string shown(const ReplicaOrder& order) {
  return fmt::format("replica {}-{}", order.pool, order.ordinal);
}

}  // namespace

FleetScaler::FleetScaler(std::vector<ScaledPool> pools, Launcher& launcher, ScaledFleet& fleet,
                         const base::Clock& clock, base::Log& log, FactsRecorder* recorder,
                         uint64_t epoch)
    : launcher_(launcher),
      fleet_(fleet),
      clock_(clock),
      log_(log),
      recorder_(recorder),
      token_(std::max(launcher.newest_token(), epoch << kTokenNumberBits)) {
  std::ranges::stable_sort(pools, std::greater(), &ScaledPool::priority);
  pools_.reserve(pools.size());
  for (ScaledPool& pool : pools) pools_.emplace_back(pool);
  begin_record();
}

std::chrono::milliseconds FleetScaler::turn(bool asked) {
  const int64_t now_ns = clock_.now_ns();
  find_unknown();
  const std::vector<LaunchedReplica> launched = launcher_.list();
  set_members(launched);
  stop_strangers(launched);
  bool is_moving = false;
  const std::vector<ScaledFleet::SilentGateway> silent = fleet_.silent_gateways();
  std::vector<PoolState> states;
  for (Pool& pool : pools_) {
    pool.state.pool = pool.asked.name;
    pool.state.served = pool.served();
    pool.state.role = !pool.asked.computes_for.empty() ? "prefill"
                      : pool.asked.policy.prefill      ? "decode"
                                                       : "";
    pool.state.acts = !pool.asked.is_advised_only;
    pool.state.rolls = pool.asked.rolls;
    pool.state.silent_gateways = silent;
    if (!pool.is_known) {
      states.push_back(pool.state);
      continue;
    }
    const bool changed = follow(pool, launched, now_ns);
    if (pool.state.acts) end_overdue(pool, now_ns);
    if (is_led(pool) && (asked || changed || now_ns >= pool.decide_ns)) decide(pool, now_ns);
    if (pool.asked.rolls && pool.state.acts) roll(pool, now_ns);
    // Also where nothing was decided: gateways let go of what is not said again.
    if (pool.asked.computes_for.empty() && pool.state.acts) {
      fleet_.retire(pool.asked.name, pool.state.decision.retirement);
    }
    if (pool.state.acts) {
      finish_drains(pool, now_ns);
      release_standby(pool);
    }
    announce(pool, now_ns);
    is_moving = is_moving || std::ranges::any_of(pool.replicas, [](const auto& one) {
                  return one.second.phase != Phase::kReady && one.second.phase != Phase::kStandby;
                });
    states.push_back(pool.state);
  }
  std::lock_guard lock(mutex_);
  states_ = std::move(states);
  return is_moving ? kLookSoon : kLookLater;
}

std::vector<FleetScaler::PoolState> FleetScaler::states() const {
  std::lock_guard lock(mutex_);
  return states_;
}

// Before anything is listed: a pool that becomes known meanwhile is so at the next turn.
void FleetScaler::find_unknown() {
  for (Pool& pool : pools_) {
    const bool is_known = launcher_.is_known(pool.asked.name);
    if (is_known == pool.is_known) continue;
    pool.is_known = is_known;
    log_.info(fmt::format(
        "pool '{}': {}", pool.asked.name,
        is_known ? "it is known what runs" : "nothing is decided until it is known what runs"));
  }
}

const std::string& FleetScaler::served_name(const std::string& pool) const {
  for (const Pool& one : pools_) {
    if (one.asked.name == pool) return one.served();
  }
  return pool;
}

// Replicas of pools that nobody scales any more; whoever only advises leaves them to others.
void FleetScaler::stop_strangers(const std::vector<LaunchedReplica>& launched) {
  if (std::ranges::all_of(pools_, [](const Pool& one) { return one.asked.is_advised_only; }))
    return;
  std::set<ReplicaOrder> strangers;
  for (const LaunchedReplica& one : launched) {
    const bool is_ours = std::ranges::any_of(
        pools_, [&](const Pool& pool) { return pool.asked.name == one.order.pool; });
    if (is_ours || one.state == LaunchedReplica::State::kEnded) continue;
    strangers.insert(one.order);
    if (strangers_.contains(one.order)) continue;
    log_.warning(fmt::format("{} is ended: no pool has this name any more", shown(one.order)));
    launcher_.stop(one.order, kStopGrace);
  }
  strangers_ = std::move(strangers);
}

// Those that are being stopped stay: gateways hear from themselves that they leave.
void FleetScaler::set_members(const std::vector<LaunchedReplica>& launched) {
  std::vector<ScaledFleet::Address> members;
  for (const LaunchedReplica& one : launched) {
    if (one.state == LaunchedReplica::State::kEnded || one.port == 0) continue;
    members.push_back({.pool = served_name(one.order.pool), .host = one.host, .port = one.port});
  }
  std::sort(members.begin(), members.end());
  std::vector<std::string> unknown;
  for (const Pool& pool : pools_) {
    if (!pool.is_known) unknown.push_back(pool.served());
  }
  if (members_set_ && members == members_ && unknown == unknown_) return;
  members_set_ = true;
  fleet_.set_launched(members, unknown);
  members_ = std::move(members);
  unknown_ = std::move(unknown);
}

bool FleetScaler::follow(Pool& pool, const std::vector<LaunchedReplica>& launched, int64_t now_ns) {
  bool changed = follow_launched(pool, launched, now_ns);
  const std::vector<ScaledFleet::Worker> workers = fleet_.workers(pool.served());
  for (auto& [ordinal, replica] : pool.replicas) {
    changed = follow_worker(pool, replica, workers, now_ns) || changed;
  }
  return changed;
}

bool FleetScaler::follow_launched(Pool& pool, const std::vector<LaunchedReplica>& launched,
                                  int64_t now_ns) {
  bool changed = false;
  std::map<int, const LaunchedReplica*> there;
  for (const LaunchedReplica& one : launched) {
    if (one.order.pool != pool.asked.name) continue;
    there[one.order.ordinal] = &one;
    if (one.state == LaunchedReplica::State::kEnded) continue;
    Replica& replica = pool.replicas[one.order.ordinal];
    replica.order = one.order;
    if (pool.remembered_standby.erase(id_of(one.order)) > 0) replica.stands_by = true;
    replica.host = one.host;
    replica.port = one.port;
    // Its job was requeued, or its container runs anew: it starts again.
    const bool served = replica.phase == Phase::kReady || replica.phase == Phase::kStandby;
    if (one.port == 0 && served) {
      replica.stands_by = replica.phase == Phase::kStandby;
      replica.phase = Phase::kStarting;
      replica.progress_ns = now_ns;
      replica.silent_ns = 0;
      replica.is_anew = true;
      changed = true;
    }
    if (one.port != 0 && replica.listens_ns == 0) replica.listens_ns = now_ns;
    if (!one.outdated.empty() && replica.outdated.empty()) {
      note_outdated(pool, replica, one.outdated);
    }
    replica.ordered_ns = one.ordered_ns;
    replica.progress_ns = std::max(replica.progress_ns, one.progress_ns);
    if (one.state == LaunchedReplica::State::kStopping) replica.phase = Phase::kStopping;
    if (one.is_reclaimed && !replica.is_reclaimed) {
      note_reclaimed(pool, replica, now_ns);
      changed = true;
    }
  }
  for (auto it = pool.replicas.begin(); it != pool.replicas.end();) {
    const auto found = there.find(it->first);
    const LaunchedReplica* one = found == there.end() ? nullptr : found->second;
    if (one != nullptr && one->state != LaunchedReplica::State::kEnded) {
      ++it;
      continue;
    }
    note_gone(pool, it->second, one, now_ns);
    it = pool.replicas.erase(it);
    changed = true;
  }
  return changed;
}

// Whoever has it drains it now, so that its answers are over, or go on elsewhere, when it goes.
void FleetScaler::note_reclaimed(Pool& pool, Replica& replica, int64_t now_ns) {
  replica.is_reclaimed = true;
  log_.warning(fmt::format("{} will be taken back by its provider", shown(replica.order)));
  if (replica.phase != Phase::kReady && replica.phase != Phase::kStandby) return;
  replica.phase = Phase::kDraining;
  replica.draining_ns = now_ns;
  fleet_.set_draining(pool.at(replica), true);
}

bool FleetScaler::follow_worker(Pool& pool, Replica& replica,
                                const std::vector<ScaledFleet::Worker>& workers, int64_t now_ns) {
  const auto found = std::ranges::find_if(workers, [&](const ScaledFleet::Worker& worker) {
    return replica.port != 0 && worker.port == replica.port && worker.host == replica.host;
  });
  if (found == workers.end()) return false;
  replica.worker = *found;
  if (!found->is_silent) {
    replica.silent_ns = 0;
  } else if (replica.silent_ns == 0) {
    replica.silent_ns = now_ns;
  }
  if (replica.phase != Phase::kStarting || !found->is_ready) return false;
  if (!found->lacks.empty() && !pool.asked.is_advised_only) {
    end_stranger(pool, replica, now_ns);
    return true;
  }
  replica.phase = Phase::kReady;
  replica.ready_ns = now_ns;
  if (replica.is_reclaimed) {
    note_reclaimed(pool, replica, now_ns);
  } else if (replica.stands_by) {
    stand_by(pool, replica);
  }
  pool.failures = 0;
  pool.failure.clear();
  if (const auto before = pool.remembered_ready_ns.find(id_of(replica.order));
      before != pool.remembered_ready_ns.end()) {
    replica.ready_ns = std::min(before->second, now_ns);
    pool.remembered_ready_ns.erase(before);
    return true;
  }
  if (replica.is_found) {
    log_.info(fmt::format("{} is ready; it was found", shown(replica.order)));
    return true;
  }
  if (!replica.is_anew) {
    pool.state.start_seconds.note(seconds(replica.listens_ns - replica.ordered_ns),
                                  seconds(now_ns - replica.listens_ns));
  }
  log_.info(fmt::format("{} {} {:.2f} s after its order", shown(replica.order),
                        replica.phase == Phase::kStandby ? "stands by" : "is ready",
                        seconds(now_ns - replica.ordered_ns)));
  return true;
}

// It would be ready and serve nobody, as no request names what it has.
void FleetScaler::end_stranger(Pool& pool, Replica& replica, int64_t now_ns) {
  note_failed_start(
      pool, {.how = replica.worker.lacks, .is_hopeless = true, .ordered_ns = replica.ordered_ns},
      now_ns);
  replica.phase = Phase::kStopping;
  launcher_.stop(replica.order, kStopGrace);
}

void FleetScaler::note_gone(Pool& pool, const Replica& replica, const LaunchedReplica* ended,
                            int64_t now_ns) {
  FailedStart failed{.how = ended == nullptr ? "has vanished" : ended->ended,
                     .said = ended == nullptr ? "" : ended->said,
                     .is_hopeless = ended != nullptr && ended->is_hopeless,
                     .ordered_ns = replica.ordered_ns};
  const std::string how = failed.how;
  if (replica.is_overdue) {
    failed.how = "it did not advance";
    failed.is_hopeless = false;
    return note_failed_start(pool, failed, now_ns);
  }
  if (replica.phase == Phase::kStopping) return;
  if (replica.phase == Phase::kStarting) return note_failed_start(pool, failed, now_ns);
  ++pool.state.lost;
  log_.warning(fmt::format("{} is lost: {}", shown(replica.order), how));
}

void FleetScaler::note_failed_start(Pool& pool, const FailedStart& failed, int64_t now_ns) {
  ++pool.state.failed_starts;
  // Those that were ordered before the last one failed are of the same attempt.
  if (failed.ordered_ns > pool.failed_ns) {
    pool.failed_ns = now_ns;
    pool.failures = std::min(pool.failures + 1, 16);
    const double again_s = std::min(static_cast<double>(1 << (pool.failures - 1)), kAgainMax_s);
    pool.start_again_ns = now_ns + nanoseconds(again_s);
  }
  if (failed.is_hopeless || pool.failures >= kFailuresMax) pool.failure = failed.how;
  pool.state.last_failure =
      failed.said.empty() ? failed.how : fmt::format("{}: {}", failed.how, failed.said);
  // When it may be tried again is a moment to decide at.
  pool.decide_ns = std::min(pool.decide_ns, pool.start_again_ns);
  log_.error(fmt::format("a replica of '{}' did not start: {}; the next attempt in {:.1f} s",
                         pool.asked.name, pool.state.last_failure,
                         std::max(seconds(pool.start_again_ns - now_ns), 0.0)));
}

// Nothing is wrong with the model: requests wait for as long as they may, and it is asked for
// again.
void FleetScaler::note_none_to_be_had(Pool& pool, const std::string& why, int64_t now_ns) {
  constexpr int64_t kDoublings = 4;
  constexpr double kMost_s = 10;
  if (pool.start_again_ns > now_ns) return;  // several at once are one attempt
  const auto pause_s = static_cast<double>(1 << std::min(pool.waits++, kDoublings));
  pool.start_again_ns = now_ns + nanoseconds(std::min(pause_s, kMost_s));
  pool.decide_ns = std::min(pool.decide_ns, pool.start_again_ns);
  if (pool.waits > 1) return;
  log_.warning(
      fmt::format("a replica of '{}' cannot be had now: {}; requests wait, and it is asked "
                  "for again",
                  pool.asked.name, why));
}

void FleetScaler::end_overdue(Pool& pool, int64_t now_ns) {
  for (auto& [ordinal, replica] : pool.replicas) {
    const bool is_stuck = replica.phase == Phase::kStarting &&
                          now_ns - replica.progress_ns > nanoseconds(pool.asked.progress_s);
    const bool serves = replica.phase == Phase::kReady || replica.phase == Phase::kStandby;
    const bool is_silent =
        serves && replica.silent_ns > 0 && now_ns - replica.silent_ns > kSilentMax_ns;
    if (!is_stuck && !is_silent) continue;
    replica.is_overdue = is_stuck;
    replica.phase = Phase::kStopping;
    log_.warning(fmt::format("{} is ended: {}", shown(replica.order),
                             is_stuck ? "its start does not advance" : "no gateway hears it"));
    launcher_.stop(replica.order, std::chrono::milliseconds(0));
  }
}

// Nothing new comes since gateways know; what it has has ended, or gets no more time here.
void FleetScaler::finish_drains(Pool& pool, int64_t now_ns) {
  for (auto& [ordinal, replica] : pool.replicas) {
    if (replica.phase != Phase::kDraining) continue;
    const ScaledFleet::Worker& worker = replica.worker;
    const bool is_idle = worker.open == 0 && worker.running == 0 && worker.waiting == 0;
    const bool is_over =
        now_ns - replica.draining_ns > nanoseconds(pool.asked.stop_grace_s) || worker.is_silent;
    if (!is_idle && !is_over) continue;
    if (is_idle && !worker.is_silent && !replica.is_reclaimed && standby_wanting(pool) > 0) {
      replica.phase = Phase::kStandby;  // gateways have drained it
      replica.is_released = false;
      continue;
    }
    replica.phase = Phase::kStopping;
    launcher_.stop(replica.order, kStopGrace);
  }
}

PoolFacts FleetScaler::facts(Pool& pool) const {
  PoolFacts facts{.gateways = fleet_.reports(pool.served()),
                  .replicas = {},
                  .slots_assumed = kSlotsAssumed,
                  .service_s_assumed = pool.service_s,
                  .start_s_assumed = pool.asked.start_s,
                  .start_again_ns = pool.start_again_ns,
                  .unix_s = clock_.unix_ms() / 1000};
  for (const auto& [ordinal, replica] : pool.replicas) {
    ReplicaPhase phase = ReplicaPhase::kDraining;
    if (replica.phase == Phase::kStarting) {
      phase = replica.port == 0 ? ReplicaPhase::kOrdered : ReplicaPhase::kStarting;
    } else if (replica.phase == Phase::kReady) {
      phase = ReplicaPhase::kReady;
    } else if (replica.phase == Phase::kStandby) {
      phase = ReplicaPhase::kStandby;
    }
    facts.replicas.push_back(
        {.id = id_of(replica.order),
         .phase = phase,
         .ordered_ns = replica.ordered_ns,
         .progress_ns = replica.progress_ns,
         .ready_ns = replica.ready_ns,
         .slots = std::max(replica.worker.slots, 1),
         .running = replica.worker.running,
         .waiting = replica.worker.waiting,
         .kv_used = replica.worker.kv_used,
         .model = replica.worker.model,
         .reclaimed = replica.is_reclaimed,
         // One that has been asked to end cannot be recalled.
         .healthy = replica.phase != Phase::kStopping && replica.silent_ns == 0,
         .stands_by = replica.phase == Phase::kStarting && replica.stands_by,
         .found = replica.is_found});
    if (replica.phase == Phase::kStarting) facts.replicas.back().slots = 0;
  }
  return facts;
}

FleetScaler::Pool* FleetScaler::other_role(const Pool& pool) {
  const auto other = std::ranges::find_if(pools_, [&](const Pool& one) {
    return pool.asked.computes_for.empty() ? one.asked.computes_for == pool.asked.name
                                           : one.asked.name == pool.asked.computes_for;
  });
  return other == pools_.end() ? nullptr : &*other;
}

// Whoever decides for it has.
bool FleetScaler::is_led(const Pool& pool) {
  if (pool.asked.computes_for.empty()) return true;
  const Pool* const other = other_role(pool);
  return other != nullptr && other->is_known;
}

// One decision says how many there are to be of both roles: it is made of the pool's own replicas,
// and those that compute prompts follow it.
void FleetScaler::add_other_role(Pool& pool, PoolFacts& facts, int64_t now_ns) {
  Pool* const other = other_role(pool);
  if (other == nullptr) return;
  const PoolPolicy& policy = pool.asked.policy;
  if (policy.affordable() < policy.replicas_max + other->asked.policy.replicas_max) {
    const auto there = std::ssize(pool.replicas) + std::ssize(other->replicas);
    facts.room = std::max(policy.affordable() - static_cast<int>(there), 0);
  }
  if (pool.asked.computes_for.empty()) {
    facts.prefill = this->facts(*other).replicas;
    other->decide_ns = now_ns;
    return;
  }
  const PoolDecision& decision = other->state.decision;
  facts.wanted = decision.desired == 0 ? 0 : decision.terms.roles.pair.counts.prefill;
}

// None: its GPUs are its own.
std::optional<GpuShare> FleetScaler::gpu_share(const Pool& pool) const {
  if (!gpus_max_ || pool.asked.policy.gpus_each == 0 || pool.asked.is_advised_only) return {};
  std::vector<GpuUser> users;
  size_t own = 0;
  for (const Pool& one : pools_) {
    if (&one == &pool) own = users.size();
    const PoolPolicy& policy = one.asked.policy;
    users.push_back({.gpus_each = one.asked.is_advised_only ? 0 : policy.gpus_each,
                     .least = policy.bounds(clock_.unix_ms() / 1000).least + policy.standby,
                     .wanted = one.state.decision.desired + policy.standby,
                     .running = static_cast<int>(std::ssize(one.replicas))});
  }
  return launch::share_gpus(*gpus_max_, users)[own];
}

void FleetScaler::limit_gpus(Pool& pool, PoolFacts& facts) const {
  pool.state.gpus_most.reset();
  const std::optional<GpuShare> share = gpu_share(pool);
  if (!share) return;
  facts.most = pool.state.gpus_most = std::min(share->most, autoscaler::kReplicasMax);
  facts.room = std::min(facts.room.value_or(autoscaler::kReplicasMax), share->room);
}

void FleetScaler::decide(Pool& pool, int64_t now_ns) {
  pool.decide_ns = now_ns + kDecideAgain_ns;
  if (pool.start_again_ns > now_ns) {
    pool.decide_ns = std::min(pool.decide_ns, pool.start_again_ns);
  }
  PoolFacts facts = this->facts(pool);
  add_other_role(pool, facts, now_ns);
  limit_gpus(pool, facts);
  const PoolDecision decision = pool.scaler.decide(facts, now_ns);
  record(pool, now_ns, facts, decision);
  if (decision.retirement != 0 && decision.desired > 0) pool.decide_ns = now_ns + kRetireAgain_ns;
  if (decision.terms.service_s > 0) pool.service_s = decision.terms.service_s;
  const bool acts = decision.start > 0 || !decision.drain.empty() || !decision.recall.empty() ||
                    !decision.wake.empty() || !decision.dismiss.empty();
  std::string line = fmt::format("{} {}", decision.desired, reason_name(decision.reason));
  if (acts || line != pool.logged) {
    log_.info(fmt::format("pool '{}'{}: {}", pool.asked.name,
                          pool.asked.is_advised_only ? " (advice)" : "", decision.text()));
  }
  pool.logged = std::move(line);
  pool.state.decision = decision;
  if (!pool.asked.is_advised_only) carry_out(pool, decision, now_ns);
}

std::vector<FleetScaler::Memory> FleetScaler::memories() const {
  std::vector<Memory> all;
  for (const Pool& pool : pools_) {
    Memory memory{.pool = pool.asked.name, .text = {}};
    base::JsonWriter w(memory.text);
    w.begin_object().key("scaler").raw(pool.scaler.state());
    w.key("service_s").number(pool.service_s);
    w.key("failures").integer(pool.failures).key("failure").string(pool.failure);
    w.key("start_again_ns").integer(pool.start_again_ns);
    w.key("ready_ns").begin_object();
    for (const auto& [ordinal, replica] : pool.replicas) {
      if (replica.phase == Phase::kReady) w.key(id_of(replica.order)).integer(replica.ready_ns);
    }
    w.end_object().key("standby").begin_array();
    for (const auto& [ordinal, replica] : pool.replicas) {
      const bool stands_by = replica.phase == Phase::kStandby ||
                             (replica.phase == Phase::kStarting && replica.stands_by);
      if (stands_by) w.string(id_of(replica.order));
    }
    w.end_array().end_object();
    all.push_back(std::move(memory));
  }
  return all;
}

Result<void> FleetScaler::remember(const Memory& memory) {
  const auto no_memory = [] {
    return Error{ErrorCode::kInvalidArgument, "this is no memory of an autoscaler", {}};
  };
  const auto pool =
      std::ranges::find(pools_, memory.pool, [](const Pool& one) { return one.asked.name; });
  if (pool == pools_.end()) return {};  // it is scaled no longer
  TRY_ASSIGN(const Json json, Json::parse(memory.text));
  const Json* scaler = json.is_object() ? json.find("scaler") : nullptr;
  const Json* ready = json.is_object() ? json.find("ready_ns") : nullptr;
  if (scaler == nullptr || ready == nullptr || !ready->is_object()) return no_memory();
  TRY(pool->scaler.restore(scaler->dump()));
  pool->service_s = json.number("service_s").value_or(pool->service_s);
  pool->failures =
      static_cast<int>(std::clamp<int64_t>(json.integer("failures").value_or(0), 0, 16));
  pool->failure = json.string("failure").value_or("");
  pool->start_again_ns = json.integer("start_again_ns").value_or(0);
  for (const Json::Member& one : ready->as_object()) {
    if (one.value.is_integer()) pool->remembered_ready_ns[one.key] = one.value.as_integer();
  }
  const Json* const standby = json.find("standby");
  if (standby != nullptr && standby->is_array()) {
    for (const Json& one : standby->as_array()) {
      if (one.is_string()) pool->remembered_standby.insert(one.as_string());
    }
  }
  // What is recorded goes on from here.
  begin_record();
  return {};
}

void FleetScaler::begin_record() {
  if (recorder_ == nullptr) return;
  for (const Pool& pool : pools_) {
    recorder_->begin(pool.asked.name, pool.asked.policy, pool.scaler.state());
  }
}

void FleetScaler::record(const Pool& pool, int64_t now_ns, const PoolFacts& facts,
                         const PoolDecision& decision) {
  if (recorder_ == nullptr) return;
  recorder_->note(pool.asked.name, now_ns, facts, decision);
  if (!recorder_->is_full()) return;
  recorder_->renew();
  begin_record();
}

// How many more there may be beside those that run.
int FleetScaler::room(Pool& pool) {
  const PoolPolicy& policy = pool.asked.policy;
  const Pool* const other = other_role(pool);
  int most = policy.bounds(clock_.unix_ms() / 1000).most;
  if (other != nullptr) {
    most = std::min(most, policy.affordable() - static_cast<int>(std::ssize(other->replicas)));
  }
  const int left = most - static_cast<int>(std::ssize(pool.replicas));
  const std::optional<GpuShare> share = gpu_share(pool);
  return share ? std::min(left, share->room) : left;
}

void FleetScaler::note_outdated(Pool& pool, Replica& replica, const std::string& how) {
  replica.outdated = how;
  log_.warning(fmt::format("{} runs with what it was started with, which has changed since: {}; {}",
                           shown(replica.order), how,
                           pool.asked.rolls
                               ? "it is replaced when another one is ready"
                               : "it is kept: end it, or set 'roll = true' in [pool.launch]"));
}

FleetScaler::Replica* FleetScaler::oldest_outdated(Pool& pool) {
  Replica* oldest = nullptr;
  for (auto& [ordinal, replica] : pool.replicas) {
    const bool serves = replica.phase == Phase::kReady || replica.phase == Phase::kStandby;
    if (replica.outdated.empty() || !serves) continue;
    if (oldest == nullptr || replica.ready_ns < oldest->ready_ns) oldest = &replica;
  }
  return oldest;
}

int64_t FleetScaler::ready_of(const Pool& pool) {
  return std::ranges::count_if(pool.replicas,
                               [](const auto& one) { return one.second.phase == Phase::kReady; });
}

// One at a time: while another one starts, drains or stops, nothing is begun. Where there is no
// room for one more the oldest goes first, and what is decided then replaces it.
void FleetScaler::roll(Pool& pool, int64_t now_ns) {
  const bool is_moving = std::ranges::any_of(pool.replicas, [](const auto& one) {
    return one.second.phase != Phase::kReady && one.second.phase != Phase::kStandby;
  });
  if (is_moving || now_ns < pool.start_again_ns) return;
  if (pool.rolls_in != 0) return take_place(pool, now_ns);
  Replica* const oldest = oldest_outdated(pool);
  if (oldest == nullptr || pool.failures > 0) return;
  // What decides counts one on standby, and one of two roles, as too many at once.
  const bool goes_first =
      room(pool) <= 0 || oldest->phase == Phase::kStandby || other_role(pool) != nullptr;
  if (goes_first) return replace(pool, *oldest, now_ns);
  log_.info(fmt::format("another one is started, which is to take the place of {}",
                        shown(oldest->order)));
  pool.ready_before = ready_of(pool);
  start_one(pool, false, now_ns);
  pool.rolls_in = token_;
}

// Of the oldest, for the one that was started for that; if it is there.
void FleetScaler::take_place(Pool& pool, int64_t now_ns) {
  const bool is_there = std::ranges::any_of(
      pool.replicas, [&](const auto& one) { return one.second.order.token == pool.rolls_in; });
  pool.rolls_in = 0;
  Replica* const oldest = oldest_outdated(pool);
  // Another one may have gone meanwhile, as fewer are needed: then it has been for that.
  const bool is_spare = oldest != nullptr && ready_of(pool) > pool.ready_before;
  if (is_there && is_spare) replace(pool, *oldest, now_ns);
}

// As one that its provider takes back: it is not recalled, and does not stand by.
void FleetScaler::replace(Pool& pool, Replica& replica, int64_t now_ns) {
  replica.is_reclaimed = true;
  replica.phase = Phase::kDraining;
  replica.draining_ns = now_ns;
  fleet_.set_draining(pool.at(replica), true);
  log_.info(fmt::format("{} drains: another one takes its place", shown(replica.order)));
}

void FleetScaler::carry_out(Pool& pool, const PoolDecision& decision, int64_t now_ns) {
  for (const std::string& id : decision.recall) {
    Replica* replica = find(pool, id);
    if (replica == nullptr || replica->phase != Phase::kDraining) continue;
    replica->phase = Phase::kReady;
    fleet_.set_draining(pool.at(*replica), false);
  }
  for (const std::string& id : decision.drain) {
    Replica* replica = find(pool, id);
    if (replica == nullptr || replica->phase != Phase::kReady) continue;
    replica->phase = Phase::kDraining;
    replica->draining_ns = now_ns;
    fleet_.set_draining(pool.at(*replica), true);
  }
  for (const std::string& id : decision.wake) {
    if (Replica* replica = find(pool, id)) wake(pool, *replica, now_ns);
  }
  for (const std::string& id : decision.dismiss) {
    Replica* replica = find(pool, id);
    if (replica == nullptr || replica->phase != Phase::kStandby) continue;
    replica->phase = Phase::kStopping;
    launcher_.stop(replica->order, kStopGrace);
  }
  for (int i = 0; i < decision.start; ++i) {
    start_one(pool, i >= decision.start - decision.start_standby, now_ns);
  }
}

// Loaded as it is, it gets nothing until it is woken.
void FleetScaler::stand_by(Pool& pool, Replica& replica) {
  replica.phase = Phase::kStandby;
  replica.is_released = false;
  fleet_.set_draining(pool.at(replica), true);
}

// Once it has nothing to do: what is still on its way to it would keep the memory.
void FleetScaler::release_standby(Pool& pool) {
  for (auto& [ordinal, replica] : pool.replicas) {
    if (replica.phase != Phase::kStandby || replica.is_released) continue;
    const ScaledFleet::Worker& worker = replica.worker;
    if (worker.is_silent || worker.open + worker.running + worker.waiting > 0) continue;
    replica.is_released = true;
    fleet_.release_memory(pool.at(replica));
  }
}

void FleetScaler::wake(Pool& pool, Replica& replica, int64_t now_ns) {
  replica.stands_by = false;
  if (replica.phase != Phase::kStandby) return;  // it starts, and will not stand by
  replica.phase = Phase::kReady;
  replica.ready_ns = now_ns;  // it is as young as one that was started: it is not to go at once
  ++pool.state.woken;
  fleet_.set_draining(pool.at(replica), false);
}

int FleetScaler::standby_wanting(const Pool& pool) {
  const auto there = std::ranges::count_if(pool.replicas, [](const auto& one) {
    const Replica& replica = one.second;
    return replica.phase == Phase::kStandby ||
           (replica.phase == Phase::kStarting && replica.stands_by);
  });
  return pool.asked.policy.standby - static_cast<int>(there);
}

void FleetScaler::start_one(Pool& pool, bool stands_by, int64_t now_ns) {
  // What a launcher has seen since may be newer.
  token_ = std::max(token_, launcher_.newest_token()) + 1;
  ReplicaOrder order{.pool = pool.asked.name, .ordinal = 0, .token = token_};
  while (pool.replicas.contains(order.ordinal)) ++order.ordinal;
  pool.failure.clear();
  const Result<void> started = launcher_.start(order);
  if (!started.ok() && started.error().code == ErrorCode::kUnavailable) {
    return note_none_to_be_had(pool, started.error().message, now_ns);
  }
  pool.waits = 0;
  if (!started.ok()) {
    const FailedStart failed{.how = started.error().message, .ordered_ns = now_ns};
    return note_failed_start(pool, failed, now_ns);
  }
  ++pool.state.starts;
  pool.replicas[order.ordinal] = {.order = order,
                                  .ordered_ns = now_ns,
                                  .progress_ns = now_ns,
                                  .stands_by = stands_by,
                                  .is_found = false};
}

FleetScaler::Replica* FleetScaler::find(Pool& pool, std::string_view id) {
  for (auto& [ordinal, replica] : pool.replicas) {
    if (id_of(replica.order) == id) return &replica;
  }
  return nullptr;
}

// A start that takes longer than nine of ten did is expected to take half as long again.
void FleetScaler::announce(Pool& pool, int64_t now_ns) {
  PoolState& state = pool.state;
  state.starting = state.ready = state.draining = state.stopping = state.standby = 0;
  state.outdated.clear();
  double start_s = state.decision.terms.start_s_p90;
  if (start_s <= 0) start_s = pool.asked.start_s;
  // Of the first of those that start; of none: of one that is ordered as soon as one may be.
  std::optional<double> comes_s;
  for (const auto& [ordinal, replica] : pool.replicas) {
    if (!replica.outdated.empty()) {
      state.outdated[fmt::format("{}-{}", replica.order.pool, ordinal)] = replica.outdated;
    }
    switch (replica.phase) {
      case Phase::kStarting: {
        ++state.starting;
        const double since_s = seconds(now_ns - replica.ordered_ns);
        const double left_s = since_s < start_s ? start_s - since_s : since_s / 2;
        comes_s = std::min(comes_s.value_or(left_s), left_s);
        break;
      }
      case Phase::kReady:
        ++state.ready;
        break;
      case Phase::kStandby:
        ++state.standby;
        comes_s = 0;  // it is woken at once
        break;
      case Phase::kDraining:
        ++state.draining;
        break;
      case Phase::kStopping:
        ++state.stopping;
        break;
    }
  }
  const double again_s = std::max(seconds(pool.start_again_ns - now_ns), 0.0);
  const double eta_s = comes_s.value_or(again_s + start_s);
  PoolAnnouncement announced{.phase = state.ready > 0      ? PoolPhase::kReady
                                      : state.starting > 0 ? PoolPhase::kStarting
                                                           : PoolPhase::kCold,
                             .eta_s = state.ready > 0 ? 0 : eta_s};
  // One on standby serves what a start that failed would have.
  if (state.ready == 0 && state.starting == 0 && state.standby == 0 && !pool.failure.empty()) {
    announced.failure = pool.failure;
    announced.again_s = again_s;
  }
  state.announcement = announced;
  if (pool.asked.computes_for.empty()) fleet_.announce(pool.asked.name, announced);
}

}  // namespace pelton::launch
