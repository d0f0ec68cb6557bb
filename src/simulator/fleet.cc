#include "simulator/fleet.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/random.h"
#include "cost_model/slices.h"
#include "simulator/replica_costs.h"
#include "workload/offered_load.h"

namespace pelton::simulator {
namespace {

constexpr uint64_t kListenerStream = 0x646F6F7273;
constexpr uint64_t kGatewayStream = 0x67617465;
constexpr uint64_t kAdapterStream = 0x6C6F7261;

// Of one replica's KV cache in one step, at most: each block that is stored may push another one
// out, in each group.
int kv_events_max(const engine::ExecutorCapacity& capacity) {
  const int blocks = capacity.batch_tokens_max / capacity.block_tokens + capacity.sequences_max;
  int most = std::max(1024, 4 * blocks * capacity.groups.size());
  // What comes from the disk or a peer may be the whole of several prompts at once.
  for (const kv::GroupCapacity& group : capacity.groups) {
    most = std::min(most + 4 * group.block_counts[kv::kHost], 1 << 20);
  }
  return most;
}

// Of one gateway: room for every block of every replica, at most what a real one has and what all
// of them together may take here.
size_t index_bytes(const SimulationOptions& options) {
  constexpr size_t kBytesOfAName = 128;
  constexpr size_t kOfAllGateways = size_t{4} << 30;
  const engine::ExecutorCapacity& capacity = options.replica.capacity;
  const auto blocks =
      static_cast<size_t>(capacity.blocks(kv::widest_group(capacity.groups), kv::kDevice));
  return std::min({std::max(blocks * static_cast<size_t>(replicas_max(options)) * kBytesOfAName,
                            size_t{1} << 20),
                   Dispatcher::Options{}.index_bytes,
                   kOfAllGateways / static_cast<size_t>(options.gateways)});
}

}  // namespace

int replicas_max(const SimulationOptions& options) {
  return options.autoscaling ? options.autoscaling->replicas_max() : options.replica_count;
}

std::vector<TokenId> prompt_of(const workload::Turn& turn, std::vector<TokenId> history,
                               int vocab_size) {
  std::vector<TokenId> prompt = std::move(history);
  if (!turn.ids.empty()) {
    prompt.insert(prompt.end(), turn.ids.begin(), turn.ids.end());
    return prompt;
  }
  // Of a text only the length is known: equal texts are equal tokens.
  const std::string& text = turn.prompt.empty() ? turn.messages_json : turn.prompt;
  const uint64_t seed = base::fnv1a64(text);
  const auto vocab = static_cast<uint64_t>(vocab_size);
  for (int i = 0; i < std::max(turn.prompt_tokens, 1); ++i) {
    prompt.push_back(
        static_cast<TokenId>(base::random_bits(seed, static_cast<uint64_t>(i)) % vocab));
  }
  return prompt;
}

Fleet::Fleet(const SimulationOptions& options, const workload::Workload& workload,
             const cost_model::StepTimeModel& times)
    : options_(options),
      workload_(workload),
      times_(times),
      report_ns_(nanoseconds(options.report_s)),
      states_(static_cast<size_t>(replicas_max(options))),
      versions_(states_.size(), 0),
      slowness_(states_.size(), 1),
      histories_(workload.conversations.size()),
      adapters_(static_cast<size_t>(options.adapters.count), options.adapters.skew),
      counts_(states_.size()) {
  for (int i = 0; i < options.gateways; ++i) {
    dispatchers_.push_back(std::make_unique<Dispatcher>(
        Dispatcher::Options{.policy = options.dispatch,
                            .replicas = replicas_max(options),
                            .block_tokens = options.replica.capacity.block_tokens,
                            .hash_seed = options.replica.hash_seed,
                            .index_bytes = index_bytes(options),
                            .costs = step_costs(times, options.replica.capacity),
                            .groups = routed_groups(options.replica.capacity),
                            .zones = options.zones,
                            .zone = i % options.zones,
                            .distance_s = options.zone_distance_s,
                            .knows_reports_only = report_ns_ > 0,
                            .exchanges = options.replica.paths.links_peers(),
                            .split = options.split}));
  }
  if (options.replica.paths.links_peers()) {
    links_.emplace(states_.size(), options.replica.paths.link.bytes_per_s);
  }
  const int prefill = options.autoscaling ? options.autoscaling->prefill_max()  // places
                                          : options.prefill_replicas;
  for (size_t i = 0; prefill > 0 && i < states_.size(); ++i) {
    states_[i].role =
        std::cmp_less(i, prefill) ? cluster::WorkerRole::kPrefill : cluster::WorkerRole::kDecode;
  }
  heard_.resize(dispatchers_.size());
  gateways_down_.assign(dispatchers_.size(), 0);
  for (size_t i = 0; i < states_.size(); ++i) replicas_.push_back(make_replica(i));
  step_costs_ = step_costs(times, options.replica.capacity);
  if (!options.autoscaling) return;
  const double assumed_s = options.autoscaling->service_s_assumed;
  control_.emplace(PoolControl::Options{
      .asked = *options.autoscaling,
      .slots = options.replica.capacity.sequences_max,
      .service_s_assumed = assumed_s > 0
                               ? assumed_s
                               : service_s_assumed(workload::offered_load(workload), step_costs_),
      .model = model_of(step_costs_, options.replica.capacity),
      .facts_are_cut = std::ranges::any_of(options.faults,
                                           [](const Fault& one) {
                                             return one.kind == Fault::Kind::kFactsCut ||
                                                    one.kind == Fault::Kind::kGatewayDown;
                                           }),
      .seed = options.seed});
  for (size_t i = 0; i < states_.size(); ++i) follow_phase(i);
}

std::unique_ptr<Replica> Fleet::make_replica(size_t index) const {
  Replica::Options options = options_.replica;
  options.seed = base::random_bits(options_.seed, 0x7265706C + index);
  if (looks_at_prefixes()) options.kv_events_max = kv_events_max(options.capacity);
  return std::make_unique<Replica>(options, times_);
}

// How many events they are. What befalls starts at 0 is there before the first decision.
size_t Fleet::add_faults() {
  size_t events = 0;
  for (size_t i = 0; i < options_.faults.size(); ++i) {
    const Fault& fault = options_.faults[i];
    const auto index = static_cast<int64_t>(i);
    if (control_ && fault.is_of_scaling() && fault.at_s <= 0) {
      begin_fault(0, fault);
    } else {
      add({.at_ns = nanoseconds(fault.at_s), .kind = Event::Kind::kFaultBegins, .index = index});
      ++events;
    }
    add({.at_ns = nanoseconds(fault.until_s), .kind = Event::Kind::kFaultEnds, .index = index});
    ++events;
  }
  return events;
}

// Faults first, so that what happens at the same moment meets them.
SimulationResult Fleet::run() {
  size_t faults_left = add_faults();
  for (size_t i = 0; i < workload_.conversations.size(); ++i) {
    add_turn(i, 0, nanoseconds(workload_.at_s[i]));
  }
  if (options_.has_network()) begin_network();
  if (control_) tick(0);
  const int64_t end_ns = options_.duration_s ? nanoseconds(*options_.duration_s) : INT64_MAX;
  while (!events_.empty() && events_.top().at_ns <= end_ns) {
    // Faults to come are of no interest when all is done; how replicas stop is, if the end is
    // given.
    const bool is_over = events_.size() == faults_left + idle_events_ && only_scaling_left();
    if (is_over && !(control_ && options_.duration_s)) break;
    const Event event = events_.top();
    events_.pop();
    if (event.kind == Event::Kind::kFaultBegins || event.kind == Event::Kind::kFaultEnds) {
      --faults_left;
    }
    ++result_.events;
    if (report_ns_ > 0 && !network_ && event.at_ns >= next_report_ns_) report(event.at_ns);
    handle(event);
  }
  if (options_.replica.checks && !options_.duration_s) check_ledgers();
  for (size_t i = 0; i < records_.size(); ++i) {
    if (requests_[i].done) {
      result_.records.push_back(std::move(records_[i]));
      const Request& request = requests_[i];
      result_.journeys.push_back(
          {.sent_s = request.sent_ns < 0 ? -1 : static_cast<double>(request.sent_ns) * 1e-9,
           .replica = request.replica,
           .retries = request.retries});
    } else {
      ++result_.unfinished;
    }
  }
  result_.duration_s = static_cast<double>(options_.duration_s ? end_ns : last_ns_) * 1e-9;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    counts_[i] += replicas_[i]->counts();
    result_.replicas.push_back(counts_[i]);
  }
  if (control_) {
    result_.scaling = {.replica_s = control_->replica_seconds(nanoseconds(result_.duration_s)),
                       .replicas_most = control_->most(),
                       .started = control_->started(),
                       .failed_starts = control_->failed_starts(),
                       .direction_changes = control_->direction_changes(),
                       .held_s = control_->held_seconds(),
                       .facts_unheard = control_->facts_unheard(),
                       .decisions_held = control_->decisions_held(),
                       .history = control_->history()};
  }
  if (network_) result_.network = network_->counts();
  return std::move(result_);
}

