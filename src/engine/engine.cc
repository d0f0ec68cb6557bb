#include "engine/engine.h"

#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "engine/inbox.h"
#include "engine/scheduler.h"
#include "engine/token_stream_state.h"

namespace pelton::engine {

namespace {

// EngineStats, readable while the engine thread writes.
struct SharedStats {
  std::atomic<int> running{0};
  std::atomic<int> waiting{0};
  std::atomic<int64_t> steps{0};
  std::atomic<int64_t> prompt_tokens{0};
  std::atomic<int64_t> output_tokens{0};
  std::atomic<int64_t> preemptions{0};
  std::atomic<int> full_blocks_used{0};
  std::atomic<int> window_blocks_used{0};
  std::atomic<int64_t> prefix_tokens_asked{0};
  std::atomic<int64_t> prefix_tokens_found{0};
};

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
        inbox_({.requests_max = options.inbox_max, .tokens_max = options.queued_tokens_max}),
        kv_events_(options.kv_events_max),
        scheduler_(executor.capacity(), {.prefix_cache = options.prefix_cache,
                                         .hash_seed = options.hash_seed.value_or(draw_seed()),
                                         .events = &kv_events_,
                                         .policy = options.policy}) {
    CHECK(options.inbox_max > 0);
    CHECK(options.steps_in_flight_max == 1 || options.steps_in_flight_max == 2);
    thread_ = std::thread([this] { run(); });
  }

  ~Loop() {
    inbox_.stop();
    thread_.join();
  }

  Result<TokenStream> submit(request::GenerationRequest request);
  void drain(int64_t limit_ms);
  EngineStats stats() const;
  Ledger ledger() const;
  const kv::EventLog& kv_events() const { return kv_events_; }
  const ExecutorCapacity& capacity() const { return executor_.capacity(); }

 private:
  // A request the scheduler knows.
  struct Reader {
    std::shared_ptr<TokenStream::State> stream;
    std::string request_id;
    int prompt_tokens = 0;
    bool was_admitted = false;
  };

  void run();
  void turn();
  void receive(std::vector<Inbox::Arrival> arrivals);
  void refuse(Reader& reader, const Error& error);
  void drop_cancelled();
  void emit();
  void emit(Scheduler::Event event);
  void publish_stats();
  void publish_ledger();
  void check_when_idle();
  void stop();

  const Options options_;
  Executor& executor_;
  const base::Clock& clock_;
  base::Log& log_;
  const std::shared_ptr<CancelCount> cancels_ = std::make_shared<CancelCount>(0);
  Inbox inbox_;
  SharedStats stats_;
  kv::EventLog kv_events_;
  mutable std::mutex ledger_mutex_;
  Ledger ledger_;  // guarded by ledger_mutex_

  // Engine thread only.
  Scheduler scheduler_;
  std::unordered_map<SequenceId, Reader> readers_;
  int64_t cancels_seen_ = 0;
  int in_flight_ = 0;
  int64_t integrity_checks_ = 0;
  std::optional<int64_t> checked_ns_;
  std::vector<Scheduler::Event> events_;  // taken from the scheduler, being emitted

