#include "simulator/simulation.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <queue>

#include <fmt/format.h>

#include "base/check.h"
#include "base/random.h"
#include "cost_model/slices.h"
#include "workload/offered_load.h"

namespace pelton::simulator {
namespace {

constexpr int kReplicasMax = 10'000;
constexpr int kGatewaysMax = 64;
constexpr uint64_t kListenerStream = 0x646F6F7273;
constexpr uint64_t kGatewayStream = 0x67617465;
constexpr uint64_t kRouterStream = 0x726F75746572;
constexpr uint64_t kAdapterStream = 0x6C6F7261;

// Of one replica's KV cache in one step, at most: each block that is stored may push another one
// out, in each group.
int kv_events_max(const engine::ExecutorCapacity& capacity) {
  const int blocks = capacity.batch_tokens_max / capacity.block_tokens + capacity.sequences_max;
  return std::max(1024, 4 * blocks * capacity.groups.size());
}

// A step's line through three points, and what a token of a prompt takes in a full step.
cluster::RoutedGroups routed_groups(const engine::ExecutorCapacity& capacity) {
  std::vector<int> windows;
  for (const kv::GroupCapacity& group : capacity.groups) {
    windows.push_back(group.spec.sliding_window);
  }
  return cluster::routed_groups(windows, capacity.block_tokens);
}

cluster::StepCosts step_costs(const cost_model::StepTimeModel& times,
                              const engine::ExecutorCapacity& capacity) {
  cost_model::Windows windows;
  for (const kv::GroupCapacity& group : capacity.groups) {
    windows.push_back(group.spec.sliding_window);
  }
  constexpr int64_t kRows = 64;
  constexpr int64_t kShort = 1000;
  constexpr int64_t kLong = 4000;
  const auto decodes_s = [&](int64_t rows, int64_t context) {
    return times.seconds(cost_model::StepLoad::decodes(rows, context, windows));
  };
  cluster::StepCosts costs;
  costs.context_token_s = std::max(
      0.0, (decodes_s(kRows, kLong) - decodes_s(kRows, kShort)) / (kRows * (kLong - kShort)));
  costs.row_s = std::max(0.0, (decodes_s(kRows, kShort) - decodes_s(1, kShort)) / (kRows - 1) -
                                  costs.context_token_s * kShort);
  costs.fixed_s =
      std::max(0.0, decodes_s(1, kShort) - costs.row_s - costs.context_token_s * kShort);
  cost_model::StepLoad prompt;
  prompt.add_row(0, capacity.batch_tokens_max, false, windows);
  costs.prefill_token_s = times.seconds(prompt) / capacity.batch_tokens_max;
  return costs;
}

int64_t nanoseconds(double seconds) {
  return static_cast<int64_t>(std::llround(seconds * 1e9));
}

struct Event {
  enum class Kind { kFaultBegins, kFaultEnds, kDue, kArrives, kWakes, kScales, kReplicaReady };

  int64_t at_ns = 0;
  int64_t order = 0;  // of two at the same time, the one that was made first
  Kind kind = Kind::kDue;
  int64_t index = 0;
  int64_t version = 0;  // kWakes: of the replica when it was made