void Fleet::handle(const Event& event) {
  const auto index = static_cast<size_t>(event.index);
  switch (event.kind) {
    case Event::Kind::kFaultBegins:
      return begin_fault(event.at_ns, options_.faults[index]);
    case Event::Kind::kFaultEnds:
      return end_fault(options_.faults[index]);
    case Event::Kind::kDue:
      due_.push_back(event.index);
      return send_due(event.at_ns);
    case Event::Kind::kArrives:
      return arrive(event.at_ns, event.index);
    case Event::Kind::kWakes:
      if (event.version == versions_[index]) wake(event.at_ns, index);
      return;
    case Event::Kind::kScales:
      --idle_events_;
      return tick(event.at_ns);
    case Event::Kind::kFactsSent:
      --idle_events_;
      return send_facts(event.at_ns);
    case Event::Kind::kDemandHeard:
      --idle_events_;
      return scale(event.at_ns);
    case Event::Kind::kReplicaReady:
      --idle_events_;
      return become_ready(event.at_ns, index);
    case Event::Kind::kPatienceEnds:
      --idle_events_;
      return leave(event.at_ns, event.index);
    case Event::Kind::kHoldEnds:
      --idle_events_;
      return end_hold(event.at_ns, event.index, event.version);
    case Event::Kind::kLinkEnds:
      if (event.version == links_version_) end_moves(event.at_ns);
      return;
    case Event::Kind::kDelivered:
      return deliver(event.at_ns, event.index);
    default:
      return handle_network(event);
  }
}

