#include "simulator/pool_control.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "base/random.h"

namespace pelton::simulator {
namespace {

constexpr uint64_t kStartStream = 0x737461727473;

double seconds(int64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

}  // namespace

PoolControl::PoolControl(const Options& options)
    : options_(options),
      scaler_(options.asked.policy),
      replicas_(static_cast<size_t>(options.asked.policy.replicas_max)) {
  report_.gateway = "gateway";
  report_.incarnation = 1;
  for (int i = 0; i < options.asked.replicas; ++i) {
    // They were there before: their age keeps none of them from going.
    replicas_[static_cast<size_t>(i)] = {.phase = Phase::kReady, .ready_ns = -3'600'000'000'000};
  }
  most_ = options.asked.replicas;
}

void PoolControl::pass(int64_t now_ns) {
  // A last token is seen a little after its step ended: what comes in between adds nothing.
  if (now_ns <= passed_ns_) return;
  const double since_s = seconds(now_ns - passed_ns_);
  report_.in_service_s += since_s * in_service_;
  report_.held_s += since_s * held_;
  passed_ns_ = now_ns;
}

void PoolControl::note_request(int64_t now_ns) {
  pass(now_ns);
  ++report_.requests;
  ++held_;
}

void PoolControl::note_sent(int64_t now_ns) {
  pass(now_ns);
  --held_;
  ++in_service_;
}

void PoolControl::note_returned(int64_t now_ns) {
  pass(now_ns);
  ++held_;
  --in_service_;
}

void PoolControl::note_finished(int64_t now_ns, bool was_sent) {
  pass(now_ns);
  ++report_.finished;
  --(was_sent ? in_service_ : held_);
}

std::string PoolControl::id_of(size_t replica) const {
  return fmt::format("{}.{}", replica, replicas_[replica].starts);
}

size_t PoolControl::place_of(const std::string& id) const {
  size_t place = 0;
  std::from_chars(id.data(), id.data() + id.find('.'), place);
  return place;
}

autoscaler::PoolFacts PoolControl::facts(int64_t now_ns, std::span<const ReplicaState> replicas) {
  pass(now_ns);
  ++report_.sequence;
  report_.held = held_;
  report_.in_service = in_service_;
  report_.at_ns = now_ns;
  autoscaler::PoolFacts facts{.gateways = {report_},
                              .replicas = {},
                              .slots_assumed = options_.slots,
                              .service_s_assumed = options_.service_s_assumed,
                              .start_s_assumed = options_.asked.start_s};
  for (size_t i = 0; i < replicas_.size(); ++i) {
    const Replica& one = replicas_[i];
    if (one.phase == Phase::kGone) continue;
    const auto phase = one.phase == Phase::kOrdered ? autoscaler::ReplicaPhase::kStarting
                       : one.phase == Phase::kReady ? autoscaler::ReplicaPhase::kReady
                                                    : autoscaler::ReplicaPhase::kDraining;
    facts.replicas.push_back({.id = id_of(i),
                              .phase = phase,
                              .ordered_ns = one.ordered_ns,
                              .ready_ns = one.ready_ns,
                              .slots = options_.slots,
                              .running = replicas[i].running,
                              .waiting = replicas[i].queued,
                              .kv_used = replicas[i].kv_used});
  }
  return facts;
}

int64_t PoolControl::drawn_start_ns() {
  const double unit = base::random_unit(options_.seed ^ kStartStream, draws_++);
  const double factor = 1 + options_.asked.start_spread * (2 * unit - 1);
  return static_cast<int64_t>(options_.asked.start_s * factor * 1e9);
}

std::vector<PoolControl::Start> PoolControl::decide(int64_t now_ns,
                                                    std::span<const ReplicaState> replicas) {
  const autoscaler::PoolDecision decision = scaler_.decide(facts(now_ns, replicas), now_ns);
  report_.holds_for = decision.retirement;
  for (const std::string& id : decision.recall) replicas_[place_of(id)].phase = Phase::kReady;
  for (const std::string& id : decision.drain) replicas_[place_of(id)].phase = Phase::kDraining;
  std::vector<Start> starts;
  for (size_t i = 0; i < replicas_.size() && std::ssize(starts) < decision.start; ++i) {
    Replica& one = replicas_[i];
    if (one.phase != Phase::kGone) continue;
    one = {.phase = Phase::kOrdered,
           .ordered_ns = now_ns,
           .ready_ns = now_ns + drawn_start_ns(),
           .starts = one.starts + 1};
    starts.push_back({static_cast<int>(i), one.ready_ns});
    ++started_;
  }
  const auto present = std::count_if(replicas_.begin(), replicas_.end(),
                                     [](const Replica& one) { return one.phase != Phase::kGone; });
  most_ = std::max(most_, static_cast<int>(present));
  const bool up = !starts.empty() || !decision.recall.empty();
  const int direction = up ? 1 : decision.drain.empty() ? 0 : -1;
  if (direction != 0 && direction != direction_) {
    if (direction_ != 0) ++direction_changes_;
    direction_ = direction;
  }
  return starts;
}

bool PoolControl::become_ready(int replica, int64_t now_ns) {
  Replica& one = replicas_[static_cast<size_t>(replica)];
  if (one.phase != Phase::kOrdered || one.ready_ns > now_ns) return false;
  one.phase = Phase::kReady;
  return true;
}

void PoolControl::note_gone(int replica, int64_t now_ns) {
  Replica& one = replicas_[static_cast<size_t>(replica)];
  if (one.phase == Phase::kGone) return;
  one.phase = Phase::kGone;
  past_seconds_ += seconds(now_ns - std::max<int64_t>(one.ordered_ns, 0));
}

bool PoolControl::empty() const {
  return std::none_of(replicas_.begin(), replicas_.end(), [](const Replica& one) {
    return one.phase == Phase::kOrdered || one.phase == Phase::kReady;
  });
}

double PoolControl::replica_seconds(int64_t now_ns) const {
  double sum = past_seconds_;
  for (const Replica& one : replicas_) {
    if (one.phase != Phase::kGone) sum += seconds(now_ns - std::max<int64_t>(one.ordered_ns, 0));
  }
  return sum;
}

}  // namespace pelton::simulator
