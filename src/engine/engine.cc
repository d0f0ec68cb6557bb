#include "engine/engine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <pthread.h>

#include "base/check.h"
#include "engine/engine_core.h"
#include "engine/inbox.h"
#include "engine/speculation_log.h"
#include "engine/token_stream_state.h"

namespace pelton::engine {

namespace {

// Answers that a drain ends by force learn it when the step on its way is over; for a stuck one
// nobody waits.
constexpr std::chrono::seconds kLastStepMax{10};

// How often it is looked whether sequences that are deferred may go on, if no other has a step.
constexpr std::chrono::milliseconds kDeferralLook{1};

// From so many on readers are busy for a while.
constexpr size_t kManyUpdates = 32;

uint64_t draw_seed() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

}  // namespace

class Engine::Loop {
 public:
  Loop(const Options& options, Executor& executor, const base::Clock& clock, base::Log& log)
      : options_(options),
        executor_(executor),
        clock_(clock),
        log_(log),
        inbox_({.requests_max = options.inbox_max,
                .tokens_max = options.queued_tokens_max,
                .wait_max_ns = options.queue_wait_max_ns,
                .slots = {executor.capacity().sequences_max,
                          executor.capacity().pooled_sequences_max}}),
        kv_events_(options.kv_events_max),
        core_(executor.capacity(),
              {.prefix_cache = options.prefix_cache,
               .hash_seed = options.hash_seed.value_or(draw_seed()),
               .events = &kv_events_,
               .clock = &clock,
               .disk_writes = options.disk_writes,
               .policy = options.policy,
               .adaptive_drafts = options.adaptive_drafts},
              {.steps_in_flight_max = options.steps_in_flight_max,
               .overlapped_step_ns_max = options.overlapped_step_ns_max},
              [this](base::FunctionRef<void(AdmissionQueue&)> use) { inbox_.update_queue(use); }) {
    CHECK(options.inbox_max > 0);
    if (executor.disk() != nullptr) core_.adopt_kept(*executor.disk());
    if (executor.peers() != nullptr && options.prefix_cache) {
      core_.turn_on_peers();
      executor.peers()->on_news([this] { inbox_.wake(); });
    }
    publish_stats();  // so that nobody ever reads empty ones
    publish_ledger();
    thread_ = std::thread([this] { run(); });
  }

  ~Loop() {
    if (executor_.peers() != nullptr) executor_.peers()->on_news(nullptr);
    inbox_.stop();
    thread_.join();
    erase_if_asked();  // whoever waits for it hears of it
  }

  Result<std::vector<TokenStream>> submit(request::GenerationRequest request, int answers,
                                          std::shared_ptr<Outbox> outbox);
  Result<void> room_for(const AdmissionQueue::Candidate& candidate) const {
    return inbox_.room_for(candidate, clock_.now_ns());
  }
  int64_t retry_after_ns() const { return inbox_.retry_after_ns(clock_.now_ns()); }
  void drain(int64_t limit_ms);
  EngineStats stats() const;
  int64_t busy_since_ns() const { return busy_since_ns_.load(std::memory_order_relaxed); }
  int abandon(const Error& error);
  Ledger ledger() const;
  void erase(std::optional<std::string> tenant, Erased done);
  bool keeps_blocks() const {
    return executor_.disk() != nullptr && executor_.disk()->outlives_process();
  }
  void unpin(std::string id);
  void release_kv_memory();
  const kv::EventLog& kv_events() const { return kv_events_; }
  const ExecutorCapacity& capacity() const { return executor_.capacity(); }
  const kv::PeerTransfers::Place* peer_place() const {
    kv::PeerTransfers* const peers = options_.prefix_cache ? executor_.peers() : nullptr;
    return peers == nullptr ? nullptr : &peers->place();
  }

 private:
  // What an outbox is given at the end of a step.
  struct UpdateBatch {
    std::shared_ptr<Outbox> outbox;
    std::vector<Outbox::TokenUpdate> updates;
    size_t sent_last = 0;  // updates
    int readers = 0;
  };