void Fleet::handle_network(const Event& event) {
  switch (event.kind) {
    case Event::Kind::kAsked:
      return reach(event.at_ns, event.index);
    case Event::Kind::kAnswered:
      return hear(event.at_ns, event.index);
    case Event::Kind::kCancelled: {
      const auto replica = static_cast<size_t>(legs_[static_cast<size_t>(event.index)].replica);
      replicas_[replica]->cancel(event.index);
      return schedule(replica);
    }
    case Event::Kind::kSentBack:
      return send_back(event.at_ns, event.index);
    case Event::Kind::kStandsStill:
      --idle_events_;
      return stand_still(event.at_ns, event.index);
    case Event::Kind::kBroken:
      return break_off(event.at_ns, event.index, event.version);
    case Event::Kind::kLooks:
      --idle_events_;
      return look(event.at_ns);
    default:
      CHECK(false, "an event of no kind");
  }
}

void Fleet::add_turn(size_t conversation, size_t turn, int64_t due_ns) {
  const auto request = static_cast<int64_t>(requests_.size());
  requests_.push_back({.conversation = conversation, .turn = turn, .seed = request});
  report::RequestRecord& record = records_.emplace_back();
  record.due_ns = due_ns;
  record.conversation = static_cast<int>(conversation);
  record.turn = static_cast<int>(turn);
  add({.at_ns = due_ns, .kind = Event::Kind::kDue, .index = request});
}