  friend bool operator>(const Event& a, const Event& b) {
    return std::pair(a.at_ns, a.order) > std::pair(b.at_ns, b.order);
  }
};

// What a client knows of one request.
struct Request {
  size_t conversation = 0;
  size_t turn = 0;
  int64_t seed = 0;
  int64_t first_ns = -1;
  int replica = -1;
  size_t gateway = 0;  // that sent it there
  int retries = 0;
  bool done = false;
  std::vector<TokenId> prompt;  // whole, until it is done: a retry sends it again
  std::vector<TokenId> answer;  // kept where another turn follows
};

int replicas_max(const SimulationOptions& options) {
  return options.autoscaling ? options.autoscaling->policy.replicas_max : options.replica_count;
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

// How often those up to each one are asked for, as shares: drawn by a number from 0 to 1.
class Fleet {
 public:
  Fleet(const SimulationOptions& options, const workload::Workload& workload,
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
                              .knows_reports_only = report_ns_ > 0}));
    }
    for (size_t i = 0; i < states_.size(); ++i) replicas_.push_back(make_replica(i));
    if (!options.autoscaling) return;
    control_.emplace(PoolControl::Options{.asked = *options.autoscaling,
                                          .slots = options.replica.capacity.sequences_max,
                                          .service_s_assumed = service_s_assumed(),
                                          .seed = options.seed});
    for (size_t i = 0; i < states_.size(); ++i) follow_phase(i);
  }

  SimulationResult run();

 private:
  std::unique_ptr<Replica> make_replica(size_t index) const {
    Replica::Options options = options_.replica;
    options.seed = base::random_bits(options_.seed, 0x7265706C + index);
    if (looks_at_prefixes()) options.kv_events_max = kv_events_max(options.capacity);
    return std::make_unique<Replica>(options, times_);
  }
  void add(Event event) {
    event.order = orders_++;
    events_.push(event);
  }
  void add_turn(size_t conversation, size_t turn, int64_t due_ns);
  void handle(const Event& event);
  void send_due(int64_t now_ns);
  void send(int64_t now_ns, int64_t request);
  void arrive(int64_t now_ns, int64_t request);
  void dispatch(int64_t now_ns, int64_t request, std::span<const ReplicaState> states);
  void fail(int64_t now_ns, int64_t request, const std::string& why);
  void finish(int64_t now_ns, int64_t request);
  void wake(int64_t now_ns, size_t replica);
  void take(const Replica::Update& update);
  void schedule(size_t replica);
  bool looks_at_prefixes() const { return dispatchers_.front()->looks_at_prefixes(); }
  void report(int64_t now_ns);
  void note_events(size_t replica, std::vector<kv::Event> events);
  void note_lost(size_t replica);
  void note_zone(size_t gateway, size_t replica);
  void observe(size_t replica);
  void begin_fault(int64_t now_ns, const Fault& fault);
  void end_fault(const Fault& fault);
  void crash(int64_t now_ns, size_t replica);
  // Of a fleet that is scaled.
  void tick(int64_t now_ns);
  void scale(int64_t now_ns);
  void become_ready(int64_t now_ns, size_t replica);
  void follow_phase(size_t replica) {
    states_[replica].is_up = control_->takes_requests(static_cast<int>(replica));
  }
  void send_held(int64_t now_ns);
  void retire_if_empty(int64_t now_ns, size_t replica);
  bool only_scaling_left() const;
  double service_s_assumed() const;
  double drawn(const std::vector<double>& residuals) {
    if (residuals.empty()) return 1;
    return cost_model::draw(residuals,
                            base::random_unit(options_.seed ^ kListenerStream, listeners_++));
  }
  std::vector<TokenId> prompt_of(const Request& request) const;
  int64_t adapter_of(size_t conversation) const;
  int output_of(const workload::Turn& turn) const {
    return turn.output_tokens > 0 ? turn.output_tokens : options_.output_tokens_otherwise;
  }

  const SimulationOptions& options_;
  const workload::Workload& workload_;
  const cost_model::StepTimeModel& times_;
  std::vector<std::unique_ptr<Dispatcher>> dispatchers_;  // a gateway's each
  const int64_t report_ns_;  // from one report to the next; 0: replicas are seen as they are
  int64_t next_report_ns_ = 0;
  std::vector<ReplicaState> reported_;                                 // as of the last report
  std::vector<std::pair<size_t, std::vector<kv::Event>>> unreported_;  // of replicas' KV caches
  std::optional<PoolControl> control_;
  std::deque<int64_t> held_;               // requests for which no replica has a free slot
  std::vector<ReplicaState> free_states_;  // of the replicas as send_held() sees them
  size_t scaling_events_ = 0;              // that are to come
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::vector<ReplicaState> states_;
  std::vector<int64_t> versions_;
  std::vector<double> slowness_;
  std::vector<std::vector<TokenId>> histories_;  // of conversations, turns that are done
  const workload::SkewedChoice adapters_;
  std::vector<ReplicaCounts> counts_;  // of replicas that crashed
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::deque<int64_t> due_;  // waiting for the clients' concurrency
  std::vector<Request> requests_;
  std::vector<report::RequestRecord> records_;
  std::vector<Replica::Update> updates_;
  SimulationResult result_;
  const int64_t out_ns_ = nanoseconds(options_.overhead.out_s);
  int64_t orders_ = 0;
  uint64_t routed_ = 0;     // drawn
  uint64_t listeners_ = 0;  // drawn
  int64_t last_ns_ = 0;
  int64_t listeners_free_ns_ = 0;  // when the next request can be read, by any of the replicas
  int open_ = 0;
};

