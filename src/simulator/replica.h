// One simulated copy of a model: the engine's own core (engine/engine_core.h) and the modelled
// executor, driven in virtual time. Whoever simulates owns it and calls it at the moments it names;
// one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cost_model/draft_acceptance.h"
#include "cost_model/step_time.h"
#include "engine/admission_queue.h"
#include "engine/engine_core.h"
#include "engine/modelled_executor.h"
#include "kv/block_transfers.h"
#include "kv/event_log.h"
#include "kv/peer_transfers.h"
#include "request/generation_request.h"
#include "simulator/adapter_places.h"
#include "simulator/kv_paths.h"

namespace pelton::simulator {

// What a replica has done.
struct ReplicaCounts {
  int64_t steps = 0;
  int64_t steps_failed = 0;
  int64_t rows = 0;
  int64_t tokens = 0;  // computed
  int64_t busy_ns = 0;
  int running_max = 0;
  engine::SchedulerCounters scheduler;
  AdapterCounts adapters;
  engine::DiskTier::Counters disk;
  engine::PeerTier::Counters peers;

  ReplicaCounts& operator+=(const ReplicaCounts& other);
};

class Replica {
 public:
  struct Options {
    engine::ExecutorCapacity capacity;
    engine::SchedulingPolicy policy;
    bool prefix_cache = true;
    // As engine::Engine::Options has them.
    int steps_in_flight_max = 2;
    int64_t overlapped_step_ns_max = 20'000'000;
    int inbox_max = 1024;
    int64_t queued_tokens_max = int64_t{1} << 22;
    int64_t queue_wait_max_ns = 0;
    // cost_model::Calibration's; empty: steps take what they should.
    std::vector<double> residuals;
    std::vector<double> prompt_residuals;
    // Speculation: capacity.draft_tokens_max guesses behind a row at most, each right with this
    // probability; and what guessing takes of a step, for each guess in a row one after the other.
    cost_model::DraftAcceptance draft_acceptance{0};
    double draft_token_s = 0;
    bool adaptive_drafts = true;  // only as many as pay
    uint64_t seed = 0;
    uint64_t hash_seed = 0;  // of the blocks' names, a fleet's
    int kv_events_max = 0;   // kept for kv_events(); 0: nobody reads them
    AdapterPlaces::Options adapters;
    KvPaths paths;  // of blocks that the capacity has beyond the device, and of peers
    kv::DiskWrites disk_writes = kv::DiskWrites::kSelective;
    bool checks = false;  // the executor CHECKs every plan, the scheduler its books
  };

  // Of a request, by the number the caller gave it.
  struct Update {
    int64_t at_ns = 0;
    int64_t request = 0;
    std::optional<TokenId> token;
    bool ended = false;
    bool failed = false;
    int cached_tokens = 0;  // with the end
  };

  // The token at a position of a sequence (its prompt counts): of the request's seed alone, so that
  // a token of another one's would be seen.
  static TokenId token_at(uint64_t seed, size_t position, int vocab);

  // `times` outlives it.
  Replica(const Options& options, const cost_model::StepTimeModel& times);

  // One of an adapter that is not in memory waits for it beside the engine. kOverloaded, kDeadline
  // as the engine's inbox says it; kInvalidArgument, kDoesNotFit as the scheduler does.
  Result<void> submit(int64_t now_ns, int64_t request, request::GenerationRequest asked);

  // Whoever asked is gone: its sequence ends when the step that runs has ended. A request that is
  // not here, or no longer, is passed over.
  void cancel(int64_t request);

  // When something happens next; none: it waits for requests.
  std::optional<int64_t> wakes_at_ns() const;

  // Goes on at `now_ns`, which is wakes_at_ns(). Its updates are appended.
  void wake(int64_t now_ns, std::vector<Update>& updates);