  // What is to be forgotten: this tenant's, or all.
  struct Erasure {
    std::optional<std::string> tenant;
    Erased done;
  };

  // An answer the scheduler knows.
  struct Reader {
    // What every token touches.
    std::shared_ptr<TokenStream::State> stream;
    UpdateBatch* batch = nullptr;  // null: its stream gets its tokens directly
    std::string request_id;
  };

  void track(const std::vector<std::shared_ptr<TokenStream::State>>& states);
  void run();
  void turn();
  void exchange_with_disk();
  void exchange_with_peers();
  void warn_of_room();
  void erase_if_asked();
  void carry_out(Erasure erasure);
  void collect();
  void receive(std::vector<Inbox::Arrival> arrivals);
  void refuse(const Inbox::Arrival& arrival, int prompt_tokens, const Error& error);
  void poll_cancellations();  // who has left, or forces tokens
  void emit();
  void emit(Scheduler::Event& event, int64_t now_ns);
  void deliver(Reader& reader, Scheduler::Event& event, int64_t now_ns);
  void announce_updates();
  void send_updates();
  UpdateBatch* batch_of(const std::shared_ptr<Outbox>& outbox);
  void publish_stats();
  void publish_ledger();
  void release_if_asked();
  void check_when_idle();
  void stop();

  const Options options_;
  Executor& executor_;
  const base::Clock& clock_;
  base::Log& log_;
  const std::shared_ptr<CancelCount> cancels_ = std::make_shared<CancelCount>(0);
  Inbox inbox_;
  kv::EventLog kv_events_;
  mutable std::mutex stats_mutex_;
  Ledger ledger_;      // guarded by stats_mutex_
  EngineStats stats_;  // guarded by stats_mutex_
  std::atomic<int64_t> busy_since_ns_{0};
  std::atomic<bool> is_erase_asked_{false};
  std::mutex erase_mutex_;
  std::vector<Erasure> erasures_;      // under it: to be carried out
  std::vector<std::string> unpinned_;  // ids; likewise
  std::atomic<bool> is_release_asked_{false};
  std::mutex live_mutex_;
  std::vector<std::weak_ptr<TokenStream::State>> live_;  // guarded by live_mutex_
  size_t live_swept_at_ = 0;                             // guarded by live_mutex_

  SpeculationLog speculation_log_{log_};  // engine thread only, as what follows
  EngineCore core_;
  std::unordered_map<SequenceId, std::unique_ptr<Reader>> readers_;  // the core's answers lead here
  int64_t cancels_seen_ = 0;
  bool all_deferred_ = false;
  bool warned_of_room_ = false;
  int64_t integrity_checks_ = 0;
  int64_t kv_releases_ = 0;
  std::optional<int64_t> checked_ns_;
  std::vector<std::unique_ptr<UpdateBatch>> batches_;  // few: a thread's each

  std::thread thread_;
};

Result<std::vector<TokenStream>> Engine::Loop::submit(request::GenerationRequest request,
                                                      int answers, std::shared_ptr<Outbox> outbox) {
  if (answers < 1 || answers > kAnswersMax) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("{} answers were asked for; 1 to {} are possible", answers, kAnswersMax), "n"};
  }
  TRY(check_request(request, capacity()));
  if (!request.resumed.empty() && request.resumed.size() != static_cast<size_t>(answers)) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("{} answers were asked for and {} resumed", answers, request.resumed.size()),
        "resumed"};
  }
  Inbox::Arrival arrival{.request = std::move(request),
                         .streams = {},
                         .queued_ns = clock_.now_ns(),
                         .outbox = std::move(outbox)};
  const TokenStream::State::Asked asked{
      .prompt_tokens = static_cast<int>(arrival.request.prompt.size()),
      .queued_ns = arrival.queued_ns};
  std::vector<TokenStream> streams;
  for (int i = 0; i < answers; ++i) {
    arrival.streams.push_back(std::make_shared<TokenStream::State>(asked, cancels_));
    streams.emplace_back(arrival.streams.back());
  }
  const std::vector<std::shared_ptr<TokenStream::State>> states = arrival.streams;
  TRY(inbox_.submit(std::move(arrival)));
  track(states);
  return streams;
}

