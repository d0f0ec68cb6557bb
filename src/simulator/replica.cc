#include "simulator/replica.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "cost_model/slices.h"

namespace pelton::simulator {
namespace {

constexpr uint64_t kResidualStream = 0x7265736964;
// Whoever waits for the disk or a peer looks again: for what has come, and whether it has waited
// enough.
constexpr int64_t kPollNs = 2'000'000;
constexpr int64_t kIdlePollNs = 500'000'000;

cost_model::Windows windows_of(const engine::ExecutorCapacity& capacity) {
  cost_model::Windows windows;
  for (const kv::GroupCapacity& group : capacity.groups) {
    windows.push_back(group.spec.sliding_window);
  }
  return windows;
}

// A server that is asked for the first time has warmed up, and knows how long its steps are.
int64_t warm_step_ns(const cost_model::StepTimeModel& times, const cost_model::Windows& windows) {
  return static_cast<int64_t>(times.seconds(cost_model::StepLoad::decodes(1, 1, windows)) * 1e9);
}

// Unset: every token alike.
std::function<double(uint64_t, int)> acceptance_of(const cost_model::DraftAcceptance& acceptance) {
  if (acceptance.is_plain()) return {};
  return [acceptance](uint64_t seed, int place) { return acceptance.at(seed, place); };
}

// A core's answer leads to the number of its request.
void* as_reader(int64_t request) {
  return reinterpret_cast<void*>(static_cast<intptr_t>(request));
}
int64_t request_of(const engine::EngineCore::Answer& answer) {
  return static_cast<int64_t>(reinterpret_cast<intptr_t>(answer.reader));
}

}  // namespace

// Which token comes is of no interest here, but other sequences' must differ, or the prefix cache
// would find what is not there.
TokenId Replica::token_at(uint64_t seed, size_t position, int vocab) {
  // The upper half scaled: a remainder of 64 bits takes longer than all the rest.
  const uint64_t bits = base::random_bits(seed, position);
  return static_cast<TokenId>((bits >> 32) * static_cast<uint64_t>(vocab) >> 32);
}

ReplicaCounts& ReplicaCounts::operator+=(const ReplicaCounts& other) {
  steps += other.steps;
  steps_failed += other.steps_failed;
  rows += other.rows;
  tokens += other.tokens;
  busy_ns += other.busy_ns;
  running_max = std::max(running_max, other.running_max);
  scheduler.prompt_tokens += other.scheduler.prompt_tokens;
  scheduler.prompt_tokens_cached += other.scheduler.prompt_tokens_cached;
  for (size_t tier = 0; tier < kv::kTierCount; ++tier) {
    scheduler.prompt_tokens_cached_by_tier[tier] +=
        other.scheduler.prompt_tokens_cached_by_tier[tier];
  }
  scheduler.prompt_tokens_from_peers += other.scheduler.prompt_tokens_from_peers;
  scheduler.blocks_offloaded += other.scheduler.blocks_offloaded;
  scheduler.prompt_tokens_shared += other.scheduler.prompt_tokens_shared;
  scheduler.preemptions_recompute += other.scheduler.preemptions_recompute;
  scheduler.preemptions_swap += other.scheduler.preemptions_swap;
  scheduler.preemptions_costless += other.scheduler.preemptions_costless;
  scheduler.tokens_lost += other.scheduler.tokens_lost;
  scheduler.blocks_swapped_out += other.scheduler.blocks_swapped_out;
  scheduler.blocks_swapped_in += other.scheduler.blocks_swapped_in;
  scheduler.blocks_forked += other.scheduler.blocks_forked;
  scheduler.drafts += other.scheduler.drafts;
  scheduler.draft_tokens += other.scheduler.draft_tokens;
  scheduler.accepted_tokens += other.scheduler.accepted_tokens;
  adapters += other.adapters;
  disk.blocks_written += other.disk.blocks_written;
  disk.blocks_read += other.disk.blocks_read;
  disk.writes_dropped += other.disk.writes_dropped;
  disk.loads += other.disk.loads;
  disk.loads_declined += other.disk.loads_declined;
  disk.loads_late += other.disk.loads_late;
  peers.fetches += other.peers.fetches;
  peers.joined += other.peers.joined;
  peers.declined += other.peers.declined;
  peers.no_room += other.peers.no_room;
  peers.left_alone += other.peers.left_alone;
  peers.ahead += other.peers.ahead;
  peers.late += other.peers.late;
  peers.blocks_fetched += other.peers.blocks_fetched;
  peers.bytes_fetched += other.peers.bytes_fetched;
  peers.nothing += other.peers.nothing;
  peers.failed += other.peers.failed;
  peers.revoked += other.peers.revoked;
  return *this;
}

Replica::Replica(const Options& options, const cost_model::StepTimeModel& times)
    : options_(options),
      times_(times),
      windows_(windows_of(options.capacity)),
      kv_events_(std::max(options.kv_events_max, 1)),
      executor_(
          {.capacity = options.capacity,
           .next_token =
               [vocab = options.capacity.vocab_size](const engine::ModelledExecutor::Seen& seen) {
                 return token_at(seen.sampling.seed, seen.tokens.size(), vocab);
               },
           .embed = [](std::span<const TokenId>, request::Pooling,
                       std::span<float> embedding) { std::ranges::fill(embedding, 0.0F); },
           .timing = std::nullopt,
           .fail_step = [this](const engine::StepPlan&) -> std::optional<Error> {
             if (!std::exchange(fails_next_, false)) return std::nullopt;
             return Error{ErrorCode::kInternal, "a step that was to fail"};
           },
           .checks = options.checks,
           .blocks_hold_tokens = false,
           .draft_acceptance = options.draft_acceptance.mean(),
           .draft_acceptance_of = acceptance_of(options.draft_acceptance),
           .draft_seed = options.seed}),
      line_({.requests_max = options.inbox_max,
             .tokens_max = options.queued_tokens_max,
             .wait_max_ns = options.queue_wait_max_ns,
             .slots = {options.capacity.sequences_max, options.capacity.pooled_sequences_max}}),
      core_(options.capacity,
            {.prefix_cache = options.prefix_cache,
             .hash_seed = options.hash_seed,
             .events = options.kv_events_max > 0 ? &kv_events_ : nullptr,
             .disk_writes = options.disk_writes,
             .policy = options.policy,
             .adaptive_drafts = options.adaptive_drafts},
            {.steps_in_flight_max = options.steps_in_flight_max,
             .overlapped_step_ns_max = options.overlapped_step_ns_max,
             .step_ns = warm_step_ns(times, windows_)},
            [this](base::FunctionRef<void(engine::AdmissionQueue&)> use) { use(line_); }),
      adapters_(options.adapters) {
  if (!options.prefix_cache) return;
  if (executor_.disk() != nullptr) core_.adopt_kept(*executor_.disk());
  if (options.paths.links_peers()) core_.turn_on_peers();
}

int64_t Replica::prompt_tokens_left() const {
  int64_t tokens = core_.scheduler().prompt_tokens_left();
  for (const auto& [request, asked] : inbox_) tokens += std::ssize(asked.prompt);
  return tokens;
}

int64_t Replica::context_tokens() const {
  const int widest = kv::widest_group(options_.capacity.groups);
  return int64_t{core_.scheduler().blocks_used()[widest]} * options_.capacity.block_tokens;
}

double Replica::kv_used() const {
  const int widest = kv::widest_group(options_.capacity.groups);
  return static_cast<double>(core_.scheduler().blocks_used()[widest]) /
         std::max(options_.capacity.blocks(widest, kv::kDevice), 1);
}

std::vector<kv::Event> Replica::take_kv_events() {
  kv::EventLog::Reading reading =
      kv_events_.read({.from = kv_events_read_, .events_max = options_.kv_events_max});
  CHECK(reading.missed == 0, "events of the KV cache were forgotten unread");
  kv_events_read_ = reading.next;
  return std::move(reading.events);
}

Result<void> Replica::submit(int64_t now_ns, int64_t request, request::GenerationRequest asked) {
  if (options_.capacity.whole_prompts) asked.pooling = request::Pooling::kMean;
  TRY(engine::check_request(asked, options_.capacity));
  const int64_t adapter = asked.adapter.identity;
  if (adapter == 0) return enter(now_ns, {request, std::move(asked)});
  switch (adapters_.ask(now_ns, adapter, request)) {
    case AdapterPlaces::Answer::kRefused:
      return Error{ErrorCode::kOverloaded, "too many wait for adapters", "model"};
    case AdapterPlaces::Answer::kWaits:
      awaiting_adapters_.emplace(request, NewRequest{request, std::move(asked)});
      return {};
    case AdapterPlaces::Answer::kInMemory:
      break;
  }
  adapter_in_use_.emplace(request, adapter);
  const Result<void> entered = enter(now_ns, {request, std::move(asked)});
  if (!entered.ok()) end_use(now_ns, request);
  return entered;
}

Result<void> Replica::enter(int64_t now_ns, NewRequest arrival) {
  TRY(line_.enter(arrival.asked, 1, now_ns));
  inbox_.push_back(std::move(arrival));
  wake_up(now_ns);  // also one that waits for the disk or a peer
  return {};
}

// Whose adapters have come into memory.
void Replica::enter_loaded(int64_t now_ns, std::vector<Update>& updates) {
  std::vector<int64_t> begun;
  adapters_.wake(now_ns, begun);
  for (const int64_t request : begun) {
    auto waited = awaiting_adapters_.extract(request);
    adapter_in_use_.emplace(request, waited.mapped().asked.adapter.identity);
    if (enter(now_ns, std::move(waited.mapped())).ok()) continue;
    end_use(now_ns, request);
    updates.push_back({.at_ns = now_ns, .request = request, .ended = true, .failed = true});
  }
}

void Replica::end_use(int64_t now_ns, int64_t request) {
  const auto used = adapter_in_use_.find(request);
  if (used == adapter_in_use_.end()) return;
  const int64_t adapter = used->second;
  adapter_in_use_.erase(used);
  adapters_.release(now_ns, adapter);
}

std::optional<int64_t> Replica::wakes_at_ns() const {
  std::optional<int64_t> of_steps =
      ready_ns_.empty() ? arrived_ns_ : std::optional(ready_ns_.front());
  if (ready_ns_.empty() && polls_ns_) {
    // Whoever waits for the disk goes on when that has ended.
    const int64_t at_ns =
        on_disk_.empty() ? *polls_ns_ : std::min(*polls_ns_, on_disk_.back().ends_ns);
    of_steps = std::min(of_steps.value_or(at_ns), at_ns);
  }
  const std::optional<int64_t> of_adapters = adapters_.wakes_at_ns();
  if (!of_steps || !of_adapters) return of_steps ? of_steps : of_adapters;
  return std::min(*of_steps, *of_adapters);
}

void Replica::wake(int64_t now_ns, std::vector<Update>& updates) {
  const std::optional<int64_t> of_adapters = adapters_.wakes_at_ns();
  if (of_adapters && *of_adapters <= now_ns) enter_loaded(now_ns, updates);
  if (!ready_ns_.empty()) {
    if (ready_ns_.front() > now_ns) return;
    end_step(now_ns);
    emit(now_ns, updates);
  } else if (!arrived_ns_ && !polls_ns_) {
    return;
  }
  arrived_ns_.reset();
  polls_ns_.reset();
  turn(now_ns, updates);
}

void Replica::turn(int64_t now_ns, std::vector<Update>& updates) {
  for (;;) {
    receive(now_ns, updates);
    if (!cancelled_.empty()) {
      end_cancelled();
      emit(now_ns, updates);
    }
    exchange(now_ns);
    if (core_.idle()) return core_.note_idle(now_ns);
    std::optional<engine::StepPlan> plan = core_.plan(now_ns);
    const bool started = plan.has_value();
    if (started) start_step(*std::move(plan), now_ns);
    emit(now_ns, updates);
    exchange(now_ns);
    if (core_.awaits_result()) return;
    if (!started && core_.all_deferred()) {
      const bool any_waits = core_.scheduler().waiting_count() > 0;
      polls_ns_ = now_ns + (any_waits ? kPollNs : kIdlePollNs);
      return;
    }
    // Nothing runs and nothing can be planned: only deadlines could do that, and there are none.
    CHECK(started || core_.idle(), "the simulated engine stands still");
  }
}

void Replica::start_step(engine::StepPlan plan, int64_t now_ns) {
  const int64_t start_ns = ready_ns_.empty() ? now_ns : std::max(now_ns, ready_ns_.back());
  const int64_t takes_ns = step_ns(plan);
  ready_ns_.push_back(start_ns + takes_ns);
  counts_.busy_ns += takes_ns;
  fails_next_ = steps_to_fail_ > 0;
  if (fails_next_) --steps_to_fail_;
  executor_.submit(std::move(plan));
}

int64_t Replica::step_ns(const engine::StepPlan& plan) {
  cost_model::StepLoad load;
  int guesses = 0;
  for (const engine::ScheduledRow& row : plan.sequences) {
    load.add_row(row.start, row.token_count() + row.draft_max, row.sample ? 1 + row.draft_max : 0,
                 windows_);
    guesses = std::max(guesses, row.draft_max);
  }
  counts_.rows += load.rows;
  counts_.tokens += load.tokens;
  double seconds = with_copies(times_.seconds(load) + guesses * options_.draft_token_s, plan);
  seconds *= slowness_;
  const bool alone = load.tokens_alone == load.rows;
  const std::vector<double>& residuals = alone ? options_.residuals : options_.prompt_residuals;
  if (!residuals.empty()) {
    const uint64_t stream = options_.seed ^ kResidualStream;
    seconds *= cost_model::draw(residuals, base::random_unit(stream, steps_drawn_++));
  }
  return std::max<int64_t>(static_cast<int64_t>(std::llround(seconds * 1e9)), 1);
}

void Replica::end_step(int64_t now_ns) {
  ready_ns_.pop_front();
  core_.commit(executor_.collect(), now_ns);
  if (options_.checks) core_.scheduler().check_integrity();
}

void Replica::receive(int64_t now_ns, std::vector<Update>& updates) {
  for (NewRequest& arrival : inbox_) {
    void* const reader = as_reader(arrival.request);
    if (core_.receive(std::move(arrival.asked), now_ns, {&reader, 1}).ok()) continue;
    end_use(now_ns, arrival.request);
    updates.push_back({.at_ns = now_ns, .request = arrival.request, .ended = true, .failed = true});
  }
  inbox_.clear();
}

void Replica::cancel(int64_t request) {
  cancelled_.push_back(request);
}

void Replica::end_cancelled() {
  std::vector<engine::SequenceId> ids;
  for (const auto& [id, answer] : core_.answers()) {
    const auto found = std::find(cancelled_.begin(), cancelled_.end(), request_of(answer));
    if (found != cancelled_.end()) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  for (const engine::SequenceId id : ids) core_.cancel(id);
  std::erase_if(cancelled_, [&](int64_t one) { return !awaiting_adapters_.contains(one); });
}

void Replica::emit(int64_t now_ns, std::vector<Update>& updates) {
  for (engine::Scheduler::Event& event : core_.take_events(now_ns)) {
    if (!event.token && !event.end) continue;
    Update& one =
        updates.emplace_back();  // written in its place: a copy would wait for its own writes
    one.at_ns = now_ns;
    one.request = request_of(core_.answer(event.id));
    if (event.token) one.token = event.token->token;
    if (event.end == nullptr) continue;
    one.ended = true;
    one.failed = event.end->reason == engine::FinishReason::kError;
    // A vector counts as a token.
    if (event.end->reason == engine::FinishReason::kEmbedded) one.token = 0;
    one.cached_tokens = event.end->cached_tokens;
    core_.forget(event.id);
    end_use(now_ns, one.request);
  }
  counts_.running_max = std::max(counts_.running_max, core_.scheduler().running_count());
}

ReplicaCounts Replica::counts() const {
  ReplicaCounts counts = counts_;
  counts.steps = core_.counts().count;
  counts.steps_failed = core_.counts().failed;
  counts.scheduler = core_.scheduler().counters();
  counts.adapters = adapters_.counts();
  counts.disk = core_.scheduler().disk().counters();
  counts.peers = core_.scheduler().peer_tier().counters();
  return counts;
}

}  // namespace pelton::simulator