  // Between replicas, with links_peers(): what it asks of others, answers them and wants no more,
  // since the last call. After each wake() and submit().
  struct PeerNews {
    std::vector<kv::PeerFetch> fetches;
    std::vector<kv::PeerOffer> offers;
    std::vector<int64_t> cancelled;  // fetches
    bool revoked = false;            // what it has offered so far it needs itself
  };
  PeerNews take_peer_news() { return std::exchange(peer_news_, {}); }
  // What others say to it: as the engine does, it hears that between steps.
  void hear(int64_t now_ns, kv::PeerFetched fetched);
  void hear(int64_t now_ns, kv::PeerAsk ask);
  void hear_over(int64_t now_ns, int64_t ask);
  // The content of a block that `from` has offered comes to lie in one of its host's memory.
  void take_over(Replica& from, const kv::PeerOffer::Block& block, kv::BlockId host);
  int64_t block_bytes(int group) const { return options_.capacity.groups[group].spec.block_bytes; }

  // Steps take so many times as long, until set otherwise.
  void slow_down(double factor) { slowness_ = factor; }
  // The next steps fail, so many of them.
  void fail_steps(int count) { steps_to_fail_ += count; }

  int running_count() const { return core_.scheduler().running_count(); }
  int queued_count() const {
    return static_cast<int>(inbox_.size()) + core_.scheduler().waiting_count();
  }
  int64_t queued_tokens() const { return line_.tokens(); }
  int64_t steps() const { return core_.counts().count; }  // that have ended
  // Of prompts, to be computed.
  int64_t prompt_tokens_left() const;
  // Of the widest KV group on the device: tokens in blocks that sequences hold, and as a share.
  int64_t context_tokens() const;
  double kv_used() const;
  const AdapterPlaces& adapters() const { return adapters_; }
  // What the prefix cache has stored and removed since the last call. CHECKs that it is asked
  // before any of it is forgotten.
  std::vector<kv::Event> take_kv_events();
  ReplicaCounts counts() const;

 private:
  struct NewRequest {
    int64_t request;
    request::GenerationRequest asked;
  };
  Result<void> enter(int64_t now_ns, NewRequest arrival);
  void enter_loaded(int64_t now_ns, std::vector<Update>& updates);
  void end_use(int64_t now_ns, int64_t request);
  void turn(int64_t now_ns, std::vector<Update>& updates);
  void start_step(engine::StepPlan plan, int64_t now_ns);
  void end_step(int64_t now_ns);
  void receive(int64_t now_ns, std::vector<Update>& updates);
  void end_cancelled();
  void emit(int64_t now_ns, std::vector<Update>& updates);
  int64_t step_ns(const engine::StepPlan& plan);
  double with_copies(double seconds, const engine::StepPlan& plan) const;
  void exchange(int64_t now_ns);
  void exchange_with_disk(int64_t now_ns);
  void exchange_with_peers(int64_t now_ns);
  void wake_up(int64_t now_ns);

  const Options options_;
  const cost_model::StepTimeModel& times_;
  const cost_model::Windows windows_;  // of the KV groups, for counting keys
  kv::EventLog kv_events_;
  int64_t kv_events_read_ = 0;
  engine::ModelledExecutor executor_;
  engine::AdmissionQueue line_;
  engine::EngineCore core_;
  std::vector<NewRequest> inbox_;
  std::vector<int64_t> cancelled_;  // requests whose sequences are still to end
  AdapterPlaces adapters_;
  std::map<int64_t, NewRequest> awaiting_adapters_;  // by request
  std::map<int64_t, int64_t> adapter_in_use_;        // by request
  std::deque<int64_t> ready_ns_;                     // of steps in flight
  std::optional<int64_t> arrived_ns_;                // it stood still, and somebody came
  std::optional<int64_t> polls_ns_;                  // it waits for the disk or a peer
  struct OnDisk {
    int64_t ends_ns = 0;
    kv::TransferResult result;
  };
  std::deque<OnDisk> on_disk_;  // in the order of their ends
  int64_t disk_free_ns_ = 0;
  PeerNews peer_news_;
  std::vector<kv::PeerFetched> fetched_;  // heard, until the next turn
  std::vector<kv::PeerAsk> asks_;         // likewise
  std::vector<int64_t> over_;             // likewise
  ReplicaCounts counts_;
  uint64_t steps_drawn_ = 0;
  double slowness_ = 1;
  int steps_to_fail_ = 0;
  bool fails_next_ = false;
};

}  // namespace pelton::simulator
