#include "simulator/pool_control.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <utility>

#include <fmt/format.h>

#include "autoscaler/facts_log.h"
#include "base/random.h"

namespace pelton::simulator {
namespace {

constexpr uint64_t kStartStream = 0x737461727473;
constexpr uint64_t kFactsStream = 0x6661637473;

double seconds(int64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

// By Box and Muller.
double standard_normal(double first, double second) {
  constexpr double kLeast = 1e-300;
  return std::sqrt(-2 * std::log(std::max(first, kLeast))) *
         std::cos(2 * std::numbers::pi * second);
}

// Of a start alone.
double fetched_per_s(const StartPhase& phase) {
  return phase.shared_bytes_per_s > 0 ? std::min(phase.bytes_per_s, phase.shared_bytes_per_s)
                                      : phase.bytes_per_s;
}

Result<void> check_phases(const std::vector<StartPhase>& phases) {
  constexpr double kDay_s = 86'400;
  int fetching = 0;
  for (const StartPhase& phase : phases) {
    const bool is_time =
        phase.seconds >= 0 && phase.seconds <= kDay_s && phase.p90_s >= 0 && phase.p90_s <= kDay_s;
    const bool is_fetch = phase.bytes > 0 && phase.bytes_per_s > 0 && phase.shared_bytes_per_s >= 0;
    fetching += phase.bytes != 0 ? 1 : 0;
    if (is_time && (phase.bytes == 0 || is_fetch) && fetching < 2) continue;
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("phase '{}' must take 0 to 86400 seconds, and one at most fetches", phase.name),
        "phases"};
  }
  return {};
}

}  // namespace

double Autoscaling::start_seconds() const {
  if (phases.empty()) return start_s;
  double sum = 0;
  for (const StartPhase& phase : phases) {
    sum += phase.seconds;
    if (phase.bytes > 0) sum += phase.bytes / fetched_per_s(phase);
  }
  return sum;
}

Result<void> Autoscaling::check() const {
  constexpr double kDay_s = 86'400;
  const auto bad = [](const char* field, const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, what, field};
  };
  TRY(policy.check());
  if (replicas < 0 || replicas > policy.replicas_max) {
    return bad("replicas",
               fmt::format("replicas at the beginning must be 0 to {}", policy.replicas_max));
  }
  if (prefill_replicas < 0 || prefill_replicas > prefill_max()) {
    return bad("prefill_replicas",
               fmt::format("of those that compute prompts 0 to {} must be ready at the beginning",
                           prefill_max()));
  }
  // Not below the clock's resolution, and not nothing at all: that a start takes time is the point.
  if (!(start_seconds() >= 1e-3 && start_seconds() <= kDay_s)) {
    return bad("start_seconds", "a start must take 0.001 to 86400 seconds");
  }
  TRY(check_phases(phases));
  if (!(tick_s >= 0.01 && tick_s <= 3600)) return bad("tick_s", "tick_s must be 0.01 to 3600");
  if (!(facts_delay_s >= 0 && facts_delay_s <= 600)) {
    return bad("facts-delay", "facts-delay must be 0 to 600 seconds");
  }
  if (!(facts_lost >= 0 && facts_lost <= 1)) {
    return bad("facts-lost", "facts-lost must be 0 to 1");
  }
  if (held_max < 0) return bad("held_max", "held_max must not be negative");
  if (!(hold_s_max > 0)) return bad("hold_s_max", "hold_s_max must be above 0");
  return {};
}