void Fleet::send_due(int64_t now_ns) {
  const int most = options_.concurrency_max.value_or(INT32_MAX);
  while (!due_.empty() && open_ < most) {
    const int64_t request = due_.front();
    due_.pop_front();
    ++open_;
    send(now_ns, request);
  }
}

// The identity of the one that a conversation asks; 0: the model itself.
int64_t Fleet::adapter_of(size_t conversation) const {
  if (adapters_.empty()) return 0;
  const uint64_t stream = options_.seed ^ kAdapterStream;
  if (base::random_unit(stream, 2 * conversation) < options_.adapters.base_share) return 0;
  const double drawn = base::random_unit(stream, 2 * conversation + 1);
  return static_cast<int64_t>(adapters_.at(drawn)) + 1;
}

double Fleet::drawn(const std::vector<double>& residuals) {
  if (residuals.empty()) return 1;
  return cost_model::draw(residuals,
                          base::random_unit(options_.seed ^ kListenerStream, listeners_++));
}

void Fleet::send(int64_t now_ns, int64_t request) {
  Request& sent = requests_[static_cast<size_t>(request)];
  report::RequestRecord& record = records_[static_cast<size_t>(request)];
  sent.prompt = prompt_of(workload_.conversations[sent.conversation].turns[sent.turn],
                          histories_[sent.conversation], options_.replica.capacity.vocab_size);
  record.start_ns = now_ns;
  record.input_tokens = static_cast<int64_t>(sent.prompt.size());
  record.tokens_told = true;
  const cost_model::RequestOverhead& overhead = options_.overhead;
  const double way_s = overhead.in_s * drawn(overhead.in_residuals) +
                       overhead.in_token_s * static_cast<double>(sent.prompt.size());
  // Listeners read one request after another: who all come at once do not all arrive at once.
  const int64_t read_ns = std::max(now_ns, listeners_free_ns_);
  listeners_free_ns_ = read_ns + nanoseconds(way_s / static_cast<double>(replicas_.size()));
  add({.at_ns = read_ns + nanoseconds(way_s), .kind = Event::Kind::kArrives, .index = request});
  await_first_token(now_ns, request);
}

void Fleet::observe(size_t replica) {
  states_[replica].running = replicas_[replica]->running_count();
  states_[replica].queued = replicas_[replica]->queued_count();
  states_[replica].slots = options_.replica.capacity.sequences_max;
  if (network_) states_[replica].queued += flying_to_[replica];
  if (control_) states_[replica].kv_used = replicas_[replica]->kv_used();
  if (!looks_at_prefixes()) return;
  states_[replica].prompt_tokens_left = replicas_[replica]->prompt_tokens_left();
  states_[replica].context_tokens = replicas_[replica]->context_tokens();
  states_[replica].kv_used = replicas_[replica]->kv_used();
  if (adapters_.empty()) return;
  const AdapterPlaces& adapters = replicas_[replica]->adapters();
  states_[replica].adapters = adapters.residents();
  states_[replica].adapter_places = options_.replica.adapters.resident_max;
  states_[replica].adapter_wait_s = adapters.wait_s();
  states_[replica].adapter_hits = adapters.counts().hits_share();
}

// Nothing has happened since the moment of the report: what is seen now is what was then.
void Fleet::report(int64_t now_ns) {
  next_report_ns_ = now_ns - now_ns % report_ns_ + report_ns_;
  for (size_t i = 0; i < states_.size(); ++i) observe(i);
  for (size_t i = 0; i < heard_.size(); ++i) {
    Heard& heard = heard_[i];
    const uint64_t stream = options_.seed ^ kReportStream;
    const double chance = base::random_unit(stream, reports_++);
    // Of the first one each gateway knows that they are there.
    if (chance < options_.reports_lost && !heard.states.empty()) continue;
    const bool twice = base::random_unit(stream, reports_++) < options_.reports_doubled;
    heard.states = states_;
    dispatchers_[i]->note_report();
    for (int times = twice ? 2 : 1; times > 0; --times) {
      for (const auto& [replica, events] : heard.unreported) {
        dispatchers_[i]->note_events(static_cast<int>(replica), events);
      }
    }
    heard.unreported.clear();
  }
}