// For abandon(): the engine thread, which knows them too, may be the one that is stuck.
void Engine::Loop::track(const std::vector<std::shared_ptr<TokenStream::State>>& states) {
  std::lock_guard lock(live_mutex_);
  if (live_.size() >= live_swept_at_) {
    std::erase_if(live_, [](const auto& state) { return state.expired(); });
    live_swept_at_ = std::max<size_t>(64, 2 * live_.size());
  }
  live_.insert(live_.end(), states.begin(), states.end());
}

int Engine::Loop::abandon(const Error& error) {
  std::lock_guard lock(live_mutex_);
  int count = 0;
  for (const std::weak_ptr<TokenStream::State>& weak : live_) {
    const std::shared_ptr<TokenStream::State> state = weak.lock();
    if (state != nullptr && state->abandon(error, clock_.now_ns())) ++count;
  }
  return count;
}

void Engine::Loop::drain(int64_t limit_ms) {
  inbox_.close();
  if (inbox_.wait_until_all_ended(std::chrono::milliseconds(limit_ms))) return;
  inbox_.stop();
  inbox_.wait_until_all_ended(kLastStepMax);
}

void Engine::Loop::run() {
  pthread_setname_np(pthread_self(), "pelton-engine");
  for (;;) {
    const bool nothing_to_do = core_.idle();
    if (nothing_to_do) {
      release_if_asked();
      check_when_idle();
    }
    publish_ledger();
    if (nothing_to_do) {
      busy_since_ns_.store(0, std::memory_order_relaxed);
      core_.note_idle(clock_.now_ns());
    }
    Inbox::Delivery delivery = nothing_to_do   ? inbox_.wait()
                               : all_deferred_ ? inbox_.wait_for(kDeferralLook)
                                               : inbox_.take();
    busy_since_ns_.store(clock_.now_ns(), std::memory_order_relaxed);
    erase_if_asked();
    receive(std::move(delivery.arrivals));
    if (delivery.stop) return stop();
    turn();
  }
}

void Engine::Loop::turn() {
  poll_cancellations();
  exchange_with_disk();
  exchange_with_peers();

  if (core_.in_flight() < core_.depth()) {
    std::optional<StepPlan> next = core_.plan(clock_.now_ns());
    if (next) executor_.submit(*std::move(next));
    emit();
  }
  exchange_with_disk();
  exchange_with_peers();
  all_deferred_ = core_.all_deferred();
  if (core_.awaits_result()) collect();
  if (options_.checks_every_step) {
    core_.scheduler().check_integrity();
    ++integrity_checks_;
  }
  // Beyond this point finished sequences hold no blocks.
  emit();
}

// Neither call waits.
void Engine::Loop::exchange_with_disk() {
  kv::BlockTransfers* const disk = executor_.disk();
  if (disk == nullptr) return;
  for (const kv::TransferResult& result : disk->take_results()) {
    core_.finish_transfer(result, clock_.now_ns());
  }
  std::vector<kv::BlockTransfer> transfers = core_.take_transfers();
  if (!transfers.empty()) disk->begin(std::move(transfers));
}

// An answer to who asks at the wrong time.
kv::PeerOffer nothing_of(const kv::PeerAsk& ask) {
  return {.id = ask.id, .blocks = {}};
}

// Nor do these; but where blocks that are offered are needed here, for one that is being read.
void Engine::Loop::exchange_with_peers() {
  kv::PeerTransfers* const peers = executor_.peers();
  if (peers == nullptr) return;
  const int64_t now_ns = clock_.now_ns();
  for (const kv::PeerFetched& fetched : peers->take_fetched()) {
    if (!fetched.why.empty() && fetched.outcome != kv::PeerFetched::Outcome::kCancelled) {
      log_.warning(fmt::format("keys and values of a peer: {}", fetched.why));
    }
    core_.finish_peer_fetch(fetched, now_ns);
  }
  for (const int64_t id : peers->take_over()) core_.end_offer(id);
  if (core_.scheduler().needs_offered()) {
    peers->revoke_all();
    core_.end_all_offers();
  }
  for (const kv::PeerAsk& ask : peers->take_asks()) {
    // Nothing is lent while sequences lack blocks: each ask would be ahead of them again.
    const bool lacks = core_.scheduler().lacks_blocks();
    peers->offer(lacks ? nothing_of(ask) : core_.offer(ask, now_ns));
  }
  warn_of_room();
  for (kv::PeerOffer& offer : core_.further_offers(now_ns)) peers->offer(std::move(offer));
  for (kv::PeerFetch& fetch : core_.take_peer_fetches()) peers->fetch(std::move(fetch));
  for (const int64_t id : core_.take_peer_cancels()) peers->cancel(id);
}

