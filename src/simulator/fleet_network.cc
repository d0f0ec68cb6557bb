// The network between gateways and replicas (network.h), and what gateways make of it as
// gateway::Fleet and gateway::Relay do: a replica that is silent for three seconds is down and its
// requests go elsewhere, a connection that stands still for four while its replica is heard is
// given up, whoever is refused by a replica that has begun anew asks another one. What was said
// before is not said again, and what comes from a replica that was given up is not heard.
#include <algorithm>
#include <utility>

#include "simulator/fleet.h"

namespace pelton::simulator {
namespace {

constexpr int64_t kLook_ns = 50'000'000;         // gateway::Fleet's
constexpr int64_t kBeat_ns = 100'000'000;        // of reports, where replicas are seen as they are
constexpr int64_t kSilence_ns = 4'000'000'000;   // gateway/relay_watch.cc's
constexpr int64_t kReopened_ns = 1'000'000'000;  // the connection to a replica that is down
constexpr int kMovesMax = 16;                    // of an answer; gateway/relay.cc's

}  // namespace

// How things stand in the beginning.
void Fleet::begin_network() {
  network_.emplace(Network::Options{.asked = options_.network,
                                    .seed = options_.seed,
                                    .replicas = static_cast<int>(states_.size())},
                   options_.faults);
  watches_.resize(dispatchers_.size() * states_.size());
  starts_.assign(states_.size(), 0);
  flying_to_.assign(states_.size(), 0);
  for (size_t i = 0; i < states_.size(); ++i) {
    observe(i);
    for (size_t gateway = 0; is_alive(i) && gateway < dispatchers_.size(); ++gateway) {
      connect(0, gateway, i, 0);
      watch(gateway, i).health.note_load({}, 0);
    }
  }
  for (Heard& heard : heard_) heard.states = states_;
  look(0);
}

// A gateway hears of this start of a replica.
void Fleet::connect(int64_t now_ns, size_t gateway, size_t replica, int64_t start) {
  Watch& one = watch(gateway, replica);
  const engine::ExecutorCapacity& capacity = options_.replica.capacity;
  one.health.note_record({.incarnation = std::to_string(start),
                          .slots = capacity.sequences_max,
                          .batch_tokens = capacity.batch_tokens_max},
                         now_ns);
  one.health.note_probe(true);
  if (one.start >= 0 && report_ns_ > 0) {
    dispatchers_[gateway]->note_lost(static_cast<int>(replica));
  }
  one.start = start;
}

bool Fleet::is_reached(int64_t now_ns, size_t gateway, size_t replica) const {
  if (control_ && !states_[replica].is_up) return false;
  return watches_[gateway * states_.size() + replica].health.takes_requests(now_ns);
}

void Fleet::send_over(int64_t now_ns, int64_t leg, request::GenerationRequest asked) {
  const Leg& one = legs_[static_cast<size_t>(leg)];
  const auto replica = static_cast<size_t>(one.replica);
  const size_t gateway = requests_[static_cast<size_t>(one.request)].gateway;
  Watch& seen = watch(gateway, replica);
  if (seen.health.state(now_ns) == cluster::WorkerState::kEjected) seen.health.note_trial(leg + 1);
  flights_.emplace(leg, Flight{.gateway = gateway, .start = seen.start, .asked = std::move(asked)});
  ++flying_to_[replica];
  const auto comes_ns = network_->arrives_ns(now_ns, static_cast<int>(gateway), one.replica);
  if (comes_ns) add({.at_ns = *comes_ns, .kind = Event::Kind::kAsked, .index = leg});
  watch_silence(now_ns, leg, comes_ns);
}

// A replica says something of each answer twice a second: what does not come holds that up, too.
void Fleet::watch_silence(int64_t now_ns, int64_t leg, std::optional<int64_t> comes_ns) {
  if (comes_ns && *comes_ns - now_ns <= kSilence_ns) return;
  add_idle({.at_ns = now_ns + kSilence_ns, .kind = Event::Kind::kStandsStill, .index = leg});
}

void Fleet::reach(int64_t now_ns, int64_t leg) {
  const auto found = flights_.find(leg);
  if (found == flights_.end()) return;  // nobody wants it any more
  Flight& flight = found->second;
  const auto replica = static_cast<size_t>(legs_[static_cast<size_t>(leg)].replica);
  request::GenerationRequest asked = *std::exchange(flight.asked, std::nullopt);
  --flying_to_[replica];
  if (!is_alive(replica) || starts_[replica] != flight.start) {
    const auto back_ns =
        network_->arrives_ns(now_ns, static_cast<int>(flight.gateway), static_cast<int>(replica));
    if (back_ns) add({.at_ns = *back_ns, .kind = Event::Kind::kSentBack, .index = leg});
    return watch_silence(now_ns, leg, back_ns);
  }
  const Result<void> taken = replicas_[replica]->submit(now_ns, leg, std::move(asked));
  if (!taken.ok()) {
    flight.refusal = taken.error().message;
    return say({.at_ns = now_ns, .request = leg, .ended = true, .failed = true});
  }
  schedule(replica);
}

// Nothing that its replica says overtakes what that has said before.
void Fleet::say(const Replica::Update& update) {
  const int64_t leg = update.request;
  const auto found = flights_.find(leg);
  if (found == flights_.end()) {
    ++network_->counts().ignored;
    return;
  }
  Flight& flight = found->second;
  if (flight.is_broken) return;
  const auto comes_ns = network_->arrives_ns(update.at_ns, static_cast<int>(flight.gateway),
                                             legs_[static_cast<size_t>(leg)].replica);
  flight.is_broken = !comes_ns;
  if (comes_ns) {
    flight.comes_ns = std::max(flight.comes_ns, *comes_ns);
    flight.answers.push_back(update);
    add({.at_ns = flight.comes_ns, .kind = Event::Kind::kAnswered, .index = leg});
  }
  watch_silence(update.at_ns, leg, comes_ns ? std::optional(flight.comes_ns) : std::nullopt);
}

void Fleet::hear(int64_t now_ns, int64_t leg) {
  const auto found = flights_.find(leg);
  if (found == flights_.end()) {
    ++network_->counts().ignored;
    return;
  }
  Flight& flight = found->second;
  Replica::Update update = std::move(flight.answers.front());
  flight.answers.pop_front();
  update.at_ns = now_ns;
  const Leg one = legs_[static_cast<size_t>(leg)];
  const std::string refusal = flight.refusal;
  if (update.ended) {
    watch(flight.gateway, static_cast<size_t>(one.replica))
        .health.note_outcome(update.failed ? cluster::WorkerHealth::Outcome::kNeither
                                           : cluster::WorkerHealth::Outcome::kServed,
                             leg + 1, now_ns);
    flights_.erase(found);
  }
  if (refusal.empty() || one.kind != Leg::Kind::kWhole) {
    take(update);
  } else {
    refused(now_ns, leg, refusal);
  }
  if (control_) send_held(now_ns);
}

// Who has begun goes on elsewhere; the others hear why.
void Fleet::refused(int64_t now_ns, int64_t leg, const std::string& why) {
  legs_[static_cast<size_t>(leg)].is_over = true;
  const int64_t request = legs_[static_cast<size_t>(leg)].request;
  const Request& sent = requests_[static_cast<size_t>(request)];
  if (sent.done || sent.leg != leg) return;
  if (records_[static_cast<size_t>(request)].first_byte_ns < 0) return fail(now_ns, request, why);
  lose_request(now_ns, request, why);
}

// That nobody wants it any more its replica hears as late as anything.
void Fleet::cancel_over(int64_t now_ns, int64_t leg) {
  const int replica = legs_[static_cast<size_t>(leg)].replica;
  const auto found = flights_.find(leg);
  if (found == flights_.end()) return;
  const size_t gateway = found->second.gateway;
  if (found->second.asked) --flying_to_[static_cast<size_t>(replica)];
  // Of a replica that is on trial the next request may be the trial.
  watch(gateway, static_cast<size_t>(replica))
      .health.note_outcome(cluster::WorkerHealth::Outcome::kNeither, leg + 1, now_ns);
  const auto comes_ns = network_->arrives_ns(now_ns, static_cast<int>(gateway), replica);
  flights_.erase(found);
  if (comes_ns) add({.at_ns = *comes_ns, .kind = Event::Kind::kCancelled, .index = leg});
}

// It has asked a replica that is gone, or another start of it.
void Fleet::send_back(int64_t now_ns, int64_t leg) {
  const auto found = flights_.find(leg);
  if (found == flights_.end()) return;
  ++network_->counts().sent_back;
  const Flight& flight = found->second;
  const auto replica = static_cast<size_t>(legs_[static_cast<size_t>(leg)].replica);
  Watch& seen = watch(flight.gateway, replica);
  if (seen.start == flight.start) seen.health.note_watch_lost(!is_alive(replica), now_ns);
  lose_leg(now_ns, leg, Charge::kNone);
}

void Fleet::stand_still(int64_t now_ns, int64_t leg) {
  const auto found = flights_.find(leg);
  if (found == flights_.end()) return;
  ++network_->counts().stood_still;
  const auto replica = static_cast<size_t>(legs_[static_cast<size_t>(leg)].replica);
  watch(found->second.gateway, replica)
      .health.note_outcome(cluster::WorkerHealth::Outcome::kFailed, leg + 1, now_ns);
  lose_leg(now_ns, leg, Charge::kOne);
}

// Its replica has died: each gateway hears that by connections that break.
void Fleet::break_connections(int64_t now_ns, size_t replica) {
  for (size_t gateway = 0; gateway < dispatchers_.size(); ++gateway) {
    const auto comes_ns =
        network_->arrives_ns(now_ns, static_cast<int>(gateway), static_cast<int>(replica));
    if (!comes_ns) continue;
    add({.at_ns = *comes_ns,
         .kind = Event::Kind::kBroken,
         .index = static_cast<int64_t>(gateway * states_.size() + replica),
         .version = std::ssize(legs_)});
  }
}

void Fleet::break_off(int64_t now_ns, int64_t connection, int64_t legs) {
  const size_t gateway = static_cast<size_t>(connection) / states_.size();
  const size_t replica = static_cast<size_t>(connection) % states_.size();
  Watch& seen = watch(gateway, replica);
  if (seen.start < starts_[replica]) seen.health.note_watch_lost(!is_alive(replica), now_ns);
  lose_at(now_ns, gateway, replica, legs, Charge::kOne);
}

// All that this gateway has asked of it, of the first so many legs.
void Fleet::lose_at(int64_t now_ns, size_t gateway, size_t replica, int64_t legs, Charge charge) {
  std::vector<int64_t> lost;
  for (const auto& [leg, flight] : flights_) {
    if (leg >= legs) break;
    const bool is_there = legs_[static_cast<size_t>(leg)].replica == static_cast<int>(replica);
    if (is_there && flight.gateway == gateway) lost.push_back(leg);
  }
  for (const int64_t leg : lost) lose_leg(now_ns, leg, charge);
}

// That they are broken may never have come.
void Fleet::lose_older(int64_t now_ns, size_t gateway, size_t replica, int64_t start) {
  std::vector<int64_t> lost;
  for (const auto& [leg, flight] : flights_) {
    const bool is_there = legs_[static_cast<size_t>(leg)].replica == static_cast<int>(replica);
    if (is_there && flight.gateway == gateway && flight.start < start) lost.push_back(leg);
  }
  for (const int64_t leg : lost) lose_leg(now_ns, leg, Charge::kOne);
}

void Fleet::lose_leg(int64_t now_ns, int64_t leg, Charge charge) {
  const Leg one = legs_[static_cast<size_t>(leg)];
  if (one.is_over) return;
  cancel(now_ns, leg);
  Request& sent = requests_[static_cast<size_t>(one.request)];
  switch (one.kind) {
    case Leg::Kind::kAhead:
      if (sent.ahead == leg) sent.ahead = -1;
      return;
    case Leg::Kind::kWarmUp:
      if (sent.warm_up != leg) return;
      sent.warm_up = -1;
      return consider_split(now_ns, one.request);
    case Leg::Kind::kWhole:
      break;
  }
  if (sent.done || sent.leg != leg) return;
  ++network_->counts().taken_back;
  if (charge == Charge::kNone) ++sent.free_retries;
  lose_request(now_ns, one.request, "its replica was lost");
}

// What had not answered yet is sent elsewhere, and what had too if answers go on; otherwise that is
// an error to its client.
void Fleet::lose_request(int64_t now_ns, int64_t number, const std::string& why) {
  const auto index = static_cast<size_t>(number);
  Request& request = requests_[index];
  const bool has_begun = records_[index].first_byte_ns >= 0;
  drop_beside(now_ns, number);
  const bool was_split = std::exchange(request.splits, false);
  const bool goes_on = options_.answers_go_on || was_split;
  if (has_begun && goes_on && !(network_ && request.retries >= kMovesMax)) {
    ++result_.moved;
    return redispatch(now_ns, number);
  }
  if (has_begun || request.retries - request.free_retries >= options_.retries_max) {
    return fail(now_ns, number, why);
  }
  redispatch(now_ns, number);
}

// As gateway::Fleet's thread does.
void Fleet::look(int64_t now_ns) {
  for (size_t gateway = 0; gateway < dispatchers_.size(); ++gateway) {
    for (size_t replica = 0; replica < states_.size(); ++replica) {
      take_reports(now_ns, gateway, replica);
      look_at(now_ns, gateway, replica);
    }
  }
  if (now_ns >= next_report_ns_) {
    const int64_t beat_ns = report_ns_ > 0 ? report_ns_ : kBeat_ns;
    next_report_ns_ = now_ns - now_ns % beat_ns + beat_ns;
    for (size_t replica = 0; replica < states_.size(); ++replica) {
      if (is_alive(replica)) send_reports(now_ns, replica);
    }
  }
  control_ ? send_held(now_ns) : send_waiting(now_ns);
  add_idle({.at_ns = now_ns + kLook_ns, .kind = Event::Kind::kLooks});
}

void Fleet::look_at(int64_t now_ns, size_t gateway, size_t replica) {
  Watch& one = watch(gateway, replica);
  if (std::exchange(one.has_begun_anew, false)) lose_older(now_ns, gateway, replica, one.start);
  const bool is_down = one.health.state(now_ns) == cluster::WorkerState::kDown;
  if (!is_down) {
    one.down_ns = -1;
    return;
  }
  if (one.down_ns < 0) {
    one.down_ns = now_ns;
    if (is_alive(replica) && starts_[replica] == one.start) ++network_->counts().found_down;
    lose_at(now_ns, gateway, replica, std::ssize(legs_), Charge::kNone);
  }
  // Its connection is opened anew, so that nothing waits behind what was lost in the old one.
  if (now_ns - one.reopened_ns < kReopened_ns) return;
  one.reopened_ns = now_ns;
  std::vector<std::pair<size_t, std::vector<kv::Event>>> unheard;
  for (Watch::Report& report : one.reports) {
    if (report.start == starts_[replica]) unheard.emplace_back(replica, std::move(report.events));
  }
  one.reports.clear();
  one.comes_ns = 0;
  auto& unreported = heard_[gateway].unreported;
  unreported.insert(unreported.begin(), std::make_move_iterator(unheard.begin()),
                    std::make_move_iterator(unheard.end()));
}

void Fleet::send_reports(int64_t now_ns, size_t replica) {
  observe(replica);
  ReplicaState state = states_[replica];
  state.queued -= flying_to_[replica];
  const bool is_busy = state.running + state.queued > 0;
  const cluster::WorkerLoad load{
      .progress = replicas_[replica]->steps(),
      .busy_ms = is_busy ? 1 : 0,
      .costs = step_costs_,
      .draining = control_ && control_->drains(static_cast<int>(replica))};
  for (size_t gateway = 0; gateway < dispatchers_.size(); ++gateway) {
    const uint64_t stream = options_.seed ^ kReportStream;
    const bool is_lost = base::random_unit(stream, reports_++) < options_.reports_lost;
    const bool is_doubled = base::random_unit(stream, reports_++) < options_.reports_doubled;
    if (is_lost && report_ns_ > 0) continue;
    const auto comes_ns =
        network_->arrives_ns(now_ns, static_cast<int>(gateway), static_cast<int>(replica));
    if (!comes_ns) continue;
    Watch& one = watch(gateway, replica);
    one.comes_ns = std::max(one.comes_ns, *comes_ns);
    Watch::Report& report = one.reports.emplace_back();
    report = {.comes_ns = one.comes_ns,
              .start = starts_[replica],
              .load = load,
              .state = state,
              .is_doubled = is_doubled};
    auto& unreported = heard_[gateway].unreported;
    for (auto& [of, events] : unreported) {
      if (of == replica) report.events.insert(report.events.end(), events.begin(), events.end());
    }
    std::erase_if(unreported, [&](const auto& each) { return each.first == replica; });
  }
}

void Fleet::take_reports(int64_t now_ns, size_t gateway, size_t replica) {
  Watch& one = watch(gateway, replica);
  while (!one.reports.empty() && one.reports.front().comes_ns <= now_ns) {
    const Watch::Report report = std::move(one.reports.front());
    one.reports.pop_front();
    if (report.start < one.start) continue;
    if (report.start > one.start) {
      connect(report.comes_ns, gateway, replica, report.start);
      one.has_begun_anew = true;
    }
    one.health.note_load(report.load, report.comes_ns);
    if (report_ns_ == 0) continue;
    heard_[gateway].states[replica] = report.state;
    dispatchers_[gateway]->note_report(static_cast<int>(replica));
    for (int times = report.is_doubled ? 2 : 1; times > 0; --times) {
      dispatchers_[gateway]->note_events(static_cast<int>(replica), report.events);
    }
  }
}

void Fleet::wait_for_replica(int64_t now_ns, int64_t request) {
  Request& sent = requests_[static_cast<size_t>(request)];
  if (sent.waits_since_ns < 0) {
    sent.waits_since_ns = now_ns;
    ++network_->counts().waited;
  }
  waiting_.push_back(request);
}

void Fleet::send_waiting(int64_t now_ns) {
  std::deque<int64_t> waiting = std::exchange(waiting_, {});
  const int64_t most_ns = nanoseconds(options_.resume_budget_s);
  for (const int64_t request : waiting) {
    Request& sent = requests_[static_cast<size_t>(request)];
    if (sent.done) continue;
    if (now_ns - sent.waits_since_ns > most_ns) {
      sent.waits_since_ns = -1;
      fail(now_ns, request, "no replica can be reached");
      continue;
    }
    bool any = false;
    for (size_t i = 0; i < states_.size(); ++i) any = any || is_reached(now_ns, sent.gateway, i);
    any ? dispatch(now_ns, request, states_) : waiting_.push_back(request);
  }
}

}  // namespace pelton::simulator