PoolControl::PoolControl(const Options& options)
    : options_(options), replicas_(static_cast<size_t>(options.asked.replicas_max())) {
  report_.gateway = "gateway";
  report_.incarnation = 1;
  const Autoscaling& asked = options.asked;
  const auto prefill_max = static_cast<size_t>(asked.prefill_max());
  sides_.reserve(2);
  sides_.emplace_back(asked.policy, asked.pool, prefill_max, replicas_.size());
  if (prefill_max > 0) {  // as apps/scaled_pools.cc makes it
    autoscaler::PoolPolicy policy = asked.policy;
    policy.replicas_min = 0;
    policy.replicas_max = asked.prefill_max();
    policy.prefill.reset();
    policy.schedules.clear();
    sides_.emplace_back(policy, asked.pool + ":prefill", 0, prefill_max);
  }
  const auto stood = [&](size_t begin, int count) {
    for (size_t i = begin; i < begin + static_cast<size_t>(count); ++i) {
      // They were there before: their age keeps none of them from going.
      replicas_[i] = {.phase = Phase::kReady, .ready_ns = -3'600'000'000'000};
      replicas_[i].id = id_of(replicas_[i]);
    }
  };
  for (const StartPhase& phase : asked.phases) {
    if (phase.bytes <= 0) continue;
    fetches_.emplace(StartFetches::Options{.bytes_per_s = phase.bytes_per_s,
                                           .shared_bytes_per_s = phase.shared_bytes_per_s});
  }
  stood(prefill_max, asked.replicas);
  stood(0, asked.prefill_replicas);
  most_ = asked.replicas + asked.prefill_replicas;
  if (!asked.record) return;
  for (const Side& side : sides_) asked.record(autoscaler::begin_line(side.pool, side.policy, {}));
}