void Fleet::note_events(size_t replica, const std::vector<kv::Event>& events) {
  if (report_ns_ > 0) {
    for (Heard& heard : heard_) {
      if (!events.empty()) heard.unreported.emplace_back(replica, events);
    }
    return;
  }
  for (const auto& one : dispatchers_) one->note_events(static_cast<int>(replica), events);
}

void Fleet::note_lost(size_t replica) {
  for (Heard& heard : heard_) {
    std::erase_if(heard.unreported, [&](const auto& one) { return one.first == replica; });
  }
  if (network_ && report_ns_ > 0) return;  // gateways hear of it later
  for (const auto& one : dispatchers_) one->note_lost(static_cast<int>(replica));
}

// By how things are, not by what the gateway knew.
void Fleet::note_zone(size_t gateway, size_t replica) {
  ++result_.zones.sent;
  const Dispatcher& dispatcher = *dispatchers_[gateway];
  if (!dispatcher.is_far(replica)) return;
  ++result_.zones.across;
  for (size_t i = 0; i < states_.size(); ++i) {
    observe(i);
    const ReplicaState& state = states_[i];
    const bool has_room = gateway::has_room({.slots = state.slots,
                                             .rows = state.running,
                                             .waiting = state.queued,
                                             .kv_used = state.kv_used});
    if (dispatcher.is_far(i) || !state.is_up || !has_room) continue;
    ++result_.zones.across_with_room;
    return;
  }
}

void Fleet::arrive(int64_t now_ns, int64_t request) {
  Request& came = requests_[static_cast<size_t>(request)];
  if (came.done) return;  // its client has left before it was here
  if (!gateway_up(0)) {
    came.is_returned = false;
    return fail(now_ns, request, "no gateway is up");
  }
  if (!control_) {
    for (size_t i = 0; report_ns_ == 0 && i < states_.size(); ++i) observe(i);
    return dispatch(now_ns, request, states_);
  }
  if (!std::exchange(came.is_returned, false)) {
    control_->note_request(now_ns);
    came.is_counted = true;
  }
  hold(now_ns, request);
}

void Fleet::dispatch(int64_t now_ns, int64_t request, std::span<const ReplicaState> states) {
  Request& sent = requests_[static_cast<size_t>(request)];
  // Its client's connection stays where it is.
  const bool stays = network_ && (sent.retries > 0 || sent.waits_since_ns >= 0);
  const auto drawn_gateway = static_cast<size_t>(
      base::random_bits(options_.seed ^ kGatewayStream, routed_) % dispatchers_.size());
  const size_t asked_gateway = stays ? sent.gateway : drawn_gateway;
  // Clients find another one by themselves.
  const std::optional<size_t> up = gateway_up(asked_gateway);
  if (!up || (stays && *up != asked_gateway)) {
    sent.waits_since_ns = -1;
    return fail(now_ns, request, "its gateway died");
  }
  const size_t gateway = *up;
  sent.gateway = gateway;
  if (report_ns_ > 0 || (network_ && !control_)) states = seen_states(now_ns, gateway);
  Dispatcher::Asked asked = asked_of(now_ns, sent);
  asked.may_split =
      records_[static_cast<size_t>(request)].output_tokens == 0 && asked.output_max > 1;
  sent.replica = dispatchers_[gateway]->choose(states, asked);
  if (sent.replica < 0) {
    if (network_ && !control_) return wait_for_replica(now_ns, request);
    return fail(now_ns, request, "no replica is up");
  }
  sent.waits_since_ns = -1;
  sent.sent_ns = now_ns;
  sent.source_hit_tokens = -1;
  sent.predicted_s = dispatchers_[gateway]->predicted_s();
  if (control_) control_->note_sent(now_ns);
  if (options_.zones > 1) note_zone(gateway, static_cast<size_t>(sent.replica));
  const int decoder = dispatchers_[gateway]->chosen().decoder;
  const int64_t hit_tokens = dispatchers_[gateway]->chosen().hit_tokens;
  sent.leg = submit(now_ns, request, sent.replica, Leg::Kind::kWhole);
  if (sent.leg < 0) return fail(now_ns, request, why_not_);
  sent.decides_late = decoder < 0 && asked.may_split &&
                      options_.split.mode == gateway::SplitConfig::Mode::kAuto &&
                      options_.split.handoff == gateway::SplitConfig::Handoff::kWarm;
  sent.splits = decoder >= 0 || sent.decides_late;
  if (!sent.splits) return;
  sent.source_hit_tokens = hit_tokens;
  if (decoder < 0) return;
  ++result_.travel.split;
  fetch_ahead(now_ns, request, decoder);
}