// Faults first, so that what happens at the same moment meets them.
SimulationResult Fleet::run() {
  for (size_t i = 0; i < options_.faults.size(); ++i) {
    const Fault& fault = options_.faults[i];
    const auto index = static_cast<int64_t>(i);
    add({.at_ns = nanoseconds(fault.at_s), .kind = Event::Kind::kFaultBegins, .index = index});
    add({.at_ns = nanoseconds(fault.until_s), .kind = Event::Kind::kFaultEnds, .index = index});
  }
  for (size_t i = 0; i < workload_.conversations.size(); ++i) {
    add_turn(i, 0, nanoseconds(workload_.at_s[i]));
  }
  if (control_) tick(0);
  const int64_t end_ns = options_.duration_s ? nanoseconds(*options_.duration_s) : INT64_MAX;
  size_t faults_left = 2 * options_.faults.size();
  while (!events_.empty() && events_.top().at_ns <= end_ns) {
    // Faults to come are of no interest when all is done.
    if (events_.size() == faults_left + scaling_events_ && only_scaling_left()) break;
    const Event event = events_.top();
    events_.pop();
    if (event.kind == Event::Kind::kFaultBegins || event.kind == Event::Kind::kFaultEnds) {
      --faults_left;
    }
    ++result_.events;
    if (report_ns_ > 0 && event.at_ns >= next_report_ns_) report(event.at_ns);
    handle(event);
  }
  for (size_t i = 0; i < records_.size(); ++i) {
    if (requests_[i].done) {
      result_.records.push_back(std::move(records_[i]));
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
                       .direction_changes = control_->direction_changes()};
  }
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
      --scaling_events_;
      return tick(event.at_ns);
    case Event::Kind::kReplicaReady:
      --scaling_events_;
      return become_ready(event.at_ns, index);
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

std::vector<TokenId> Fleet::prompt_of(const Request& request) const {
  const workload::Turn& turn = workload_.conversations[request.conversation].turns[request.turn];
  std::vector<TokenId> prompt = histories_[request.conversation];
  if (!turn.ids.empty()) {
    prompt.insert(prompt.end(), turn.ids.begin(), turn.ids.end());
  } else {
    // Of a text only the length is known: equal texts are equal tokens.
    const std::string& text = turn.prompt.empty() ? turn.messages_json : turn.prompt;
    const uint64_t seed = base::fnv1a64(text);
    const auto vocab = static_cast<uint64_t>(options_.replica.capacity.vocab_size);
    for (int i = 0; i < std::max(turn.prompt_tokens, 1); ++i) {
      prompt.push_back(
          static_cast<TokenId>(base::random_bits(seed, static_cast<uint64_t>(i)) % vocab));
    }
  }
  return prompt;
}

// The identity of the one that a conversation asks; 0: the model itself.
int64_t Fleet::adapter_of(size_t conversation) const {
  if (adapters_.empty()) return 0;
  const uint64_t stream = options_.seed ^ kAdapterStream;
  if (base::random_unit(stream, 2 * conversation) < options_.adapters.base_share) return 0;
  const double drawn = base::random_unit(stream, 2 * conversation + 1);
  return static_cast<int64_t>(adapters_.at(drawn)) + 1;
}

void Fleet::send(int64_t now_ns, int64_t request) {
  Request& sent = requests_[static_cast<size_t>(request)];
  report::RequestRecord& record = records_[static_cast<size_t>(request)];
  sent.prompt = prompt_of(sent);
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
}

void Fleet::observe(size_t replica) {
  states_[replica].running = replicas_[replica]->running_count();
  states_[replica].queued = replicas_[replica]->queued_count();
  states_[replica].slots = options_.replica.capacity.sequences_max;
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
  reported_ = states_;
  for (const std::unique_ptr<Dispatcher>& one : dispatchers_) {
    one->note_report();
    for (const auto& [replica, events] : unreported_) {
      one->note_events(static_cast<int>(replica), events);
    }
  }
  unreported_.clear();
}

void Fleet::note_events(size_t replica, std::vector<kv::Event> events) {
  if (report_ns_ > 0) {
    if (!events.empty()) unreported_.emplace_back(replica, std::move(events));
    return;
  }
  for (const auto& one : dispatchers_) one->note_events(static_cast<int>(replica), events);
}

void Fleet::note_lost(size_t replica) {
  std::erase_if(unreported_, [&](const auto& one) { return one.first == replica; });
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
  if (!control_) {
    if (report_ns_ == 0) {
      for (size_t i = 0; i < states_.size(); ++i) observe(i);
      return dispatch(now_ns, request, states_);
    }
    // That one is down its gateways hear at once.
    for (size_t i = 0; i < states_.size(); ++i) reported_[i].is_up = states_[i].is_up;
    return dispatch(now_ns, request, reported_);
  }
  const bool returned = requests_[static_cast<size_t>(request)].retries > 0;
  if (!returned) control_->note_request(now_ns);
  held_.push_back(request);
  send_held(now_ns);
  // The first one that an empty pool holds sets it in motion.
  if (!held_.empty() && control_->empty()) scale(now_ns);
}

void Fleet::dispatch(int64_t now_ns, int64_t request, std::span<const ReplicaState> states) {
  Request& sent = requests_[static_cast<size_t>(request)];
  const auto gateway = static_cast<size_t>(
      base::random_bits(options_.seed ^ kGatewayStream, routed_) % dispatchers_.size());
  const int64_t adapter = adapter_of(sent.conversation);
  sent.gateway = gateway;
  sent.replica = dispatchers_[gateway]->choose(
      states, {.conversation = static_cast<int64_t>(sent.conversation),
               .prompt = sent.prompt,
               .adapter = adapter,
               .draw = base::random_bits(options_.seed ^ kRouterStream, routed_++),
               .now_ns = now_ns});
  if (sent.replica < 0) return fail(now_ns, request, "no replica is up");
  if (control_) control_->note_sent(now_ns);
  if (options_.zones > 1) note_zone(gateway, static_cast<size_t>(sent.replica));
  const workload::Turn& turn = workload_.conversations[sent.conversation].turns[sent.turn];
  request::GenerationRequest asked{.prompt = sent.prompt};
  asked.adapter.identity = adapter;
  asked.sampling.seed = base::random_bits(options_.seed, static_cast<uint64_t>(sent.seed));
  asked.stop.max_new_tokens = output_of(turn);
  const auto index = static_cast<size_t>(sent.replica);
  const Result<void> taken = replicas_[index]->submit(now_ns, request, std::move(asked));
  if (!taken.ok()) return fail(now_ns, request, taken.error().message);
  schedule(index);
}

// In the order of their coming, while a replica has a free slot.
void Fleet::send_held(int64_t now_ns) {
  while (!held_.empty()) {
    for (size_t i = 0; i < states_.size(); ++i) observe(i);
    free_states_ = states_;
    bool any = false;
    for (ReplicaState& one : free_states_) {
      one.is_up = one.is_up && one.running + one.queued < one.slots;
      any = any || one.is_up;
    }
    if (!any) return;
    const int64_t request = held_.front();
    held_.pop_front();
    dispatch(now_ns, request, free_states_);
  }
}

void Fleet::scale(int64_t now_ns) {
  for (size_t i = 0; i < states_.size(); ++i) observe(i);
  for (const PoolControl::Start& start : control_->decide(now_ns, states_)) {
    add({.at_ns = start.ready_ns, .kind = Event::Kind::kReplicaReady, .index = start.replica});
    ++scaling_events_;
  }
  for (size_t i = 0; i < states_.size(); ++i) {
    follow_phase(i);
    retire_if_empty(now_ns, i);
  }
  send_held(now_ns);
}

void Fleet::tick(int64_t now_ns) {
  scale(now_ns);
  add({.at_ns = now_ns + control_->tick_ns(), .kind = Event::Kind::kScales});
  ++scaling_events_;
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
  replicas_[replica] = make_replica(replica);  // what it had cached is gone with it
  note_lost(replica);
  schedule(replica);
}

// Nothing is to come but decisions about replicas that nobody asks anything of.
bool Fleet::only_scaling_left() const {
  return !control_ || (held_.empty() && open_ == 0);
}

// Of a request of the load's mean length, alone: what the autoscaler assumes until it has seen
// some.
double Fleet::service_s_assumed() const {
  const workload::OfferedLoad load = workload::offered_load(workload_);
  const cluster::StepCosts costs = step_costs(times_, options_.replica.capacity);
  const double step_s = costs.fixed_s + costs.row_s + costs.context_token_s * load.prompt_tokens;
  return load.prompt_tokens * costs.prefill_token_s + load.output_tokens * step_s;
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
  for (const Replica::Update& update : updates_) take(update);
  if (looks_at_prefixes()) note_events(replica, replicas_[replica]->take_kv_events());
  schedule(replica);
  if (!control_) return;
  retire_if_empty(now_ns, replica);
  send_held(now_ns);
}

void Fleet::take(const Replica::Update& update) {
  const auto index = static_cast<size_t>(update.request);
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
      record.pieces.push_back({.at_ns = seen_ns, .tokens = 1});
    } else if (options_.keeps_pieces) {
      record.pieces.push_back({.at_ns = seen_ns, .tokens = 1});
    } else if (record.pieces.size() == 1) {
      record.pieces.push_back({.at_ns = seen_ns, .tokens = 1});
    } else {
      record.pieces.back().at_ns = seen_ns;
      ++record.pieces.back().tokens;
    }
    ++record.output_tokens;
    const auto& turns = workload_.conversations[request.conversation].turns;
    if (request.turn + 1 < turns.size()) request.answer.push_back(*update.token);
  }
  if (!update.ended) return;
  record.cached_tokens = update.cached_tokens;
  if (update.failed) return fail(seen_ns, update.request, "a step failed");
  record.ok = true;
  finish(seen_ns, update.request);
}