PoolControl::Side& PoolControl::side_of(const Replica& replica) {
  const auto place = static_cast<size_t>(&replica - replicas_.data());
  return place < sides_.front().begin ? sides_.back() : sides_.front();
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

void PoolControl::note_amounts(int64_t now_ns, const Amounts& amounts) {
  pass(now_ns);
  report_.requests = amounts.requests;
  report_.finished = amounts.finished;
  held_ = static_cast<int>(std::lround(std::min<double>(amounts.held, INT32_MAX)));
  in_service_ = static_cast<int>(std::lround(std::min<double>(amounts.in_service, INT32_MAX)));
}

std::string PoolControl::id_of(const Replica& replica) const {
  return fmt::format("{}.{}", &replica - replicas_.data(), replica.starts);
}

size_t PoolControl::place_of(const std::string& id) const {
  size_t place = 0;
  std::from_chars(id.data(), id.data() + id.find('.'), place);
  return place;
}

autoscaler::ReplicaFacts PoolControl::facts_of(size_t place, int64_t now_ns,
                                               const ReplicaState& state) const {
  const Replica& one = replicas_[place];
  auto phase = one.phase == Phase::kReady     ? autoscaler::ReplicaPhase::kReady
               : one.phase == Phase::kStandby ? autoscaler::ReplicaPhase::kStandby
                                              : autoscaler::ReplicaPhase::kDraining;
  int64_t progress_ns = one.ordered_ns;
  if (one.phase == Phase::kOrdered) {
    const auto ended = std::upper_bound(one.progress_ns.begin(), one.progress_ns.end(), now_ns);
    const bool is_first = ended == one.progress_ns.begin() && !one.progress_ns.empty();
    phase = is_first ? autoscaler::ReplicaPhase::kOrdered : autoscaler::ReplicaPhase::kStarting;
    if (ended != one.progress_ns.begin()) progress_ns = *std::prev(ended);
  }
  return {.id = one.id,
          .phase = phase,
          .ordered_ns = one.ordered_ns,
          .progress_ns = progress_ns,
          // Nobody knows beforehand when one will be.
          .ready_ns = one.phase == Phase::kOrdered ? 0 : one.ready_ns,
          .slots = options_.slots,
          .running = state.running,
          .waiting = state.queued,
          .kv_used = state.kv_used,
          .model = options_.model,
          .stands_by = one.phase == Phase::kOrdered && one.stands_by};
}

void PoolControl::renew_report(int64_t now_ns) {
  pass(now_ns);
  ++report_.sequence;
  report_.held = held_;
  report_.in_service = in_service_;
  report_.at_ns = now_ns;
}

// It comes after the delay, unless it is lost or cut off.
void PoolControl::send_facts(int64_t now_ns, std::span<const ReplicaState> replicas) {
  renew_report(now_ns);
  const uint64_t stream = options_.seed ^ kFactsStream;
  const bool is_lost =
      cuts_ > 0 || base::random_unit(stream, facts_drawn_++) < options_.asked.facts_lost;
  if (!is_lost) sent_.push_back({report_, {replicas.begin(), replicas.end()}});
}

// What has come by now is what is known.
void PoolControl::hear(int64_t now_ns) {
  const int64_t delay_ns = facts_delay_ns();
  bool any = false;
  while (cuts_ == 0 && !sent_.empty() && sent_.front().report.at_ns + delay_ns <= now_ns) {
    heard_ = std::move(sent_.front());
    heard_->report.at_ns += delay_ns;
    sent_.pop_front();
    any = true;
  }
  if (!any) ++facts_unheard_;
}

// As launch/fleet_scaler gathers them.
autoscaler::PoolFacts PoolControl::facts(const Side& side, int64_t now_ns,
                                         std::span<const ReplicaState> replicas) {
  pass(now_ns);
  const bool loses = loses_facts();
  if (!loses) renew_report(now_ns);
  if (loses && &side == &sides_.front()) {
    if (facts_ahead_ns() == 0) send_facts(now_ns, replicas);
    hear(now_ns);
  }
  std::vector<autoscaler::GatewayReport> gateways;
  if (!loses) gateways = {report_};
  if (loses && heard_) gateways = {heard_->report};
  // How replicas start and end their launcher says, which is where the autoscaler is.
  if (loses && heard_) replicas = heard_->replicas;
  autoscaler::PoolFacts facts{.gateways = std::move(gateways),
                              .replicas = {},
                              .slots_assumed = options_.slots,
                              .service_s_assumed = options_.service_s_assumed,
                              .start_s_assumed = options_.asked.start_seconds(),
                              .start_again_ns = side.start_again_ns,
                              .unix_s = options_.asked.begin_unix_s + now_ns / 1'000'000'000};
  facts.replicas.reserve(side.end - side.begin);
  int there = 0;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    if (replicas_[i].phase == Phase::kGone) continue;
    ++there;
    const bool is_its_own = i >= side.begin && i < side.end;
    if (!is_its_own && &side != &sides_.front()) continue;
    (is_its_own ? facts.replicas : facts.prefill).push_back(facts_of(i, now_ns, replicas[i]));
  }
  if (sides_.size() == 1) return facts;
  const int most = options_.asked.policy.affordable();
  if (most < replicas_max()) facts.room = std::max(most - there, 0);
  if (&side == &sides_.front()) return facts;
  const autoscaler::PoolDecision& led_by = sides_.front().decision;
  facts.wanted = led_by.desired == 0 ? 0 : led_by.terms.roles.pair.counts.prefill;
  return facts;
}

// When it will be ready: the ends of its phases are drawn one after the other.
int64_t PoolControl::order(Replica& replica, int64_t now_ns) {
  replica = {.phase = Phase::kOrdered, .ordered_ns = now_ns, .starts = replica.starts + 1};
  replica.id = id_of(replica);
  std::vector<StartPhase> phases = options_.asked.phases;
  if (phases.empty()) phases = {{.name = "start", .seconds = options_.asked.start_s}};
  double after_s = 0;
  for (const StartPhase& phase : phases) {
    constexpr double kNormal_p90 = 1.2815515655446004;
    const uint64_t stream = options_.seed ^ kStartStream;
    const double first = base::random_unit(stream, draws_++);
    const double second = base::random_unit(stream, draws_++);
    double takes_s = phase.seconds;
    if (phase.seconds > 0 && phase.p90_s > phase.seconds) {
      const double sigma = std::log(phase.p90_s / phase.seconds) / kNormal_p90;
      takes_s *= std::exp(sigma * standard_normal(first, second));
    }
    const double begin_s = after_s;
    if (phase.bytes > 0) takes_s += phase.bytes / fetched_per_s(phase);
    after_s += takes_s * start_factor_;
    replica.progress_ns.push_back(now_ns + static_cast<int64_t>(after_s * 1e9));
    if (replica.fetches) {
      replica.behind_ns.push_back(static_cast<int64_t>((after_s - begin_s) * 1e9));
    } else if (phase.bytes > 0) {
      replica.fetches = replica.progress_ns.size() - 1;
      fetches_->begin(static_cast<int>(&replica - replicas_.data()),
                      now_ns + static_cast<int64_t>((begin_s + phase.seconds) * 1e9),
                      phase.bytes * start_factor_);
    }
  }
  replica.ready_ns = replica.progress_ns.back();
  replica.progress_ns.pop_back();
  if (starts_to_fail_ > 0) {
    --starts_to_fail_;
    replica.fails = true;
  }
  ++started_;
  return replica.ready_ns;
}

// Starts that fetch at the same time slow each other down: their later phases move with that.
void PoolControl::follow_fetches(int64_t now_ns, std::vector<Start>& starts) {
  if (!fetches_) return;
  for (const StartFetches::End& end : fetches_->ends(now_ns)) {
    Replica& one = replicas_[static_cast<size_t>(end.replica)];
    if (one.phase != Phase::kOrdered || !one.fetches) continue;
    const int64_t before_ns = one.ready_ns;
    one.progress_ns.resize(*one.fetches);
    one.progress_ns.push_back(end.at_ns);
    for (const int64_t takes_ns : one.behind_ns) {
      one.progress_ns.push_back(one.progress_ns.back() + takes_ns);
    }
    // What became sooner by a start that was given up is seen at the next decision.
    one.ready_ns = std::max(one.progress_ns.back(), now_ns);
    one.progress_ns.pop_back();
    const auto known = std::ranges::find(starts, end.replica, &Start::replica);
    if (known != starts.end()) {
      known->ready_ns = one.ready_ns;
    } else if (one.ready_ns != before_ns) {
      starts.push_back({end.replica, one.ready_ns});
    }
  }
}

// As launch/fleet_scaler does: 1 s until the next attempt, then twice as long each time, to 60 s.
void PoolControl::note_failed_start(Side& side, int64_t now_ns) {
  constexpr double kAgainMax_s = 60;
  constexpr int kFailuresMax = 16;
  ++failed_starts_;
  side.failures = std::min(side.failures + 1, kFailuresMax);
  const double again_s = std::min(std::ldexp(1.0, side.failures - 1), kAgainMax_s);
  side.start_again_ns = now_ns + static_cast<int64_t>(again_s * 1e9);
}

void PoolControl::begin_fault(const Fault& fault) {
  if (fault.kind == Fault::Kind::kStockOut) ++stock_outs_;
  // Whose gateway is gone, to it nobody says anything.
  if (fault.kind == Fault::Kind::kFactsCut || fault.kind == Fault::Kind::kGatewayDown) ++cuts_;
  if (fault.kind == Fault::Kind::kAutoscalerDown) ++downs_;
  if (fault.kind == Fault::Kind::kSlowStart) start_factor_ = fault.factor;
  if (fault.kind == Fault::Kind::kStartError) starts_to_fail_ += fault.count;
}

void PoolControl::end_fault(const Fault& fault) {
  if (fault.kind == Fault::Kind::kStockOut) --stock_outs_;
  if (fault.kind == Fault::Kind::kFactsCut || fault.kind == Fault::Kind::kGatewayDown) --cuts_;
  if (fault.kind == Fault::Kind::kAutoscalerDown) --downs_;
  if (fault.kind == Fault::Kind::kSlowStart) start_factor_ = 1;
}

std::vector<PoolControl::Start> PoolControl::decide(int64_t now_ns,
                                                    std::span<const ReplicaState> replicas) {
  std::vector<Start> starts;
  if (downs_ > 0) {  // nobody decides
    pass(now_ns);
    follow_fetches(now_ns, starts);
    return starts;
  }
  for (Side& side : sides_) decide(side, now_ns, replicas, starts);
  follow_fetches(now_ns, starts);
  note_sample(now_ns);
  return starts;
}

void PoolControl::decide(Side& side, int64_t now_ns, std::span<const ReplicaState> replicas,
                         std::vector<Start>& starts) {
  autoscaler::PoolFacts known = facts(side, now_ns, replicas);
  if (!options_.asked.record) {
    side.decision = side.scaler.decide(std::move(known), now_ns);
  } else {
    side.decision = side.scaler.decide(known, now_ns);
    options_.asked.record(autoscaler::decision_line(side.pool, now_ns, known, side.decision));
  }
  const autoscaler::PoolDecision& decision = side.decision;
  if (&side == &sides_.front() && decision.alarm && decision.reason == autoscaler::Reason::kHold) {
    ++decisions_held_;
  }
  if (&side == &sides_.front()) report_.holds_for = decision.retirement;
  carry_out(decision, now_ns);
  int started = 0;
  for (size_t i = side.begin; i < side.end && started < decision.start; ++i) {
    if (replicas_[i].phase != Phase::kGone) continue;
    if (stock_outs_ > 0) {
      note_failed_start(side, now_ns);
      break;
    }
    const bool stands_by = started >= decision.start - decision.start_standby;
    starts.push_back({static_cast<int>(i), order(replicas_[i], now_ns)});
    replicas_[i].stands_by = stands_by;
    ++started;
  }
  note_direction(side, started);
  note_step(now_ns, side, started);
}

void PoolControl::carry_out(const autoscaler::PoolDecision& decision, int64_t now_ns) {
  for (const std::string& id : decision.recall) replicas_[place_of(id)].phase = Phase::kReady;
  for (const std::string& id : decision.drain) replicas_[place_of(id)].phase = Phase::kDraining;
  for (const std::string& id : decision.wake) {
    Replica& one = replicas_[place_of(id)];
    one.stands_by = false;
    if (one.phase != Phase::kStandby) continue;
    one.phase = Phase::kReady;
    one.ready_ns = now_ns;
  }
  for (const std::string& id : decision.dismiss) end(replicas_[place_of(id)], now_ns);
}

int PoolControl::standby() const {
  return static_cast<int>(std::ranges::count_if(replicas_, [](const Replica& one) {
    return one.phase == Phase::kStandby || (one.phase == Phase::kOrdered && one.stands_by);
  }));
}

void PoolControl::note_direction(Side& side, int started) {
  const autoscaler::PoolDecision& decision = side.decision;
  const auto present = std::count_if(replicas_.begin(), replicas_.end(),
                                     [](const Replica& one) { return one.phase != Phase::kGone; });
  most_ = std::max(most_, static_cast<int>(present));
  const bool up =
      started > decision.start_standby || !decision.recall.empty() || !decision.wake.empty();
  const int direction = up ? 1 : decision.drain.empty() ? 0 : -1;
  if (direction == 0 || direction == side.direction) return;
  if (side.direction != 0) ++direction_changes_;
  side.direction = direction;
}

// Of all roles together, once they have been decided on.
void PoolControl::note_sample(int64_t now_ns) {
  ScalingSample sample{.at_s = seconds(now_ns),
                       .requests = report_.requests,
                       .held = held_,
                       .in_service = in_service_,
                       .prefill_ready = prefill_ready()};
  for (const Side& side : sides_) sample.desired += side.decision.desired;
  if (sides_.size() > 1) sample.prefill_desired = sides_.back().decision.desired;
  for (const Replica& one : replicas_) {
    sample.starting += one.phase == Phase::kOrdered ? 1 : 0;
    sample.ready += one.phase == Phase::kReady ? 1 : 0;
    sample.draining += one.phase == Phase::kDraining ? 1 : 0;
  }
  history_.note(sample);
}

void PoolControl::note_step(int64_t now_ns, const Side& side, int started) {
  const autoscaler::PoolDecision& decision = side.decision;
  const int failed = stock_outs_ > 0 ? decision.start - started : 0;
  const bool changes = started > 0 || failed > 0 || !decision.recall.empty() ||
                       !decision.drain.empty() || !decision.wake.empty() ||
                       !decision.dismiss.empty();
  if (!changes) return;
  history_.note({.at_s = seconds(now_ns),
                 .desired = decision.desired,
                 .started = started,
                 .not_started = failed,
                 .recalled = static_cast<int>(decision.recall.size()),
                 .drained = static_cast<int>(decision.drain.size()),
                 .text = (&side == &sides_.front() ? "" : "prefill: ") + decision.text()});
}

bool PoolControl::become_ready(int replica, int64_t now_ns) {
  Replica& one = replicas_[static_cast<size_t>(replica)];
  if (one.phase != Phase::kOrdered || one.ready_ns > now_ns) return false;
  if (one.fails) {
    note_died(replica, now_ns);
    return false;
  }
  side_of(one).failures = 0;
  one.phase = one.stands_by ? Phase::kStandby : Phase::kReady;
  return true;
}

void PoolControl::note_gone(int replica, int64_t now_ns) {
  Replica& one = replicas_[static_cast<size_t>(replica)];
  if (one.phase == Phase::kDraining && standby() < options_.asked.policy.standby) {
    one.phase = Phase::kStandby;
    return;
  }
  end(one, now_ns);
}

void PoolControl::end(Replica& one, int64_t now_ns) {
  if (one.phase == Phase::kGone) return;
  if (fetches_) fetches_->cancel(static_cast<int>(&one - replicas_.data()), now_ns);
  one.phase = Phase::kGone;
  past_.push_back({.from_ns = std::max<int64_t>(one.ordered_ns, 0), .to_ns = now_ns});
}

void PoolControl::note_died(int replica, int64_t now_ns) {
  Replica& one = replicas_[static_cast<size_t>(replica)];
  if (one.phase == Phase::kOrdered) note_failed_start(side_of(one), now_ns);
  end(one, now_ns);
}

// Those that only compute prompts answer nobody.
bool PoolControl::empty() const {
  const auto first = replicas_.begin() + static_cast<std::ptrdiff_t>(sides_.front().begin);
  return std::none_of(first, replicas_.end(), [](const Replica& one) {
    return (one.phase == Phase::kOrdered && !one.stands_by) || one.phase == Phase::kReady;
  });
}

int PoolControl::ready_between(size_t begin, size_t end) const {
  const auto ready = [](const Replica& one) { return one.phase == Phase::kReady; };
  return static_cast<int>(
      std::ranges::count_if(std::span(replicas_).subspan(begin, end - begin), ready));
}

int PoolControl::ready() const {
  return ready_between(sides_.front().begin, sides_.front().end);
}

int PoolControl::prefill_ready() const {
  return ready_between(0, sides_.front().begin);
}

double PoolControl::replica_seconds(int64_t now_ns) const {
  double sum = 0;
  for (const Past& one : past_)
    sum += seconds(std::max<int64_t>(std::min(one.to_ns, now_ns) - one.from_ns, 0));
  for (const Replica& one : replicas_) {
    if (one.phase == Phase::kGone) continue;
    // What was ordered behind that moment was not there yet.
    sum += seconds(std::max<int64_t>(now_ns - std::max<int64_t>(one.ordered_ns, 0), 0));
  }
  return sum;
}

}  // namespace pelton::simulator