// One pending event a replica: an older one is known by its version and passed over.
void Fleet::schedule(size_t replica) {
  const std::optional<int64_t> at_ns = replicas_[replica]->wakes_at_ns();
  ++versions_[replica];
  if (!at_ns) return;
  add({.at_ns = *at_ns,
       .kind = Event::Kind::kWakes,
       .index = static_cast<int64_t>(replica),
       .version = versions_[replica]});
}

void Fleet::wake(int64_t now_ns, size_t replica) {
  updates_.clear();
  replicas_[replica]->wake(now_ns, updates_);
  for (const Replica::Update& update : updates_) network_ ? say(update) : take(update);
  exchange(now_ns, replica);
  if (looks_at_prefixes()) note_events(replica, replicas_[replica]->take_kv_events());
  schedule(replica);
  if (!control_) return;
  retire_if_empty(now_ns, replica);
  send_held(now_ns);
}

void Fleet::take(const Replica::Update& update) {
  Leg& leg = legs_[static_cast<size_t>(update.request)];
  if (leg.is_over) return;
  leg.is_over = update.ended;
  switch (leg.kind) {
    case Leg::Kind::kAhead:
      return;
    case Leg::Kind::kWarmUp:
      if (update.ended) end_warm_up(update.at_ns, Leg(leg), update);
      return;
    case Leg::Kind::kWhole:
      break;
  }
  const Request& request = requests_[static_cast<size_t>(leg.request)];
  // Its client has left, or another replica goes on.
  if (!request.done && request.leg == update.request) take_whole(leg.request, update);
}

void Fleet::take_whole(int64_t number, const Replica::Update& update) {
  const auto index = static_cast<size_t>(number);
  Request& request = requests_[index];
  report::RequestRecord& record = records_[index];
  const bool is_far = request.replica >= 0 &&
                      dispatchers_[request.gateway]->is_far(static_cast<size_t>(request.replica));
  const int64_t way_ns = is_far ? nanoseconds(options_.zone_distance_s) : 0;
  int64_t seen_ns = update.at_ns + out_ns_ + way_ns;
  if (record.first_byte_ns < 0 || update.ended) {
    const double share = drawn(options_.overhead.out_residuals);
    seen_ns = update.at_ns + nanoseconds(options_.overhead.out_s * share) + way_ns;
    // One token does not overtake another.
    if (!record.pieces.empty()) seen_ns = std::max(seen_ns, record.pieces.back().at_ns);
  }
  if (update.token) {
    if (record.first_byte_ns < 0) {
      record.first_byte_ns = seen_ns;
      record.first_text_ns = seen_ns;
      if (request.predicted_s > 0) {
        result_.predictions.push_back(
            {.predicted_s = request.predicted_s,
             .measured_s = static_cast<double>(update.at_ns + way_ns - request.sent_ns) * 1e-9});
      }
      record.pieces.push_back({.at_ns = seen_ns, .tokens = 1});
    } else if (options_.keeps_pieces) {
      record.pieces.push_back({.at_ns = seen_ns, .tokens = 1});
    } else if (record.pieces.size() == 1) {
      record.pieces.push_back({.at_ns = seen_ns, .tokens = 1});
    } else {
      record.pieces.back().at_ns = seen_ns;
      ++record.pieces.back().tokens;
    }
    if (request.cut_ns >= 0) {
      result_.travel.gap_s += static_cast<double>(seen_ns - request.cut_ns) * 1e-9;
      request.cut_ns = -1;
    }
    const bool generates = options_.replica.capacity.generates();  // a vector's is any token
    if (options_.replica.checks && generates) check_token(index, *update.token);
    ++record.output_tokens;
    const auto& turns = workload_.conversations[request.conversation].turns;
    if (request.turn + 1 < turns.size() || options_.answers_go_on || splits()) {
      request.answer.push_back(*update.token);
    }
  }
  if (!update.ended) {
    if (request.splits && update.token) consider_split(update.at_ns, number);
    return;
  }
  record.cached_tokens = update.cached_tokens;
  if (update.failed) return fail(seen_ns, number, "a step failed");
  record.ok = true;
  finish(seen_ns, number);
}