  std::thread thread_;
};

Result<TokenStream> Engine::Loop::submit(request::GenerationRequest request) {
  TRY(check_request(request, capacity()));
  const std::shared_ptr<TokenStream::State> state = std::make_shared<TokenStream::State>(cancels_);
  TRY(inbox_.submit({.request = std::move(request), .stream = state}));
  return TokenStream(state);
}

void Engine::Loop::drain(int64_t limit_ms) {
  inbox_.close();
  inbox_.wait_until_all_ended(std::chrono::milliseconds(limit_ms));
}

void Engine::Loop::run() {
  for (;;) {
    const bool nothing_to_do = scheduler_.idle() && in_flight_ == 0;
    if (nothing_to_do) check_when_idle();
    publish_ledger();
    Inbox::Delivery delivery = nothing_to_do ? inbox_.wait() : inbox_.take();
    receive(std::move(delivery.arrivals));
    if (delivery.stop) return stop();
    turn();
  }
}

void Engine::Loop::turn() {
  drop_cancelled();

  StepPlan next = scheduler_.plan(clock_.now_ns());
  const bool submitted = !next.empty();
  if (submitted) {
    executor_.submit(std::move(next));
    ++in_flight_;
  }
  // Beyond this point no sequence joins or leaves the submitted step.
  publish_stats();
  emit();

  if (in_flight_ == options_.steps_in_flight_max || (in_flight_ > 0 && !submitted)) {
    StepResult result = executor_.collect();  // of the oldest step; a later one runs on
    --in_flight_;
    stats_.steps.fetch_add(1, std::memory_order_relaxed);
    if (result.error) {
      log_.error(fmt::format("step {} failed: {}", result.step, result.error->message));
    }
    scheduler_.commit(std::move(result));
  }
  if (options_.checks_every_step) {
    scheduler_.check_integrity();
    ++integrity_checks_;
  }
  // Beyond this point finished sequences hold no blocks.
  publish_stats();
  emit();
}

void Engine::Loop::receive(std::vector<Inbox::Arrival> arrivals) {
  for (Inbox::Arrival& arrival : arrivals) {
    Reader reader{.stream = std::move(arrival.stream),
                  .request_id = arrival.request.id,
                  .prompt_tokens = static_cast<int>(arrival.request.prompt.size())};
    const Result<SequenceId> id = scheduler_.submit(std::move(arrival.request));
    if (!id.ok()) {  // a prefix was pinned after submit had checked the request
      refuse(reader, id.error());
      continue;
    }
    readers_.emplace(id.value(), std::move(reader));
  }
  // A reader may have left before its request came this far; look again.
  if (!arrivals.empty()) cancels_seen_ = -1;
}

void Engine::Loop::refuse(Reader& reader, const Error& error) {
  reader.stream->put(std::nullopt, StreamEnd{.reason = FinishReason::kError,
                                             .prompt_tokens = reader.prompt_tokens,
                                             .error = error});
  inbox_.note_ended({.was_admitted = reader.was_admitted, .prompt_tokens = reader.prompt_tokens});
}

void Engine::Loop::drop_cancelled() {
  const int64_t cancels = cancels_->load(std::memory_order_acquire);
  if (cancels == cancels_seen_) return;
  cancels_seen_ = cancels;
  for (const auto& [id, reader] : readers_) {
    if (reader.stream->cancelled.load(std::memory_order_acquire)) scheduler_.cancel(id);
  }
}

void Engine::Loop::emit() {
  scheduler_.take_events(events_);
  for (Scheduler::Event& event : events_) emit(std::move(event));
}

void Engine::Loop::emit(Scheduler::Event event) {
  const auto found = readers_.find(event.id);
  CHECK(found != readers_.end());
  Reader& reader = found->second;
  if (event.seating == Scheduler::Event::Seating::kSeated && !reader.was_admitted) {
    reader.was_admitted = true;
    inbox_.note_admitted(reader.prompt_tokens);
    stats_.prompt_tokens.fetch_add(reader.prompt_tokens, std::memory_order_relaxed);
  }
  if (event.seating == Scheduler::Event::Seating::kPreempted) {
    log_.debug(fmt::format("request {} preempted", reader.request_id));
  }
  if (event.token) stats_.output_tokens.fetch_add(1, std::memory_order_relaxed);
  const bool ended = event.end != nullptr;
  std::optional<StreamEnd> end;
  if (ended) end = *std::move(event.end);
  if (event.token || ended) reader.stream->put(std::move(event.token), std::move(end));
  if (ended) {
    inbox_.note_ended({.was_admitted = reader.was_admitted, .prompt_tokens = reader.prompt_tokens});
    readers_.erase(found);
  }
}

void Engine::Loop::publish_stats() {
  stats_.running.store(scheduler_.running_count(), std::memory_order_relaxed);
  stats_.waiting.store(scheduler_.waiting_count(), std::memory_order_relaxed);
  const SchedulerCounters& counters = scheduler_.counters();
  stats_.preemptions.store(counters.preemptions_recompute + counters.preemptions_swap,
                           std::memory_order_relaxed);
  stats_.full_blocks_used.store(scheduler_.full_blocks_used(), std::memory_order_relaxed);
  stats_.window_blocks_used.store(scheduler_.window_blocks_used(), std::memory_order_relaxed);
  stats_.prefix_tokens_asked.store(counters.prompt_tokens, std::memory_order_relaxed);
  stats_.prefix_tokens_found.store(counters.prompt_tokens_cached, std::memory_order_relaxed);
}

void Engine::Loop::publish_ledger() {
  Ledger ledger = scheduler_.ledger();
  const Inbox::Queued queued = inbox_.queued();
  ledger.streams = static_cast<int>(readers_.size());
  ledger.queued = queued.requests;
  ledger.queued_tokens = queued.tokens;
  ledger.kv_events = kv_events_.event_count();
  ledger.kv_events_dropped = kv_events_.dropped_count();
  ledger.integrity_checks = integrity_checks_;
  std::lock_guard lock(ledger_mutex_);
  ledger_ = ledger;
}

Ledger Engine::Loop::ledger() const {
  std::lock_guard lock(ledger_mutex_);
  return ledger_;
}

// It looks at every block: not more often than once a second, so that it delays nobody who comes.
void Engine::Loop::check_when_idle() {
  const int64_t now_ns = clock_.now_ns();
  if (checked_ns_ && now_ns - *checked_ns_ < 1'000'000'000) return;
  checked_ns_ = now_ns;
  scheduler_.check_integrity();
  ++integrity_checks_;
}

// Every reader gets an end, and the executor is left with nothing in flight.
void Engine::Loop::stop() {
  while (in_flight_ > 0) {
    scheduler_.commit(executor_.collect());
    --in_flight_;
  }
  const Error error{ErrorCode::kUnavailable, "the engine has stopped"};
  for (const SequenceId id : scheduler_.live()) scheduler_.fail(id, error);
  publish_stats();
  emit();
  publish_ledger();
}

EngineStats Engine::Loop::stats() const {
  return {.running = stats_.running.load(std::memory_order_relaxed),
          .waiting = stats_.waiting.load(std::memory_order_relaxed),
          .steps = stats_.steps.load(std::memory_order_relaxed),
          .prompt_tokens = stats_.prompt_tokens.load(std::memory_order_relaxed),
          .output_tokens = stats_.output_tokens.load(std::memory_order_relaxed),
          .preemptions = stats_.preemptions.load(std::memory_order_relaxed),
          .full_blocks_used = stats_.full_blocks_used.load(std::memory_order_relaxed),
          .window_blocks_used = stats_.window_blocks_used.load(std::memory_order_relaxed),
          .prefix_tokens_asked = stats_.prefix_tokens_asked.load(std::memory_order_relaxed),
          .prefix_tokens_found = stats_.prefix_tokens_found.load(std::memory_order_relaxed)};
}

Engine::Engine(const Options& options, Executor& executor, const base::Clock& clock, base::Log& log)
    : loop_(std::make_unique<Loop>(options, executor, clock, log)) {}

Engine::~Engine() = default;

Result<TokenStream> Engine::submit(request::GenerationRequest request) {
  return loop_->submit(std::move(request));
}

void Engine::drain(int64_t limit_ms) {
  loop_->drain(limit_ms);
}

EngineStats Engine::stats() const {
  return loop_->stats();
}

Ledger Engine::ledger() const {
  return loop_->ledger();
}

const kv::EventLog& Engine::kv_events() const {
  return loop_->kv_events();
}

const ExecutorCapacity& Engine::capacity() const {
  return loop_->capacity();
}

}  // namespace pelton::engine
