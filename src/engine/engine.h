// One model's engine: an inbox, the scheduler, an executor, and the thread that turns them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "engine/admission_queue.h"
#include "engine/disk_tier.h"
#include "engine/draft_controller.h"
#include "engine/executor.h"
#include "engine/ledger.h"
#include "engine/outbox.h"
#include "engine/peer_tier.h"
#include "engine/scheduler_counters.h"
#include "engine/scheduling_policy.h"
#include "engine/step_counts.h"
#include "engine/token_stream.h"
#include "kv/block_lifetimes.h"
#include "kv/block_transfers.h"
#include "kv/event_log.h"
#include "kv/group.h"
#include "request/generation_request.h"

namespace pelton::engine {

// The state of one moment, and counts since the start.
struct EngineStats {
  int running = 0;
  int waiting = 0;                // known to the scheduler and without a slot
  int swapped_out = 0;            // of these, with their blocks in the host's memory
  int queued = 0;                 // accepted and never had a slot
  int64_t queued_tokens = 0;      // of their prompts
  int64_t queue_wait_ns = 0;      // until who came now would have a slot, as far as is known
  kv::PerGroup<int> blocks_used;  // on the device, by KV group

  StepCounts steps;
  int64_t preemptions = 0;          // of any kind
  int64_t prefix_tokens_asked = 0;  // of prompts that got a slot, once for each answer
  int64_t prefix_tokens_found = 0;  // of these, in the prefix cache
  using BlockTimes = kv::BlockTimes;
  BlockTimes block_times;       // of the widest group's blocks on the device, some of them
  SchedulerCounters scheduler;  // the same and more, as the scheduler counts
  DiskTier::Counters disk;
  int64_t kv_releases = 0;  // times that the memory of keys and values was given back
  bool has_peers = false;
  PeerTier::Counters peers;
  kv::PeerTransfers::Served served;  // to other workers
  DraftController::Report drafts;    // speculation: what is known of it, where guesses are computed
};

class Engine {
 public:
  // Where speed does not matter: debug and sanitizer builds.
#if !defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static constexpr bool kChecksEveryStep = true;
#else
  static constexpr bool kChecksEveryStep = false;
#endif

  struct Options {
    int inbox_max = 1024;                          // requests accepted and not yet running
    int64_t queued_tokens_max = int64_t{1} << 22;  // of their prompts
    // Nobody waits longer for a slot, and who would have to is refused; 0: no bound.
    int64_t queue_wait_max_ns = 0;
    SchedulingPolicy policy;
    // Steps submitted and not collected, 1 or 2. With 2, step n+1 is planned and submitted while
    // step n runs. Its price is that an arrival waits up to one step longer and that a stop token
    // wastes one row: so it is done only while steps take less than `overlapped_step_ns_max`, where
    // planning is a visible share of them and a step is not a visible delay.
    int steps_in_flight_max = 2;
    int64_t overlapped_step_ns_max = 20'000'000;
    // Computed prefixes are kept while there is room and found again by requests of the same salt.
    bool prefix_cache = true;
    kv::DiskWrites disk_writes = kv::DiskWrites::kSelective;  // where the executor has a disk
    // Speculation: guesses only where and as many as pay; otherwise as many as fit.
    bool adaptive_drafts = false;
    std::optional<uint64_t> hash_seed;  // of the blocks' names; none: drawn at random
    // CHECK the books after every step; without, when the engine has nothing to do, at most once a
    // second.
    bool checks_every_step = kChecksEveryStep;
    int kv_events_max = 65'536;  // kept for readers of kv_events()
  };

  // `executor`, `clock` and `log` outlive the engine. Starts the engine thread.
  Engine(const Options& options, Executor& executor, const base::Clock& clock, base::Log& log);
  ~Engine();  // stops: running requests end with kError / kUnavailable

  // Any thread. Errors: kInvalidArgument (empty prompt, prompt and max_new_tokens beyond the
  // context), kDoesNotFit (needs more blocks than exist), kOverloaded (too many requests or tokens
  // wait, or it could not be ready by its deadline), kDeadline (that has passed), kUnavailable
  // (stopping).
  Result<TokenStream> submit(request::GenerationRequest request);

  // `count` answers to one prompt (1 to kAnswersMax), which is computed once, each a stream of its
  // own. They differ in their seeds: the request's, and the numbers after it. A greedy request
  // gives the same answer again and again. Of a request with resumed answers `count` is their
  // number, and each stream has what follows.
  static constexpr int kAnswersMax = 128;
  Result<std::vector<TokenStream>> submit_answers(request::GenerationRequest request, int count);
  // The same for a reader who shares a thread with others: what is for them comes by `outbox`.
  Result<std::vector<TokenStream>> submit_answers(request::GenerationRequest request, int count,
                                                  std::shared_ptr<Outbox> outbox);

  // Whether a request of that kind and tenant would be refused now, whatever it asks for:
  // kOverloaded, kUnavailable. Any thread.
  Result<void> room_for(const AdmissionQueue::Candidate& candidate) const;
  // When it is worth asking again, by how fast the queue moves; 0: not known. Any thread.
  int64_t retry_after_ns() const;

  // Refuses new requests; returns when the running ones have ended. Those that have not after
  // `limit_ms` end with kUnavailable, for which a step that is stuck is not waited.
  void drain(int64_t limit_ms);

  EngineStats stats() const;  // any thread

  // When the engine thread began what it is doing now: a step, at most two; 0 while it has nothing
  // to do. What began long ago is stuck: nobody is served. Any thread.
  int64_t busy_since_ns() const;

  // Ends every stream that has not ended with this error, for a step that may never end. If it does
  // end, what it computed for them is dropped and their places are free. How many there were. Any
  // thread.
  int abandon(const Error& error);

  // As of the end of the last turn of the engine's loop. Any thread.
  Ledger ledger() const;

  // Requests that come from now on find nothing that was computed before, in no tier; but for what
  // is pinned. Any thread; does not wait. `done`, on any thread: once nothing of it is found by a
  // later process either, or why that is not so.
  using Erased = kv::BlockTransfers::Erased;
  void reset_prefix_cache(Erased done);
  // The same of this tenant's requests.
  void erase_tenant(std::string tenant, Erased done);
  // A later process may find what it has computed.
  bool keeps_blocks() const;
  // What a request of this id has pinned may be evicted from now on.
  void unpin(std::string id);

  // As soon as it has nothing to do, the prefix cache is emptied, in every tier, and the memory of
  // keys and values goes back to the operating system: for a worker that waits to be needed. It
  // comes back as requests write it. A request that comes before then, or a pinned prefix, keeps it
  // all. Any thread; does not wait.
  void release_kv_memory();

  // What the prefix cache has stored and removed. Any thread.
  const kv::EventLog& kv_events() const;

  const ExecutorCapacity& capacity() const;
  // Where other workers ask for blocks; null: they cannot. As long as the engine.
  const kv::PeerTransfers::Place* peer_place() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace pelton::engine