void Fleet::check_token(size_t request, TokenId token) const {
  const Request& asked = requests_[request];
  const size_t position =
      asked.prompt.size() + static_cast<size_t>(records_[request].output_tokens);
  const uint64_t seed = base::random_bits(options_.seed, static_cast<uint64_t>(asked.seed));
  CHECK(token == Replica::token_at(seed, position, options_.replica.capacity.vocab_size),
        "a token of another request, or one twice");
}

// When all is answered: whoever left has gone from its replica too, and nobody holds a block.
void Fleet::check_ledgers() {
  CHECK(held_.empty() && open_ == 0, "requests are held for ever");
  CHECK(flights_.empty(), "gateways wait for answers that nobody wants");
  CHECK(!control_ || (control_->held() == 0 && control_->in_service() == 0), "demand left over");
  for (const std::unique_ptr<Replica>& replica : replicas_) {
    updates_.clear();
    while (const std::optional<int64_t> at_ns = replica->wakes_at_ns()) {
      replica->wake(*at_ns, updates_);
    }
    CHECK(replica->running_count() + replica->queued_count() == 0, "sequences left over");
    CHECK(replica->kv_used() == 0 && replica->queued_tokens() == 0, "blocks left over");
  }
}

void Fleet::fail(int64_t now_ns, int64_t request, const std::string& why) {
  if (tries_again(now_ns, request)) return;
  report::RequestRecord& record = records_[static_cast<size_t>(request)];
  record.ok = false;
  record.error = why;
  finish(now_ns, request);
}

// As gateways count it (autoscaler/served_sums.h): of a split answer who goes on finds the prompt,
// and the first one has computed it.
void Fleet::note_served(const report::RequestRecord& record, const Request& request) {
  const int64_t found =
      request.source_hit_tokens >= 0 ? request.source_hit_tokens : record.cached_tokens;
  control_->note_served(
      {.input = record.input_tokens,
       .computed = std::max<int64_t>(record.input_tokens - found, 1),
       .output = std::max<int64_t>(record.output_tokens, 1),
       .first_token_s = static_cast<double>(record.first_byte_ns - request.sent_ns) * 1e-9,
       .further_s = static_cast<double>(record.end_ns - record.first_byte_ns) * 1e-9});
}

void Fleet::finish(int64_t now_ns, int64_t request) {
  const auto index = static_cast<size_t>(request);
  records_[index].end_ns = now_ns;
  if (records_[index].ok) {
    for (const auto& one : dispatchers_) one->note_output(records_[index].output_tokens);
  }
  Request& done = requests_[index];
  done.done = true;
  drop_beside(now_ns, request);
  end_split(done, result_.travel.ended);
  if (control_ && records_[index].ok && done.retries == 0) note_served(records_[index], done);
  note_finished(now_ns, done);
  last_ns_ = std::max(last_ns_, now_ns);
  --open_;
  const auto& turns = workload_.conversations[done.conversation].turns;
  const size_t next = done.turn + 1;
  if (records_[index].ok && next < turns.size()) {
    std::vector<TokenId>& history = histories_[done.conversation];
    history = std::move(done.prompt);
    history.insert(history.end(), done.answer.begin(), done.answer.end());
    const size_t conversation = done.conversation;
    add_turn(conversation, next, now_ns + nanoseconds(turns[next].think_s));
  }
  // `done` may have moved: requests_ has grown.
  requests_[index].prompt = {};
  requests_[index].answer = {};
  send_due(now_ns);
}

}  // namespace pelton::simulator
