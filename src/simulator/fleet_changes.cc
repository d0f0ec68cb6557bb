// What changes in the fleet: replicas that start and stop, faults, clients that wait no longer.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/random.h"
#include "simulator/fleet.h"

namespace pelton::simulator {
namespace {

constexpr uint64_t kBackOffStream = 0x6261636B;
constexpr double kBackOffMax_s = 3600;

}  // namespace

// In the order of their coming, while a replica has a free slot.
void Fleet::send_held(int64_t now_ns) {
  while (!held_.empty()) {
    for (size_t i = 0; i < states_.size(); ++i) observe(i);
    free_states_ = states_;
    // Those that only compute prompts answer nobody, and have a line of their own.
    bool any = false;
    for (size_t i = 0; i < free_states_.size(); ++i) {
      ReplicaState& one = free_states_[i];
      one.is_up = one.is_up && (!network_ || is_reached(now_ns, 0, i));
      if (!cluster::decodes(one.role)) continue;
      one.is_up = one.is_up && one.running + one.queued < one.slots;
      any = any || one.is_up;
    }
    if (!any) return;
    const int64_t request = held_.front();
    held_.pop_front();
    requests_[static_cast<size_t>(request)].is_held = false;
    dispatch(now_ns, request, free_states_);
  }
}

void Fleet::scale(int64_t now_ns) {
  for (size_t i = 0; i < states_.size(); ++i) observe(i);
  for (const PoolControl::Start& start : control_->decide(now_ns, states_)) {
    add_idle({.at_ns = start.ready_ns, .kind = Event::Kind::kReplicaReady, .index = start.replica});
  }
  for (size_t i = 0; i < states_.size(); ++i) {
    follow_phase(i);
    retire_if_empty(now_ns, i);
  }
  send_held(now_ns);
}

void Fleet::tick(int64_t now_ns) {
  scale(now_ns);
  const int64_t next_ns = now_ns + control_->tick_ns();
  if (control_->facts_ahead_ns() > 0) {
    add_idle({.at_ns = next_ns - control_->facts_ahead_ns(), .kind = Event::Kind::kFactsSent});
  }
  add_idle({.at_ns = next_ns, .kind = Event::Kind::kScales});
}

void Fleet::send_facts(int64_t now_ns) {
  for (size_t i = 0; i < states_.size(); ++i) observe(i);
  control_->send_facts(now_ns, states_);
}

// A gateway says at once that it holds requests for which nobody is there.
void Fleet::wake_autoscaler(int64_t now_ns) {
  if (control_->facts_ahead_ns() == 0) return scale(now_ns);
  send_facts(now_ns);
  add_idle({.at_ns = now_ns + control_->facts_delay_ns(), .kind = Event::Kind::kDemandHeard});
}

void Fleet::become_ready(int64_t now_ns, size_t replica) {
  if (!control_->become_ready(static_cast<int>(replica), now_ns)) return;
  follow_phase(replica);
  send_held(now_ns);
}

void Fleet::retire_if_empty(int64_t now_ns, size_t replica) {
  if (!control_->drains(static_cast<int>(replica))) return;
  if (replicas_[replica]->running_count() + replicas_[replica]->queued_count() > 0) return;
  control_->note_gone(static_cast<int>(replica), now_ns);
  counts_[replica] += replicas_[replica]->counts();
  lose_transfers(now_ns, replica);
  replicas_[replica] = make_replica(replica);  // what it had cached is gone with it
  if (network_) ++starts_[replica];
  note_lost(replica);
  schedule(replica);
}

// Nothing is to come but decisions about replicas that nobody asks anything of.
bool Fleet::only_scaling_left() const {
  return (!control_ && !network_) || (held_.empty() && open_ == 0);
}

void Fleet::begin_fault(int64_t now_ns, const Fault& fault) {
  const auto replica = static_cast<size_t>(fault.replica);
  if (fault.is_of_scaling()) return control_->begin_fault(fault);
  switch (fault.kind) {
    case Fault::Kind::kCrash:
      return crash(now_ns, replica);
    case Fault::Kind::kSlow:
      slowness_[replica] = fault.factor;
      replicas_[replica]->slow_down(fault.factor);
      return;
    case Fault::Kind::kStepError:
      replicas_[replica]->fail_steps(fault.count);
      return;
    case Fault::Kind::kGatewayDown:
      if (control_) control_->begin_fault(fault);
      return lose_gateways(now_ns, fault);
    default:
      return;
  }
}

void Fleet::end_fault(const Fault& fault) {
  const auto replica = static_cast<size_t>(fault.replica);
  if (fault.is_of_scaling()) return control_->end_fault(fault);
  if (fault.kind == Fault::Kind::kGatewayDown) {
    if (control_) control_->end_fault(fault);
    for (size_t i = 0; i < gateways_down_.size(); ++i) {
      if (fault.gateway < 0 || std::cmp_equal(fault.gateway, i)) --gateways_down_[i];
    }
    return;
  }
  // Where replicas are scaled, a new one is started instead.
  if (fault.kind == Fault::Kind::kCrash && !control_) states_[replica].is_up = true;
  if (fault.kind == Fault::Kind::kSlow) {
    slowness_[replica] = 1;
    replicas_[replica]->slow_down(1);
  }
}

void Fleet::crash(int64_t now_ns, size_t replica) {
  counts_[replica] += replicas_[replica]->counts();
  states_[replica].is_up = false;
  lose_transfers(now_ns, replica);
  replicas_[replica] = make_replica(replica);
  replicas_[replica]->slow_down(slowness_[replica]);
  note_lost(replica);
  if (control_) control_->note_died(static_cast<int>(replica), now_ns);
  schedule(replica);
  if (network_) {
    ++starts_[replica];
    return break_connections(now_ns, replica);
  }
  const size_t known = requests_.size();
  for (size_t i = 0; i < known; ++i) {
    const Request& request = requests_[i];
    if (request.done || request.replica != static_cast<int>(replica)) continue;
    lose_request(now_ns, static_cast<int64_t>(i), "its replica died");
  }
  lose_legs(now_ns, replica);
}

void Fleet::lose_gateways(int64_t now_ns, const Fault& fault) {
  const auto is_meant = [&](size_t gateway) {
    return fault.gateway < 0 || std::cmp_equal(fault.gateway, gateway);
  };
  // All of them first: who tries again finds none of these.
  std::vector<size_t> lost;
  for (size_t i = 0; i < gateways_down_.size(); ++i) {
    if (is_meant(i) && gateways_down_[i]++ == 0) lost.push_back(i);
  }
  for (const size_t gateway : lost) lose_gateway(now_ns, gateway);
}

// Every connection of its own breaks: replicas compute no longer for it, clients have an error.
// Who is on the way to it, or between two attempts, notices when it comes.
void Fleet::lose_gateway(int64_t now_ns, size_t gateway) {
  const size_t known = requests_.size();
  for (size_t i = 0; i < known; ++i) {
    Request& request = requests_[i];
    const bool waits = request.is_held || request.waits_since_ns >= 0;
    if (request.done || request.gateway != gateway || !(waits || request.replica >= 0)) continue;
    const auto number = static_cast<int64_t>(i);
    request.waits_since_ns = -1;
    std::erase(waiting_, number);
    if (request.replica >= 0) cancel(now_ns, request.leg);
    refuse(now_ns, number, "its gateway died");
  }
}

// The first one from there on that is not gone.
std::optional<size_t> Fleet::gateway_up(size_t from) const {
  for (size_t i = 0; i < gateways_down_.size(); ++i) {
    const size_t gateway = (from + i) % gateways_down_.size();
    if (gateways_down_[gateway] == 0) return gateway;
  }
  return std::nullopt;
}

void Fleet::redispatch(int64_t now_ns, int64_t request) {
  Request& sent = requests_[static_cast<size_t>(request)];
  sent.replica = -1;
  if (control_) control_->note_returned(now_ns);
  sent.is_returned = true;
  ++sent.retries;
  ++result_.redispatched;
  add({.at_ns = now_ns, .kind = Event::Kind::kArrives, .index = request});
}

// The gateway has it, until a replica has a free slot.
void Fleet::hold(int64_t now_ns, int64_t request) {
  Request& held = requests_[static_cast<size_t>(request)];
  held.is_held = true;
  held_.push_back(request);
  send_held(now_ns);
  // The first one that an empty pool holds sets it in motion.
  if (!held_.empty() && control_->empty()) wake_autoscaler(now_ns);
  if (!requests_[static_cast<size_t>(request)].is_held) return;
  if (control_->held() > options_.autoscaling->held_max) {
    return refuse(now_ns, request, "the gateway holds too many");
  }
  constexpr double kForEver_s = 1e9;
  const double most_s = options_.autoscaling->hold_s_max;
  if (most_s >= kForEver_s) return;
  add_idle({.at_ns = now_ns + nanoseconds(most_s),
            .kind = Event::Kind::kHoldEnds,
            .index = request,
            .version = requests_[static_cast<size_t>(request)].attempts});
}

void Fleet::end_hold(int64_t now_ns, int64_t request, int64_t attempt) {
  Request& held = requests_[static_cast<size_t>(request)];
  if (!held.is_held || held.attempts != attempt) return;
  refuse(now_ns, request, "held for too long");
}

void Fleet::refuse(int64_t now_ns, int64_t request, const std::string& why) {
  requests_[static_cast<size_t>(request)].is_held = false;
  std::erase(held_, request);
  fail(now_ns, request, why);
}

void Fleet::await_first_token(int64_t now_ns, int64_t request) {
  if (!options_.clients.patience_s) return;
  add_idle({.at_ns = now_ns + nanoseconds(*options_.clients.patience_s),
            .kind = Event::Kind::kPatienceEnds,
            .index = request});
}

// A client that has no first token yet waits no longer, and does not try again.
void Fleet::leave(int64_t now_ns, int64_t request) {
  const auto index = static_cast<size_t>(request);
  Request& sent = requests_[index];
  if (sent.done || records_[index].first_byte_ns >= 0) return;
  ++result_.left;
  if (std::exchange(sent.is_held, false)) std::erase(held_, request);
  if (sent.replica >= 0) cancel(now_ns, sent.leg);
  records_[index].error = "its client left";
  finish(now_ns, request);
}

void Fleet::note_finished(int64_t now_ns, Request& request) {
  if (!std::exchange(request.is_counted, false)) return;
  control_->note_finished(now_ns, request.replica >= 0);
}

// Each time after twice the pause before, of which a half to all is drawn: clients that failed
// together do not come back together.
bool Fleet::tries_again(int64_t now_ns, int64_t request) {
  const auto index = static_cast<size_t>(request);
  Request& sent = requests_[index];
  if (sent.attempts >= options_.clients.retries_max) return false;
  ++sent.attempts;
  ++result_.client_retries;
  note_finished(now_ns, sent);
  drop_beside(now_ns, request);
  sent.splits = false;
  sent.decoders_tried = 0;
  sent.replica = -1;
  sent.retries = sent.free_retries = 0;
  sent.answer.clear();
  report::RequestRecord& record = records_[index];
  record.first_byte_ns = record.first_text_ns = -1;
  record.output_tokens = record.cached_tokens = 0;
  record.pieces.clear();
  const double share = 0.5 + 0.5 * base::random_unit(options_.seed ^ kBackOffStream, back_offs_++);
  const double pause_s =
      std::min(std::ldexp(options_.clients.back_off_s, sent.attempts - 1), kBackOffMax_s) * share;
  add({.at_ns = now_ns + nanoseconds(pause_s), .kind = Event::Kind::kArrives, .index = request});
  return true;
}

}  // namespace pelton::simulator