// Once: metrics count them.
void Engine::Loop::warn_of_room() {
  if (warned_of_room_ || core_.scheduler().peer_tier().counters().no_room == 0) return;
  warned_of_room_ = true;
  log_.warning(
      "a prompt is computed although another worker has it: half of --swap-space, less what is in "
      "use, does not hold what it lacks (pelton_kv_peer_fetches_total, kind no_room)");
}

void Engine::Loop::erase(std::optional<std::string> tenant, Erased done) {
  {
    std::lock_guard lock(erase_mutex_);
    erasures_.push_back({.tenant = std::move(tenant), .done = std::move(done)});
  }
  is_erase_asked_.store(true, std::memory_order_release);
  inbox_.wake();
}

void Engine::Loop::unpin(std::string id) {
  {
    std::lock_guard lock(erase_mutex_);
    unpinned_.push_back(std::move(id));
  }
  is_erase_asked_.store(true, std::memory_order_release);
  inbox_.wake();
}

// Before requests are received: those that come after it was asked find nothing.
void Engine::Loop::erase_if_asked() {
  if (!is_erase_asked_.exchange(false, std::memory_order_acq_rel)) return;
  std::vector<Erasure> erasures;
  std::vector<std::string> unpinned;
  {
    std::lock_guard lock(erase_mutex_);
    erasures.swap(erasures_);
    unpinned.swap(unpinned_);
  }
  for (const std::string& id : unpinned) core_.unpin(id);
  for (Erasure& erasure : erasures) carry_out(std::move(erasure));
}

void Engine::Loop::carry_out(Erasure erasure) {
  erasure.tenant ? core_.erase_tenant(*erasure.tenant) : core_.reset_prefix_cache();
  kv::BlockTransfers* const disk = executor_.disk();
  if (disk == nullptr) {
    if (erasure.done) erasure.done({});
    return;
  }
  std::optional<uint64_t> owner;
  if (erasure.tenant) owner = disk->owner_of(*erasure.tenant);
  disk->erase(owner, std::move(erasure.done));
}

void Engine::Loop::release_kv_memory() {
  is_release_asked_.store(true, std::memory_order_release);
  inbox_.wake();
}

// With nothing to do. Blocks that peers read are revoked first.
void Engine::Loop::release_if_asked() {
  if (!is_release_asked_.exchange(false, std::memory_order_acq_rel)) return;
  if (!executor_.releases_kv_memory()) {
    return log_.info("its KV cache and its memory are kept: it is not given back here");
  }
  const Ledger before = core_.scheduler().ledger();
  for (const kv::PerGroup<Ledger::Blocks>& tier : before.blocks) {
    const auto is_pinned = [](const Ledger::Blocks& counted) { return counted.pinned > 0; };
    if (std::ranges::any_of(tier, is_pinned)) {
      return log_.info("its KV cache and its memory are kept: some blocks are pinned");
    }
  }
  carry_out({});
  if (kv::PeerTransfers* const peers = executor_.peers(); peers != nullptr) {
    peers->revoke_all();
    core_.end_all_offers();
  }
  const Ledger ledger = core_.scheduler().ledger();
  for (const kv::PerGroup<Ledger::Blocks>& tier : ledger.blocks) {
    for (const Ledger::Blocks& counted : tier) {
      if (counted.free != counted.total) {
        return log_.info("its KV cache's memory is kept: some blocks are in use");
      }
    }
  }
  const int64_t bytes = executor_.release_kv_memory();
  ++kv_releases_;
  publish_stats();
  log_.info(fmt::format("its KV cache's memory is given back: {} MiB at most", bytes >> 20));
}

