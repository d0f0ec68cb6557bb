#include "autoscaler/pool_scaler.h"

#include <algorithm>
#include <cmath>

#include "autoscaler/replica_count.h"

namespace pelton::autoscaler {
namespace {

constexpr double kTick_s = 2;  // between two decisions, without an event
constexpr int64_t kFactsAgeMax_ns = 10'000'000'000;
constexpr int64_t kFinishedFewest = 20;   // before the time in service is believed
constexpr double kRateRises = 1.3;        // fast over slow: the fast one is believed
constexpr double kStaffing = 1.3;         // deviations of a Poisson load kept free
constexpr double kSurvivorLoadMax = 0.8;  // of slots and of the KV cache
constexpr double kKvNearlyFull = 0.8;
// Under an objective: left free of what a replica could bear when it is reached for, and before one
// may go.
constexpr double kSpare = 0.15;
constexpr double kSpareToGo = 0.3;
constexpr int kQueueLong = 5;  // requests waiting, per ready replica
constexpr int64_t kVictimAgeMin_ns = 60'000'000'000;

int64_t nanoseconds(double seconds) {
  constexpr double kMost_s = 1e9;
  return static_cast<int64_t>(std::min(seconds, kMost_s) * 1e9);
}

Reason ceiling_reason(PoolPolicy::Bounds::Source source) {
  switch (source) {
    case PoolPolicy::Bounds::Source::kSchedule:
      return Reason::kSchedule;
    case PoolPolicy::Bounds::Source::kGpus:
      return Reason::kGpus;
    case PoolPolicy::Bounds::Source::kPrice:
      return Reason::kPrice;
    case PoolPolicy::Bounds::Source::kPolicy:
      break;
  }
  return Reason::kMaximum;
}

// Of a gateway: too long ago to be believed of what waits now.
bool is_silent(const GatewayReport& report, int64_t now_ns) {
  return now_ns - report.at_ns > kFactsAgeMax_ns;
}

// Slots in use, R of them on average, leave 1.3 x sqrt(R) free: small pools keep a large share.
double staffed(double in_service) {
  return in_service + kStaffing * std::sqrt(in_service);
}

}  // namespace

// The replicas as they are.
struct PoolScaler::Supply {
  int ready = 0;
  int coming = 0;  // ordered or starting, and still believed in
  // Ordered or starting, and far later than they should be. They run all the same: what the
  // ceilings allow is theirs until the launcher says that they are gone.
  int given_up = 0;
  int draining = 0;
  int standby = 0;         // that can be woken at once
  int standby_coming = 0;  // starting to stand by, and still believed in
  int slots = 1;           // of a replica
  int running = 0;         // of those ready
  int waiting = 0;         // beyond free slots
  int held = 0;
  int in_service = 0;
  double kv_used = 0;  // sum over those ready
  double start_p50_s = 0;
  double start_p90_s = 0;
  // For each of those coming, how much earlier than one that is ordered now it will be ready.
  std::vector<double> ahead_s;