void Fleet::fail(int64_t now_ns, int64_t request, const std::string& why) {
  report::RequestRecord& record = records_[static_cast<size_t>(request)];
  record.ok = false;
  record.error = why;
  finish(now_ns, request);
}

void Fleet::finish(int64_t now_ns, int64_t request) {
  const auto index = static_cast<size_t>(request);
  records_[index].end_ns = now_ns;
  if (records_[index].ok) {
    for (const auto& one : dispatchers_) one->note_output(records_[index].output_tokens);
  }
  Request& done = requests_[index];
  done.done = true;
  if (control_) control_->note_finished(now_ns, done.replica >= 0);
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

void Fleet::begin_fault(int64_t now_ns, const Fault& fault) {
  const auto replica = static_cast<size_t>(fault.replica);
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
  }
}

void Fleet::end_fault(const Fault& fault) {
  const auto replica = static_cast<size_t>(fault.replica);
  // Where replicas are scaled, a new one is started instead.
  if (fault.kind == Fault::Kind::kCrash && !control_) states_[replica].is_up = true;
  if (fault.kind == Fault::Kind::kSlow) {
    slowness_[replica] = 1;
    replicas_[replica]->slow_down(1);
  }
}

// What had not answered yet is sent elsewhere; what had is an error to its client.
void Fleet::crash(int64_t now_ns, size_t replica) {
  counts_[replica] += replicas_[replica]->counts();
  replicas_[replica] = make_replica(replica);
  replicas_[replica]->slow_down(slowness_[replica]);
  states_[replica].is_up = false;
  note_lost(replica);
  if (control_) control_->note_gone(static_cast<int>(replica), now_ns);
  schedule(replica);
  const size_t known = requests_.size();
  for (size_t i = 0; i < known; ++i) {
    Request& request = requests_[i];
    if (request.done || request.replica != static_cast<int>(replica)) continue;
    const bool may_retry = records_[i].first_byte_ns < 0 && request.retries < options_.retries_max;
    if (!may_retry) {
      fail(now_ns, static_cast<int64_t>(i), "its replica died");
      continue;
    }
    request.replica = -1;
    if (control_) control_->note_returned(now_ns);
    ++request.retries;
    ++result_.redispatched;
    add({.at_ns = now_ns, .kind = Event::Kind::kArrives, .index = static_cast<int64_t>(i)});
  }
}

}  // namespace