void Engine::Loop::collect() {
  StepResult result = executor_.collect();
  announce_updates();
  if (result.error) {
    log_.error(fmt::format("step {} failed: {}", result.step, result.error->message));
  }
  core_.commit(std::move(result), clock_.now_ns());
}

void Engine::Loop::receive(std::vector<Inbox::Arrival> arrivals) {
  std::vector<std::unique_ptr<Reader>> readers;
  std::vector<void*> tags;
  for (Inbox::Arrival& arrival : arrivals) {
    const auto prompt_tokens = static_cast<int>(arrival.request.prompt.size());
    UpdateBatch* const batch = batch_of(arrival.outbox);
    readers.clear();
    tags.clear();
    for (const std::shared_ptr<TokenStream::State>& stream : arrival.streams) {
      readers.push_back(std::make_unique<Reader>(
          Reader{.stream = stream, .batch = batch, .request_id = arrival.request.id}));
      tags.push_back(readers.back().get());
    }
    const Result<std::vector<SequenceId>> ids =
        core_.receive(std::move(arrival.request), arrival.queued_ns, tags);
    if (!ids.ok()) {  // a prefix was pinned after submit had checked the request
      refuse(arrival, prompt_tokens, ids.error());
      continue;
    }
    for (size_t i = 0; i < ids->size(); ++i) {
      readers_.emplace((*ids)[i], std::move(readers[i]));
      if (batch != nullptr) ++batch->readers;
    }
  }
  if (arrivals.empty()) return;
  // A reader may have left before its request came this far; look again.
  cancels_seen_ = -1;
  is_release_asked_ = false;  // it is needed
}

void Engine::Loop::refuse(const Inbox::Arrival& arrival, int prompt_tokens, const Error& error) {
  for (const std::shared_ptr<TokenStream::State>& stream : arrival.streams) {
    stream->put(
        std::nullopt,
        StreamEnd{.reason = FinishReason::kError, .prompt_tokens = prompt_tokens, .error = error},
        clock_.now_ns());
    inbox_.note_ended();
  }
}

void Engine::Loop::poll_cancellations() {
  const int64_t cancels = cancels_->load(std::memory_order_acquire);
  if (cancels == cancels_seen_) return;
  cancels_seen_ = cancels;
  for (const auto& [id, reader] : readers_) {
    if (reader->stream->cancelled.load(std::memory_order_acquire)) {
      core_.cancel(id);
    } else if (std::optional<TokenConstraints> tokens = reader->stream->take_token_constraints()) {
      core_.force(id, *std::move(tokens));
    }
  }
}

// Counted before they are reported: a reader who has seen a token finds it in the books.
void Engine::Loop::emit() {
  const int64_t now_ns = clock_.now_ns();
  const std::span<Scheduler::Event> events = core_.take_events(now_ns);
  publish_stats();
  publish_ledger();
  if (events.empty()) return;
  int ended = 0;
  for (Scheduler::Event& event : events) {
    if (event.end != nullptr) ++ended;
    emit(event, now_ns);
  }
  send_updates();
  for (; ended > 0; --ended) inbox_.note_ended();
}

Engine::Loop::UpdateBatch* Engine::Loop::batch_of(const std::shared_ptr<Outbox>& outbox) {
  if (outbox == nullptr) return nullptr;
  for (const std::unique_ptr<UpdateBatch>& batch : batches_) {
    if (batch->outbox == outbox) return batch.get();
  }
  batches_.push_back(std::make_unique<UpdateBatch>(UpdateBatch{.outbox = outbox, .updates = {}}));
  return batches_.back().get();
}

// Readers' threads wake while the step is committed, rather than after it. Not while steps are
// short: then they hardly sleep.
void Engine::Loop::announce_updates() {
  if (core_.depth() > 1) return;
  for (const std::unique_ptr<UpdateBatch>& batch : batches_) {
    if (batch->sent_last >= kManyUpdates) batch->outbox->announce();
  }
}

