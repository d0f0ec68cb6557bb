// Requests that are split, as gateway::Relay does it (gateway/relay_split.cc): a replica computes
// the prompt, says the first token and goes on, until another one is warm.
#include <algorithm>
#include <utility>

#include "simulator/fleet.h"

namespace pelton::simulator {
namespace {

constexpr int kDecodersMax = 2;  // that are tried

}  // namespace

// As the gateway knows them.
std::span<const ReplicaState> Fleet::seen_states(int64_t now_ns, size_t gateway) {
  for (size_t i = 0; network_ && i < states_.size(); ++i) take_reports(now_ns, gateway, i);
  if (report_ns_ == 0) {
    for (size_t i = 0; i < states_.size(); ++i) observe(i);
    if (!network_) return states_;
    reached_ = states_;
    for (size_t i = 0; i < states_.size(); ++i) reached_[i].is_up = is_reached(now_ns, gateway, i);
    return reached_;
  }
  // That one is down its gateway hears at once, where no network lies between them.
  std::vector<ReplicaState>& heard = heard_[gateway].states;
  for (size_t i = 0; i < states_.size(); ++i) {
    heard[i].is_up = network_ ? is_reached(now_ns, gateway, i) : states_[i].is_up;
    heard[i].role = states_[i].role;
  }
  return heard;
}

Dispatcher::Asked Fleet::asked_of(int64_t now_ns, const Request& request) {
  return {
      .conversation = static_cast<int64_t>(request.conversation),
      .prompt = request.prompt,
      .adapter = adapter_of(request.conversation),
      .draw = base::random_bits(options_.seed ^ kRouterStream, routed_++),
      .now_ns = now_ns,
      .output_max = output_of(workload_.conversations[request.conversation].turns[request.turn])};
}

// The leg; -1: the replica does not take it, and why_not_ says why. Its peer is that of the
// gateway's last choice.
int64_t Fleet::submit(int64_t now_ns, int64_t request, int replica, Leg::Kind kind) {
  const Request& sent = requests_[static_cast<size_t>(request)];
  const Dispatcher::Chosen& chosen = dispatchers_[sent.gateway]->chosen();
  const workload::Turn& turn = workload_.conversations[sent.conversation].turns[sent.turn];
  request::GenerationRequest asked{.prompt = sent.prompt};
  asked.adapter.identity = adapter_of(sent.conversation);
  asked.sampling.seed = base::random_bits(options_.seed, static_cast<uint64_t>(sent.seed));
  const auto said = static_cast<int>(records_[static_cast<size_t>(request)].output_tokens);
  asked.stop.max_new_tokens = kind == Leg::Kind::kWhole ? output_of(turn) : said + 1;
  if (said > 0) asked.resumed = {{.index = 0, .tokens = sent.answer}};
  if (chosen.peer >= 0) {
    asked.peer = request::PrefixPeer{.host = "replica",
                                     .port = chosen.peer + 1,
                                     .tokens = static_cast<int>(chosen.peer_tokens),
                                     .ticket = {},
                                     .ahead = kind == Leg::Kind::kAhead};
  }
  const auto leg = std::ssize(legs_);
  if (network_) {
    legs_.push_back({.request = request, .replica = replica, .kind = kind});
    send_over(now_ns, leg, std::move(asked));
    return leg;
  }
  const auto index = static_cast<size_t>(replica);
  const Result<void> taken = replicas_[index]->submit(now_ns, leg, std::move(asked));
  if (!taken.ok()) {
    why_not_ = taken.error().message;
    return -1;
  }
  legs_.push_back({.request = request, .replica = replica, .kind = kind});
  schedule(index);
  return leg;
}

void Fleet::cancel(int64_t now_ns, int64_t leg) {
  if (leg < 0 || std::exchange(legs_[static_cast<size_t>(leg)].is_over, true)) return;
  if (network_) return cancel_over(now_ns, leg);
  const auto replica = static_cast<size_t>(legs_[static_cast<size_t>(leg)].replica);
  replicas_[replica]->cancel(leg);
  schedule(replica);
}

// Its prompt is being computed: who seems the best to go on fetches meanwhile.
void Fleet::fetch_ahead(int64_t now_ns, int64_t request, int decoder) {
  Request& sent = requests_[static_cast<size_t>(request)];
  Dispatcher& dispatcher = *dispatchers_[sent.gateway];
  Dispatcher::Asked asked = asked_of(now_ns, sent);
  asked.source = asked.excluded = sent.replica;
  asked.preferred = decoder;
  asked.ahead = true;
  const int target = dispatcher.choose(seen_states(now_ns, sent.gateway), asked);
  if (target < 0 || dispatcher.chosen().peer < 0) return;
  sent.ahead_hit_tokens = dispatcher.chosen().hit_tokens;
  sent.ahead = submit(now_ns, request, target, Leg::Kind::kAhead);
}

// It has said something and another one is to go on.
void Fleet::consider_split(int64_t now_ns, int64_t request) {
  Request& sent = requests_[static_cast<size_t>(request)];
  if (!sent.splits || sent.warm_up >= 0 || sent.done) return;
  if (sent.decoders_tried >= kDecodersMax) return end_split(sent, result_.travel.failed);
  const int ahead = sent.ahead < 0 ? -1 : legs_[static_cast<size_t>(sent.ahead)].replica;
  if (options_.split.handoff == gateway::SplitConfig::Handoff::kFirst) {
    return hand_over(now_ns, request, ahead);
  }
  Dispatcher& dispatcher = *dispatchers_[sent.gateway];
  Dispatcher::Asked asked = asked_of(now_ns, sent);
  asked.source = asked.excluded = sent.replica;
  asked.preferred = ahead;
  asked.may_stay = sent.decides_late;
  const int target = dispatcher.choose(seen_states(now_ns, sent.gateway), asked);
  if (target < 0) return end_split(sent, result_.travel.no_decoder);
  if (std::exchange(sent.decides_late, false)) ++result_.travel.split;
  ++sent.decoders_tried;
  sent.hit_tokens = dispatcher.chosen().hit_tokens;
  if (target == ahead) sent.hit_tokens = std::min(sent.hit_tokens, sent.ahead_hit_tokens);
  sent.step_s = dispatcher.chosen().step_s;
  sent.warm_up_ns = now_ns;
  sent.warm_up = submit(now_ns, request, target, Leg::Kind::kWarmUp);
  if (sent.warm_up < 0) consider_split(now_ns, request);
}

void Fleet::end_split(Request& request, int64_t& outcome) {
  if (!std::exchange(request.splits, false)) return;
  if (std::exchange(request.decides_late, false)) {  // it was none
    request.source_hit_tokens = -1;
    return;
  }
  ++outcome;
}

// What it has computed of blocks that the first one has is work done twice.
void Fleet::end_warm_up(int64_t now_ns, const Leg& leg, const Replica::Update& update) {
  Request& sent = requests_[static_cast<size_t>(leg.request)];
  if (sent.done || sent.warm_up != update.request) return;
  sent.warm_up = -1;
  if (update.failed) return consider_split(now_ns, leg.request);
  const int64_t block = options_.replica.capacity.block_tokens;
  const int64_t named = (std::ssize(sent.prompt) - 1) / block * block;
  const int64_t found = std::min<int64_t>(update.cached_tokens, named);
  result_.travel.found_tokens += found;
  result_.travel.recomputed_tokens += named - found;
  dispatchers_[sent.gateway]->note_hand_over(
      now_ns,
      {.from = static_cast<uint64_t>(sent.replica), .to = static_cast<uint64_t>(leg.replica)},
      static_cast<double>(now_ns - sent.warm_up_ns) * 1e-9, sent.step_s,
      found - std::min(sent.hit_tokens, found));
  hand_over(now_ns, leg.request, leg.replica);
}

// Whatever fails leaves the first one talking.
void Fleet::hand_over(int64_t now_ns, int64_t request, int preferred) {
  Request& sent = requests_[static_cast<size_t>(request)];
  Dispatcher::Asked asked = asked_of(now_ns, sent);
  asked.source = asked.excluded = sent.replica;
  asked.preferred = preferred;
  const int target = dispatchers_[sent.gateway]->choose(seen_states(now_ns, sent.gateway), asked);
  if (target < 0) return end_split(sent, result_.travel.no_decoder);
  const int64_t leg = submit(now_ns, request, target, Leg::Kind::kWhole);
  if (leg < 0) return end_split(sent, result_.travel.failed);
  cancel(now_ns, sent.leg);
  end_split(sent, result_.travel.handed_over);
  sent.leg = leg;
  sent.replica = target;
  const std::vector<report::Piece>& pieces = records_[static_cast<size_t>(request)].pieces;
  sent.cut_ns = pieces.empty() ? now_ns : pieces.back().at_ns;
}

// What is done beside its answer.
void Fleet::drop_beside(int64_t now_ns, int64_t request) {
  Request& sent = requests_[static_cast<size_t>(request)];
  cancel(now_ns, std::exchange(sent.ahead, -1));
  cancel(now_ns, std::exchange(sent.warm_up, -1));
}

// Their replica has died, but not the one that talks.
void Fleet::lose_legs(int64_t now_ns, size_t replica) {
  const auto lost = [&](int64_t leg) {
    return leg >= 0 && legs_[static_cast<size_t>(leg)].replica == static_cast<int>(replica);
  };
  const size_t known = requests_.size();
  for (size_t i = 0; i < known; ++i) {
    if (requests_[i].done || !requests_[i].splits) continue;
    if (lost(requests_[i].ahead)) requests_[i].ahead = -1;
    if (!lost(requests_[i].warm_up)) continue;
    requests_[i].warm_up = -1;
    consider_split(now_ns, static_cast<int64_t>(i));
  }
}

}  // namespace pelton::simulator