Result<SimulationResult> simulate(const SimulationOptions& options,
                                  const workload::Workload& workload,
                                  const cost_model::StepTimeModel& times) {
  const auto bad = [](const std::string& field, const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, what, field};
  };
  if (options.autoscaling) {
    TRY(options.autoscaling->policy.check());
    const int most = options.autoscaling->policy.replicas_max;
    if (options.autoscaling->replicas < 0 || options.autoscaling->replicas > most) {
      return bad("replicas", fmt::format("replicas at the beginning must be 0 to {}", most));
    }
  }
  if (options.replica_count < 1 || options.replica_count > kReplicasMax) {
    return bad("replicas", fmt::format("replicas must be 1 to {}", kReplicasMax));
  }
  if (options.gateways < 1 || options.gateways > kGatewaysMax) {
    return bad("gateways", fmt::format("gateways must be 1 to {}", kGatewaysMax));
  }
  if (options.zones < 1 || options.zones > options.gateways) {
    return bad("zones", "zones must be from 1 to as many as there are gateways");
  }
  if (options.autoscaling && (options.gateways > 1 || options.report_s > 0)) {
    return bad("gateways", "gateways must be 1 where a fleet is scaled: the one there sees all");
  }
  if (options.adapters.count > 0 &&
      (options.replica.adapters.resident_max < 1 || options.replica.capacity.adapters_max < 1)) {
    return bad("adapters", "adapters must be 0 where a replica has no place for one");
  }
  if (workload.conversations.size() != workload.at_s.size()) {
    return bad("workload", "a workload needs a time for each conversation");
  }
  for (const workload::Conversation& conversation : workload.conversations) {
    if (conversation.turns.empty()) return bad("workload", "a conversation has no turn");
  }
  for (const Fault& fault : options.faults) {
    if (fault.replica < 0 || fault.replica >= replicas_max(options)) {
      return bad("faults", fmt::format("there is no replica {}", fault.replica));
    }
  }
  return Fleet(options, workload, times).run();
}

}  // namespace pelton::simulator