// Tokens go out before the next step is planned: where readers have no processor to themselves,
// they get this one. Not while steps are short: then the next one is on its way, and tokens that
// gather leave in fewer writes.
void Engine::Loop::send_updates() {
  size_t sent = 0;
  for (const std::unique_ptr<UpdateBatch>& batch : batches_) {
    if (batch->updates.empty()) continue;
    batch->sent_last = batch->updates.size();
    sent += batch->sent_last;
    batch->outbox->send(batch->updates);
  }
  std::erase_if(batches_, [](const auto& batch) { return batch->readers == 0; });
  if (sent >= kManyUpdates && core_.depth() == 1) std::this_thread::yield();
}

void Engine::Loop::emit(Scheduler::Event& event, int64_t now_ns) {
  using SlotAllocation = Scheduler::Event::SlotAllocation;
  const bool ended = event.end != nullptr;
  const bool made_way = event.slot_allocation == SlotAllocation::kPreempted ||
                        event.slot_allocation == SlotAllocation::kSwappedOut;
  if (!event.token && !ended && !made_way) return;
  const SequenceId id = event.id;
  Reader& reader = *static_cast<Reader*>(core_.answer(id).reader);
  if (made_way) {
    log_.debug(fmt::format(
        "request {} {}", reader.request_id,
        event.slot_allocation == SlotAllocation::kPreempted ? "preempted" : "swapped out"));
  }
  if (event.token || ended) deliver(reader, event, now_ns);
  if (!ended) return;
  if (reader.batch != nullptr) --reader.batch->readers;
  core_.forget(id);
  readers_.erase(id);
}

void Engine::Loop::deliver(Reader& reader, Scheduler::Event& event, int64_t now_ns) {
  if (reader.batch == nullptr) {
    std::optional<StreamEnd> end;
    if (event.end != nullptr) end = *std::move(event.end);
    if (event.prompt) reader.stream->put_prompt(std::move(*event.prompt));
    if (event.found) reader.stream->put_found(*event.found);
    return reader.stream->put(std::move(event.token), std::move(end), now_ns);
  }
  Outbox::TokenUpdate& update = reader.batch->updates.emplace_back();
  update.to = reader.stream.get();
  update.token = std::move(event.token);
  update.now_ns = now_ns;
  update.prompt = std::move(event.prompt);
  update.found = std::move(event.found);
  if (event.end == nullptr) return;
  update.last = std::make_unique<Outbox::TokenUpdate::Last>(
      Outbox::TokenUpdate::Last{.stream = std::move(reader.stream), .end = *std::move(event.end)});
}

void Engine::Loop::publish_stats() {
  const Scheduler& scheduler = core_.scheduler();
  const SchedulerCounters& counters = scheduler.counters();
  EngineStats stats;
  stats.steps = core_.counts();
  const Inbox::Queued queued = inbox_.queued(clock_.now_ns());
  stats.running = scheduler.running_count();
  stats.waiting = scheduler.waiting_count();
  stats.swapped_out = scheduler.swapped_out_count();
  stats.queued = queued.requests;
  stats.queued_tokens = queued.tokens;
  stats.queue_wait_ns = queued.wait_ns;
  stats.blocks_used = scheduler.blocks_used();
  stats.preemptions =
      counters.preemptions_recompute + counters.preemptions_swap + counters.preemptions_costless;
  stats.prefix_tokens_asked = counters.prompt_tokens;
  stats.prefix_tokens_found = counters.prompt_tokens_cached;
  stats.scheduler = counters;
  stats.disk = scheduler.disk().counters();
  stats.peers = scheduler.peer_tier().counters();
  stats.kv_releases = kv_releases_;
  stats.has_peers = scheduler.peer_tier().on();
  if (executor_.peers() != nullptr) stats.served = executor_.peers()->served();
  stats.drafts = scheduler.draft_report();
  stats.block_times = scheduler.block_times();
  if (executor_.capacity().draft_tokens_max > 0) {
    speculation_log_.note(clock_.now_ns(), counters, stats.drafts, executor_.capacity().proposers);
  }
  std::lock_guard lock(stats_mutex_);
  stats_ = stats;
}