  int present() const { return ready + coming; }
  // All that take what the ceilings allow.
  int running_all() const { return present() + given_up + draining + standby + standby_coming; }
};

PoolScaler::PoolScaler(const PoolPolicy& policy)
    : policy_(policy),
      demand_(policy.window_s),
      slo_tracker_(policy.slo, policy.window_s),
      knative_({.target = policy.concurrency_target.value_or(100) *
                          policy.target_utilization.value_or(0.7),
                .panic_threshold = policy.panic_threshold,
                .window_ns = nanoseconds(policy.window_s)}) {
  if (policy.prefill) pair_.emplace(policy);
}

PoolDecision PoolScaler::decide(PoolFacts facts, int64_t now_ns) {
  std::sort(facts.gateways.begin(), facts.gateways.end(),
            [](const GatewayReport& a, const GatewayReport& b) { return a.gateway < b.gateway; });
  const auto by_id = [](const ReplicaFacts& a, const ReplicaFacts& b) { return a.id < b.id; };
  std::sort(facts.replicas.begin(), facts.replicas.end(), by_id);
  std::sort(facts.prefill.begin(), facts.prefill.end(), by_id);
  const int64_t rejected = demand_.rejected();
  demand_.note(facts.gateways, now_ns);
  const bool all_speak = forget_silent(facts, now_ns);
  learn(facts);
  bounds_ = policy_.bounds(facts.unix_s);
  if (facts.most && *facts.most < bounds_.most) {
    bounds_.most = std::max(*facts.most, 0);
    bounds_.most_by = PoolPolicy::Bounds::Source::kGpus;
    bounds_.least = std::min(bounds_.least, bounds_.most);
  }
  const Supply supply = this->supply(facts, now_ns);

  PoolDecision decision;
  PoolDecision::Terms& terms = decision.terms;
  terms.start_s_p90 = supply.start_p90_s;
  terms.ready = supply.ready;
  terms.coming = supply.coming;
  terms.draining = supply.draining;
  terms.standby = supply.standby + supply.standby_coming;
  terms.held = supply.held;
  terms.waiting = supply.waiting;

  Need need = this->need(facts, supply, now_ns, terms);
  const bool old = facts_are_old(facts, now_ns);
  decision.alarm = old || !all_speak || demand_.rejected() > rejected || supply.given_up > 0;
  if (old && need.replicas < supply.present()) need = {supply.present(), Reason::kHold};
  const bool may_shrink = !facts.wanted || *facts.wanted > 0;
  if (is_learning(supply, old, now_ns) && may_shrink && need.replicas < supply.present()) {
    need = {supply.present(), Reason::kHold};
  }
  need = bounded(need);
  const bool has_roles = pair_ || facts.wanted;
  if (!old && !has_roles) need = delayed(need, supply, now_ns, terms);
  decision.desired = need.replicas;
  decision.reason = need.reason;
  if (!old && !facts.wanted) retire(facts, supply, now_ns, decision);
  order(facts, supply, now_ns, decision);
  note_direction(decision, supply, now_ns);
  return decision;
}

// What a gateway said to wait and to be in service is so no longer, once it has been silent for so
// long: whom it held has gone, or is another gateway's. True: none has been.
bool PoolScaler::forget_silent(PoolFacts& facts, int64_t now_ns) {
  bool all_speak = true;
  for (GatewayReport& one : facts.gateways) {
    if (!is_silent(one, now_ns)) continue;
    one.held = 0;
    one.in_service = 0;
    all_speak = false;
  }
  return all_speak;
}

void PoolScaler::learn(const PoolFacts& facts) {
  int slots = 0;
  for (const ReplicaFacts& one : facts.replicas) slots = std::max(slots, one.slots);
  if (slots > 0) slots_ = slots;
  if (policy_.rule == PoolPolicy::Rule::kSlo) slo_tracker_.learn(facts, slots_);
  // Both are in the order of their ids: who is there no more is passed over.
  auto known = seen_ready_.begin();
  std::string_view last;
  for (const ReplicaFacts& one : facts.replicas) {
    while (known != seen_ready_.end() && known->first < one.id) {
      known = known->first == last ? std::next(known) : seen_ready_.erase(known);
    }
    last = one.id;
    const bool is_known = known != seen_ready_.end() && known->first == one.id;
    const bool is_ready = one.phase == ReplicaPhase::kReady || one.phase == ReplicaPhase::kStandby;
    if (!is_known) known = seen_ready_.emplace_hint(known, one.id, false);
    // One that was ready when it was first seen, or that somebody else has ordered, says nothing of
    // how long a start takes.
    if (is_ready && is_known && !known->second && one.ordered_ns > 0 && !one.found) {
      starts_.note(static_cast<double>(one.ready_ns - one.ordered_ns) * 1e-9);
    }
    known->second = known->second || is_ready;
  }
  if (known != seen_ready_.end() && known->first == last) ++known;
  seen_ready_.erase(known, seen_ready_.end());
}

// Of one that starts: it comes no more, or so late that nobody counts on it.
bool PoolScaler::is_given_up(const ReplicaFacts& one, double start_p90_s, int64_t now_ns) {
  constexpr double kLate = 2;  // times the expected start, without progress
  return now_ns - std::max(one.ordered_ns, one.progress_ns) > nanoseconds(kLate * start_p90_s);
}

PoolScaler::Supply PoolScaler::supply(const PoolFacts& facts, int64_t now_ns) const {
  Supply supply;
  supply.start_p50_s = starts_.percentile(0.5, facts.start_s_assumed);
  supply.start_p90_s = starts_.percentile(0.9, facts.start_s_assumed);
  supply.slots = slots_ > 0 ? slots_ : std::max(facts.slots_assumed, 1);
  int free_slots = 0;
  int waiting = 0;
  for (const ReplicaFacts& one : facts.replicas) {
    switch (one.phase) {
      case ReplicaPhase::kOrdered:
      case ReplicaPhase::kStarting: {
        const bool late = is_given_up(one, supply.start_p90_s, now_ns);
        ++(late ? supply.given_up : one.stands_by ? supply.standby_coming : supply.coming);
        if (!late && !one.stands_by) {
          const double since_order_s = static_cast<double>(now_ns - one.ordered_ns) * 1e-9;
          supply.ahead_s.push_back(std::clamp(since_order_s, 0.0, supply.start_p50_s));
        }
        break;
      }
      case ReplicaPhase::kReady:
        ++supply.ready;
        supply.running += std::max(one.running, 0);
        supply.kv_used += std::isfinite(one.kv_used) ? std::clamp(one.kv_used, 0.0, 1.0) : 1.0;
        free_slots += std::max(one.slots - one.running, 0);
        waiting += std::max(one.waiting, 0);
        break;
      case ReplicaPhase::kStandby:
        ++supply.standby;
        break;
      case ReplicaPhase::kDraining:
        ++supply.draining;
        break;
    }
  }
  for (const GatewayReport& one : facts.gateways) {
    supply.held += std::max(one.held, 0);
    supply.in_service += std::max(one.in_service, 0);
  }
  supply.waiting = std::max(waiting + supply.held - free_slots, 0);
  return supply;
}

bool PoolScaler::facts_are_old(const PoolFacts& facts, int64_t now_ns) const {
  if (facts.gateways.empty()) return true;
  return now_ns - demand_.last_report_ns() > kFactsAgeMax_ns;
}

// Who has just begun and found replicas knows nothing of what they are needed for: for a window of
// facts none goes.
bool PoolScaler::is_learning(const Supply& supply, bool facts_are_old, int64_t now_ns) {
  if (!facts_are_old && !has_begun_) {
    has_begun_ = true;
    if (supply.present() > 0) found_ns_ = now_ns;
  }
  return found_ns_ >= 0 && now_ns - found_ns_ < nanoseconds(policy_.window_s);
}

double PoolScaler::service_s(const Demand::Window& window, const PoolFacts& facts) const {
  if (window.finished >= kFinishedFewest) return window.service_s;
  const Demand::Lately lately = demand_.lately();
  return lately.finished >= kFinishedFewest ? lately.service_s : facts.service_s_assumed;
}

PoolScaler::Need PoolScaler::need(const PoolFacts& facts, const Supply& supply, int64_t now_ns,
                                  PoolDecision::Terms& terms) {
  Need need;
  if (pair_ || facts.wanted) return role_need(facts, supply, now_ns, terms);
  if (policy_.rule == PoolPolicy::Rule::kKnative) {
    const Demand::Window slow = demand_.over(policy_.window_s, now_ns);
    const Demand::Window panic =
        demand_.over(policy_.window_s * policy_.panic_window_share, now_ns);
    need.replicas = knative_.desired(slow.in_service + slow.held, panic.in_service + panic.held,
                                     supply.ready, now_ns);
    need.reason = knative_.in_panic() ? Reason::kPanic : Reason::kDemand;
    terms.by_demand = need.replicas;
    terms.rate = terms.rate_slow = slow.rate;
    terms.service_s = slow.service_s;
    // From nothing a single request that waits is enough.
    if (need.replicas == 0 && supply.held > 0) need.replicas = 1;
    return need;
  }
  need = concurrency_need(facts, supply, now_ns, terms);
  terms.by_guard = guard_need(facts, supply, now_ns, terms);
  if (terms.by_guard > need.replicas) need = {terms.by_guard, Reason::kGuard};
  return need;
}

double PoolScaler::backlog_s(const Supply& supply) const {
  constexpr double kBacklog_s = 30;
  return policy_.backlog_s.value_or(std::max(kBacklog_s, supply.start_p50_s / 4));
}

int64_t PoolScaler::scale_down_delay_ns(const Supply& supply) const {
  constexpr double kStarts = 10;
  constexpr double kDelay_s = 300;
  const bool by_knative = policy_.rule == PoolPolicy::Rule::kKnative;
  const double otherwise_s = by_knative
                                 ? 0
                                 : std::clamp(kStarts * supply.start_p50_s,
                                              std::min(policy_.window_s, kDelay_s), kDelay_s);
  return nanoseconds(policy_.scale_down_delay_s.value_or(otherwise_s));
}

// What will wait when a replica that is ordered now is ready: what waits now and comes meanwhile,
// less what those that are there, and those that come before it, serve until then.
//
// 600 wait, 2 a second come, a start takes 300 s and a replica serves 2 a second. With none coming
// 1 200 will wait; with five that were ordered 100 s ago, 1 200 - 5 x 2 x 100 = 200.
double PoolScaler::backlog_ahead(const Supply& supply, const PoolDecision::Terms& terms) {
  const double rate_each = terms.concurrency_target / std::max(terms.service_s, 1e-3);
  double waiting = supply.waiting + (terms.rate - supply.ready * rate_each) * supply.start_p50_s;
  for (const double ahead_s : supply.ahead_s) waiting -= rate_each * ahead_s;
  return std::max(waiting, 0.0);
}

double PoolScaler::flow(double rate, double spare, const Supply& supply,
                        const PoolDecision::Terms& terms) const {
  const double in_service = rate * terms.service_s;
  const double slots =
      policy_.target_utilization ? in_service / *policy_.target_utilization : staffed(in_service);
  const double by_slots = slots / terms.concurrency_target;
  if (!slo_) return by_slots;
  // Nothing comes: nothing is needed. A number that is out of reach is bounded later, so its bound
  // must lie beyond what there may be.
  const int most = std::max(bounds_.most, supply.present()) + 1;
  const double by_objective = rate > 0 ? slo_->least(rate / (1 - spare), most) : 0;
  return policy_.concurrency_target ? std::max(by_slots, by_objective) : by_objective;
}

PoolScaler::Need PoolScaler::concurrency_need(const PoolFacts& facts, const Supply& supply,
                                              int64_t now_ns, PoolDecision::Terms& terms) {
  const Demand::Window slow = demand_.over(policy_.window_s, now_ns);
  const Demand::Window fast = demand_.over(demand_.fast_s(), now_ns);
  terms.rate_slow = slow.rate;
  terms.rate_fast = fast.rate;
  terms.rate = fast.rate > kRateRises * slow.rate ? fast.rate : slow.rate;
  terms.service_s = service_s(slow, facts);
  terms.concurrency_target = policy_.concurrency_target.value_or(supply.slots);

  slo_.reset();
  if (policy_.rule == PoolPolicy::Rule::kSlo) {
    slo_ = slo_tracker_.update(
        slow, {.ready = supply.ready, .service_s = terms.service_s, .now_ns = now_ns}, terms.slo);
  }
  const auto flow = [&](double rate) { return this->flow(rate, kSpare, supply, terms); };
  terms.flow = flow(terms.rate);
  terms.backlog_ahead = backlog_ahead(supply, terms);
  terms.backlog =
      terms.backlog_ahead * terms.service_s / (terms.concurrency_target * backlog_s(supply));
  // A backlog is worked off and gone, a burst passes: only what has come for a whole window is held
  // against scaling down.
  terms.by_flow = replica_count(this->flow(slow.rate, kSpareToGo, supply, terms));
  Need need;
  if (slo_) need.reason = Reason::kObjective;
  // Nothing runs and requests wait: their rate since a moment ago says little, their number all.
  const bool from_zero = supply.present() == 0 && supply.held > 0;
  if (from_zero) {
    terms.backlog_ahead = supply.waiting;
    terms.backlog =
        supply.waiting * terms.service_s / (terms.concurrency_target * backlog_s(supply));
  }
  terms.by_demand = from_zero ? std::max(replica_count(terms.backlog), 1)
                              : replica_count(terms.flow + terms.backlog);
  need.replicas = terms.by_demand;

  const int fast_need = from_zero ? 0 : replica_count(flow(fast.rate) + terms.backlog);
  if (fast_need >= policy_.panic_threshold * std::max(supply.ready, 1)) {
    if (!in_panic_) panic_max_ = 0;
    in_panic_ = true;
    panic_ns_ = now_ns;
  } else if (in_panic_ && now_ns - panic_ns_ > nanoseconds(policy_.window_s)) {
    in_panic_ = false;
  }
  if (in_panic_) {
    // What was started for this panic stays for a window, and is not asked for twice.
    panic_max_ = std::max({panic_max_, need.replicas, std::min(fast_need, supply.present())});
    terms.by_panic = panic_max_;
    if (panic_max_ > need.replicas) need = {panic_max_, Reason::kPanic};
  }

  trend_.note(fast.rate, now_ns);
  if (const auto ahead = trend_.ahead(supply.start_p90_s + kTick_s)) {
    terms.by_forecast = replica_count(flow(*ahead));
    if (terms.by_forecast > need.replicas) need = {terms.by_forecast, Reason::kForecast};
  }
  return need;
}

// The delay of less is the decision's own.
PoolScaler::Need PoolScaler::role_need(const PoolFacts& facts, const Supply& supply, int64_t now_ns,
                                       PoolDecision::Terms& terms) {
  const Demand::Window slow = demand_.over(policy_.window_s, now_ns);
  const Demand::Window fast = demand_.over(demand_.fast_s(), now_ns);
  terms.rate_slow = slow.rate;
  terms.rate_fast = fast.rate;
  terms.rate = slow.rate;
  terms.service_s = service_s(slow, facts);
  terms.concurrency_target = policy_.concurrency_target.value_or(supply.slots);
  Need need{.reason = Reason::kObjective};
  if (facts.wanted) {
    need.replicas = *facts.wanted;
    terms.by_demand = need.replicas;
    return need;
  }
  // From facts that are old nothing is learnt.
  if (!facts_are_old(facts, now_ns)) {
    pair_->decide(facts, {.slow = slow,
                          .fast = fast,
                          .backlog_s = backlog_s(supply),
                          .decode_min = bounds_.least,
                          .now_ns = now_ns});
  }
  const PoolDecision::Roles& roles = pair_->roles();
  terms.roles = roles;
  if (roles.is_known) {
    const PairDecision& pair = roles.pair;
    terms.slo.is_missed = pair.first_token_late > 1 || pair.gap_late > 1;
    const auto forecast = [](double late, const std::optional<double>& asked) {
      return late < PairDecision::kOverloaded ? late * asked.value_or(0) : 0;
    };
    terms.slo.first_token_s = forecast(pair.first_token_late, policy_.slo.first_token_s);
    terms.slo.gap_s = forecast(pair.gap_late, policy_.slo.gap_s);
  }
  terms.rate = roles.rate;
  need.replicas = terms.by_demand = roles.pair.counts.decode;
  if (roles.pair.at_ceiling) {
    need.reason = policy_.gpus_max    ? Reason::kGpus
                  : policy_.price_max ? Reason::kPrice
                                      : Reason::kMaximum;
  }
  // One more of those that go on, where both together may be one more.
  const int most = std::min(policy_.affordable() - roles.pair.counts.prefill, bounds_.most);
  terms.by_guard = std::min(guard_need(facts, supply, now_ns, terms), most);
  if (terms.by_guard > need.replicas) need = {terms.by_guard, Reason::kGuard};
  return need;
}

bool PoolScaler::wait_is_long(const Supply& supply, const PoolDecision::Terms& terms) const {
  if (!policy_.slo.first_token_s || supply.waiting == 0) return false;
  const double wait_s = supply.waiting * terms.service_s / (supply.slots * supply.ready);
  return wait_s > *policy_.slo.first_token_s / 2;
}

// One more than there are, once in the time that a start takes.
int PoolScaler::guard_need(const PoolFacts& facts, const Supply& supply, int64_t now_ns,
                           const PoolDecision::Terms& terms) {
  if (supply.ready == 0) return 0;
  int queued = 0;
  for (const ReplicaFacts& one : facts.replicas) {
    if (one.phase == ReplicaPhase::kReady) queued += std::max(one.waiting, 0);
  }
  const bool kv_full = supply.kv_used / supply.ready >= kKvNearlyFull;
  const bool queue_long = queued >= kQueueLong * supply.ready || wait_is_long(supply, terms);
  if (!kv_full && !queue_long) {
    guarded_ns_ = -1;
    return 0;
  }
  const bool asked = guarded_ns_ >= 0 && now_ns - guarded_ns_ < nanoseconds(supply.start_p90_s);
  if (asked) return supply.present();
  guarded_ns_ = now_ns;
  return supply.present() + 1;
}

PoolScaler::Need PoolScaler::bounded(Need need) const {
  if (need.replicas < bounds_.least) {
    const bool scheduled = bounds_.least_by == PoolPolicy::Bounds::Source::kSchedule;
    return {bounds_.least, scheduled ? Reason::kSchedule : Reason::kMinimum};
  }
  if (need.replicas > bounds_.most) return {bounds_.most, ceiling_reason(bounds_.most_by)};
  return need;
}

// Fewer than there are: later, in steps, and only as many as can be spared.
PoolScaler::Need PoolScaler::delayed(Need need, const Supply& supply, int64_t now_ns,
                                     PoolDecision::Terms& terms) {
  const int64_t delay_ns = scale_down_delay_ns(supply);
  const int64_t window_ns = nanoseconds(policy_.window_s);
  const bool by_concurrency = policy_.rule != PoolPolicy::Rule::kKnative;
  const int lasting = by_concurrency ? std::max(terms.by_flow, terms.by_forecast) : need.replicas;
  terms.over_delay = greatest_need_.note(std::min(lasting, bounds_.most), now_ns, delay_ns);
  const int present = supply.present();
  // What is beyond a ceiling is given back at once; fewer than it allows go as they otherwise do.
  if (present > bounds_.most) return {bounds_.most, ceiling_reason(bounds_.most_by)};
  if (!by_concurrency) {  // all at once, once the delay is over
    // What was needed under a greater maximum than a schedule gives now.
    const int kept = std::min(terms.over_delay, bounds_.most);
    return kept > need.replicas ? Need{kept, Reason::kDelay} : need;
  }
  if (need.replicas >= present) {
    // The other direction within a window only where requests wait, or the load has jumped.
    const bool just_down = last_drain_ns_ >= 0 && now_ns - last_drain_ns_ < window_ns;
    const bool urgent = supply.waiting > 0 || in_panic_ || need.replicas <= bounds_.least;
    if (need.replicas > present && just_down && !urgent && present > 0) {
      // One that has been lost meanwhile is replaced, as far as the minimum goes.
      return bounded({present, Reason::kOneDirection});
    }
    return need;
  }
  if (need.replicas < terms.over_delay) need = {terms.over_delay, Reason::kDelay};
  if (need.replicas >= present) return {present, Reason::kDelay};
  if (last_up_ns_ >= 0 && now_ns - last_up_ns_ < window_ns) {
    return {present, Reason::kOneDirection};
  }
  // One step in each delay; what it allows need not go at once, as some may be too young.
  const bool in_step = last_down_ns_ >= 0 && now_ns - last_down_ns_ < delay_ns;
  const int surplus = present - need.replicas;
  const int step = in_step ? step_left_ : replica_count(surplus * policy_.scale_down_rate_max);
  if (step == 0) return {present, Reason::kDelay};
  // The last one goes by its own rule: retire().
  const int most = std::min(step, present - std::max(need.replicas, 1));
  const int drop = affordable_drop(most, supply, terms);
  if (drop < most) need.reason = Reason::kSurvivors;
  if (!in_step) step_left_ = most;
  return {present - drop, need.reason};
}

int PoolScaler::affordable_drop(int drop, const Supply& supply,
                                const PoolDecision::Terms& terms) const {
  const double load_max = std::max(kSurvivorLoadMax, policy_.target_utilization.value_or(0));
  const double target = terms.concurrency_target > 0
                            ? terms.concurrency_target
                            : policy_.concurrency_target.value_or(supply.slots);
  for (; drop > 0; --drop) {
    const int stay = supply.ready - drop;  // those that come do not carry anything yet
    if (stay <= 0) continue;
    const double load = (supply.running + supply.waiting) / (target * stay);
    if (load <= load_max && supply.kv_used / stay <= kSurvivorLoadMax) return drop;
  }
  return 0;
}

// From one to none: announced first, so that no request is sent to a replica that goes.
void PoolScaler::retire(const PoolFacts& facts, const Supply& supply, int64_t now_ns,
                        PoolDecision& decision) {
  const int64_t idle_ns = now_ns - demand_.last_request_ns();
  const bool idle = bounds_.least == 0 && supply.held == 0 && supply.in_service == 0 &&
                    supply.running == 0 && supply.waiting == 0 &&
                    idle_ns >= nanoseconds(policy_.idle_to_zero_s) && demand_.last_report_ns() > 0;
  // Others take the GPUs of all of it: gateways hold what comes, however much that is.
  const bool is_displaced = bounds_.most == 0;
  if ((!idle && !is_displaced) || decision.desired > 1) {
    retirement_ = 0;
    if (supply.present() > 0) decision.desired = std::max(decision.desired, 1);
    return;
  }
  if (supply.present() == 0) {
    decision.desired = 0;
    if (idle) decision.reason = Reason::kIdle;
    return;
  }
  // What is beyond a ceiling goes first. Who has just been started for some reason is not the last
  // one because a ceiling has fallen.
  if (supply.present() > std::max(bounds_.most, 1)) {
    retirement_ = 0;
    decision.desired = std::max(decision.desired, 1);
    return;
  }
  // One that says nothing may send requests all the same, so the last replica stays; and that the
  // others hold theirs would be for nothing.
  const auto silent = [&](const GatewayReport& one) { return is_silent(one, now_ns); };
  if (std::ranges::any_of(facts.gateways, silent)) {
    retirement_ = 0;
    decision.desired = 1;
    decision.reason = Reason::kSilentGateway;
    return;
  }
  if (retirement_ == 0) {
    retirement_ = ++retirements_;
    retirement_ns_ = now_ns;
  }
  decision.retirement = retirement_;
  if (idle) decision.reason = Reason::kIdle;
  const bool all_hold =
      std::all_of(facts.gateways.begin(), facts.gateways.end(), [&](const GatewayReport& one) {
        return one.holds_for == retirement_ && one.at_ns >= retirement_ns_;
      });
  decision.desired = all_hold ? 0 : 1;
}

// What is there already goes first: those that drain, then those that stand by, then those that
// start to.
void PoolScaler::order(const PoolFacts& facts, const Supply& supply, int64_t now_ns,
                       PoolDecision& decision) {
  int missing = std::max(decision.desired - supply.present(), 0);
  const auto each = [&](auto&& is_meant, std::vector<std::string>& ids) {
    for (const ReplicaFacts& one : facts.replicas) {
      if (missing == 0) return;
      if (!is_meant(one) || !one.healthy || one.reclaimed) continue;
      ids.push_back(one.id);
      --missing;
    }
  };
  each([](const auto& one) { return one.phase == ReplicaPhase::kDraining; }, decision.recall);
  each([](const auto& one) { return one.phase == ReplicaPhase::kStandby; }, decision.wake);
  each(
      [&](const auto& one) {
        return one.stands_by && one.phase != ReplicaPhase::kStandby &&
               !is_given_up(one, supply.start_p90_s, now_ns);
      },
      decision.wake);
  int room = std::max(bounds_.most - supply.running_all(), 0);
  if (facts.room) room = std::min(room, std::max(*facts.room, 0));
  const bool may_start = now_ns >= facts.start_again_ns;
  if (may_start) decision.start = std::min(missing, room);
  drain_surplus(facts, supply, now_ns, decision);
  fill_standby(facts, supply, may_start ? room - decision.start : 0, decision);
}

// Those that drain will stand by where some are wanting; of those that stand by some go where there
// are more than there are to be, or than there may be beside those that serve.
void PoolScaler::fill_standby(const PoolFacts& facts, const Supply& supply, int room,
                              PoolDecision& decision) const {
  const auto woken = static_cast<int>(decision.wake.size());
  const int standby = supply.standby + supply.standby_coming - woken;
  const auto drained =
      std::count_if(facts.replicas.begin(), facts.replicas.end(), [](const ReplicaFacts& one) {
        return one.phase == ReplicaPhase::kDraining && one.healthy && !one.reclaimed;
      });
  const auto wanting = policy_.standby - standby - drained + std::ssize(decision.recall);
  if (decision.drain.empty()) {
    decision.start_standby = std::clamp(static_cast<int>(wanting), 0, room);
    decision.start += decision.start_standby;
  }
  int excess =
      std::max(standby - policy_.standby, supply.present() + woken + standby - bounds_.most);
  for (const ReplicaFacts& one : facts.replicas) {
    if (excess <= 0) return;
    const bool is_woken = std::ranges::find(decision.wake, one.id) != decision.wake.end();
    if (one.phase != ReplicaPhase::kStandby || is_woken) continue;
    decision.dismiss.push_back(one.id);
    --excess;
  }
}

void PoolScaler::drain_surplus(const PoolFacts& facts, const Supply& supply, int64_t now_ns,
                               PoolDecision& decision) {
  int surplus = supply.present() - decision.desired;
  if (surplus <= 0) return;
  std::vector<const ReplicaFacts*> victims;
  // How young the youngest may be. Beyond a ceiling, and by Knative's arithmetic, as young as it
  // is.
  int64_t age_min_ns = std::max(kVictimAgeMin_ns, nanoseconds(2 * supply.start_p90_s));
  if (policy_.rule == PoolPolicy::Rule::kKnative) age_min_ns = 0;
  if (supply.present() > bounds_.most && decision.desired > 0) {
    age_min_ns = 0;
    // Those that start serve nobody yet: for their sake none of those goes that the ceiling allows.
    surplus = std::min(surplus, std::max(supply.ready - bounds_.most, 0));
  }
  for (const ReplicaFacts& one : facts.replicas) {
    if (one.phase != ReplicaPhase::kReady) continue;
    const bool old_enough = now_ns - one.ready_ns >= age_min_ns;
    if (old_enough || one.reclaimed || !one.healthy || decision.desired == 0)
      victims.push_back(&one);
  }
  std::stable_sort(victims.begin(), victims.end(), [](const auto* a, const auto* b) {
    if (a->reclaimed != b->reclaimed) return a->reclaimed;
    if (a->healthy != b->healthy) return b->healthy;
    if (a->price != b->price) return a->price > b->price;
    if (a->kept_value != b->kept_value) return a->kept_value < b->kept_value;
    return a->ready_ns > b->ready_ns;
  });
  for (const ReplicaFacts* one : victims) {
    if (surplus-- == 0) break;
    decision.drain.push_back(one->id);
  }
}

void PoolScaler::note_direction(const PoolDecision& decision, const Supply& supply,
                                int64_t now_ns) {
  const bool up =
      decision.start > decision.start_standby || !decision.wake.empty() || !decision.recall.empty();
  if (up && decision.desired > supply.present()) last_up_ns_ = now_ns;
  if (decision.drain.empty()) return;
  last_drain_ns_ = now_ns;
  const bool in_step = last_down_ns_ >= 0 && now_ns - last_down_ns_ < scale_down_delay_ns(supply);
  if (!in_step) last_down_ns_ = now_ns;
  step_left_ = std::max(step_left_ - static_cast<int>(decision.drain.size()), 0);
}

}  // namespace pelton::autoscaler