void Engine::Loop::publish_ledger() {
  Ledger ledger = core_.scheduler().ledger();
  const Inbox::Queued queued = inbox_.queued(clock_.now_ns());
  ledger.streams = static_cast<int>(readers_.size());
  ledger.queued = queued.requests;
  ledger.queued_tokens = queued.tokens;
  ledger.kv_events = kv_events_.event_count();
  ledger.kv_events_dropped = kv_events_.dropped_count();
  ledger.integrity_checks = integrity_checks_;
  std::lock_guard lock(stats_mutex_);
  ledger_ = ledger;
}

Ledger Engine::Loop::ledger() const {
  std::lock_guard lock(stats_mutex_);
  return ledger_;
}

// It looks at every block: not more often than once a second, so that it delays nobody who comes.
void Engine::Loop::check_when_idle() {
  const int64_t now_ns = clock_.now_ns();
  if (checked_ns_ && now_ns - *checked_ns_ < 1'000'000'000) return;
  checked_ns_ = now_ns;
  core_.scheduler().check_integrity();
  ++integrity_checks_;
}

// Every reader gets an end, and the executor is left with nothing in flight.
void Engine::Loop::stop() {
  while (core_.in_flight() > 0) core_.commit(executor_.collect(), clock_.now_ns());
  const Error error{ErrorCode::kUnavailable, "The server is shutting down"};
  for (const SequenceId id : core_.scheduler().live()) core_.fail(id, error);
  emit();
  publish_ledger();
}

EngineStats Engine::Loop::stats() const {
  std::lock_guard lock(stats_mutex_);
  return stats_;
}

Engine::Engine(const Options& options, Executor& executor, const base::Clock& clock, base::Log& log)
    : loop_(std::make_unique<Loop>(options, executor, clock, log)) {}

Engine::~Engine() = default;

Result<TokenStream> Engine::submit(request::GenerationRequest request) {
  TRY_ASSIGN(std::vector<TokenStream> streams, loop_->submit(std::move(request), 1, nullptr));
  return std::move(streams.front());
}

Result<std::vector<TokenStream>> Engine::submit_answers(request::GenerationRequest request,
                                                        int count) {
  return loop_->submit(std::move(request), count, nullptr);
}

Result<std::vector<TokenStream>> Engine::submit_answers(request::GenerationRequest request,
                                                        int count, std::shared_ptr<Outbox> outbox) {
  return loop_->submit(std::move(request), count, std::move(outbox));
}

Result<void> Engine::room_for(const AdmissionQueue::Candidate& candidate) const {
  return loop_->room_for(candidate);
}

int64_t Engine::retry_after_ns() const {
  return loop_->retry_after_ns();
}

void Engine::drain(int64_t limit_ms) {
  loop_->drain(limit_ms);
}

EngineStats Engine::stats() const {
  return loop_->stats();
}

int64_t Engine::busy_since_ns() const {
  return loop_->busy_since_ns();
}

int Engine::abandon(const Error& error) {
  return loop_->abandon(error);
}

Ledger Engine::ledger() const {
  return loop_->ledger();
}

void Engine::reset_prefix_cache(Erased done) {
  loop_->erase(std::nullopt, std::move(done));
}

void Engine::erase_tenant(std::string tenant, Erased done) {
  loop_->erase(std::move(tenant), std::move(done));
}

bool Engine::keeps_blocks() const {
  return loop_->keeps_blocks();
}

void Engine::unpin(std::string id) {
  loop_->unpin(std::move(id));
}

void Engine::release_kv_memory() {
  loop_->release_kv_memory();
}

const kv::EventLog& Engine::kv_events() const {
  return loop_->kv_events();
}

const kv::PeerTransfers::Place* Engine::peer_place() const {
  return loop_->peer_place();
}

const ExecutorCapacity& Engine::capacity() const {
  return loop_->capacity();
}

}  // namespace pelton::engine
