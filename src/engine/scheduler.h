// Decides which tokens run next and where their keys and values lie. Pure and deterministic: no
// threads, no clock of its own, no device. Owned by the engine's loop; engine thread only.
//
// A step carries one token of each decoding sequence first, then prefill chunks of the running
// ones, then newly admitted sequences, until its token budget is spent. Running ones go in the
// order of their ranks (priority and arrival); who of the waiting is next the fair queue says. When
// blocks run out, a later sequence makes room for an earlier one: its blocks are copied to the
// host's memory if there is room, and otherwise returned, so that it waits to be computed again
// from its known tokens. The first in order can always go on, so every sequence ends. What the
// prefix cache evicts from the device goes to the host's memory too, and is found there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "admission/fair_queue.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "engine/disk_tier.h"
#include "engine/draft_controller.h"
#include "engine/executor.h"
#include "engine/ledger.h"
#include "engine/peer_tier.h"
#include "engine/scheduler_counters.h"
#include "engine/scheduling_policy.h"
#include "engine/sequence.h"
#include "engine/step_plan.h"
#include "engine/token_stream.h"
#include "kv/block_hash.h"
#include "kv/block_pools.h"
#include "kv/block_transfers.h"
#include "kv/event_log.h"
#include "kv/peer_transfers.h"
#include "request/generation_request.h"

namespace pelton::engine {

// Whether a request could ever run within `capacity`. Any thread. kInvalidArgument, kDoesNotFit.
Result<void> check_request(const request::GenerationRequest& request,
                           const ExecutorCapacity& capacity);

class Scheduler {
 public:
  struct Options {
    // Finished work is found again by its content. Off: every request is computed anew.
    bool prefix_cache = true;
    uint64_t hash_seed = 0;          // secret; see kv/block_hash.h
    kv::EventLog* events = nullptr;  // outlives the scheduler
    // Of block_times(), outlives the scheduler; null: nobody asks.
    const base::Clock* clock = nullptr;

    kv::DiskWrites disk_writes = kv::DiskWrites::kSelective;

    SchedulingPolicy policy;
    // Guesses only as many as pay (engine/draft_controller.h); otherwise as many as fit.
    bool adaptive_drafts = false;
  };

  // What happened to a sequence; token and end may come together.
  struct Event {
    SequenceId id = 0;
    std::optional<SampledToken> token;
    std::unique_ptr<StreamEnd> end;                    // apart, because it is rare and large
    std::unique_ptr<std::vector<PromptToken>> prompt;  // with the first token, if asked for
    std::unique_ptr<PromptFound> found;                // likewise
    enum class SlotAllocation {
      kNone,
      kScheduled,
      kPreempted,
      kSwappedOut
    } slot_allocation = SlotAllocation::kNone;
    Slot slot = -1;  // kScheduled: which one
  };

  Scheduler(const ExecutorCapacity& capacity, const Options& options);
  ~Scheduler();

  // It joins at the next plan with a free slot. Errors: as check_request, pinned blocks being out
  // of reach.
  Result<SequenceId> submit(request::GenerationRequest request);

  // `count` answers to one prompt, which is computed once: sequences of their own, that differ in
  // their seeds, which are the request's and the numbers after it. The first of them pins. Of a
  // request with resumed answers `count` is their number.
  Result<std::vector<SequenceId>> submit_answers(request::GenerationRequest request, int count);

  // Ends it now, with kCancelled or with `error`; unknown and ended ids are ignored. A row in a
  // submitted step is discarded when that step is committed.
  void cancel(SequenceId id);
  void fail(SequenceId id, const Error& error);

  // As TokenConstraints says; unknown and ended ids are ignored.
  void force(SequenceId id, TokenConstraints token_constraints);

  // The next step: submit it unless empty, before anything else is planned. At most two plans may
  // be uncommitted. `now_ns` decides which deadlines have passed.
  StepPlan plan(int64_t now_ns);

  // The result of the oldest uncommitted plan.
  void commit(StepResult result);

  // Replaces `events`, a buffer to reuse, by what has happened since the last call, in order.
  void take_events(std::vector<Event>& events) {
    events.clear();
    events.swap(events_);
  }

  // What is to be read from the disk and written to it, since the last call; and what came of it.
  std::vector<kv::BlockTransfer> take_transfers();
  void finish_transfer(const kv::TransferResult& result, int64_t now_ns) {
    disk_.finish(result, now_ns);
  }
  // Blocks on the disk that can be found from the start. Before the first plan.
  void adopt_kept(const kv::BlockTransfers& disk);
  const DiskTier& disk() const { return disk_; }

  // Other workers' caches. Before the first plan.
  void turn_on_peers();
  // What is to be fetched since the last call, and what of it is not wanted any more; what came.
  std::vector<kv::PeerFetch> take_peer_fetches();
  std::vector<int64_t> take_peer_cancels() { return peer_tier_.take_cancelled(); }
  void finish_peer_fetch(const kv::PeerFetched& fetched, int64_t now_ns) {
    peer_tier_.finish(fetched, now_ns);
  }
  // Blocks for another worker, which stay until that is over.
  kv::PeerOffer offer(const kv::PeerAsk& ask, int64_t now_ns) {
    return peer_tier_.offer(ask, now_ns);
  }
  std::vector<kv::PeerOffer> further_offers(int64_t now_ns) {
    return peer_tier_.further_offers(now_ns);
  }
  void end_offer(int64_t id) { peer_tier_.end_offer(id); }
  // Sequences lack blocks, and some are offered: once those are revoked they may go.
  bool needs_offered() const { return needs_offered_ && peer_tier_.any_offered(); }
  bool lacks_blocks() const { return needs_offered_; }  // since the last plan
  void end_all_offers() { peer_tier_.end_all_offers(); }
  const PeerTier& peer_tier() const { return peer_tier_; }

  // Nothing that was computed so far is found by later requests, in any tier; what is pinned is.
  void reset_prefix_cache();
  // Nothing of this tenant's, likewise, pinned or not.
  void erase_tenant(std::string_view tenant);
  // What a request of this id has pinned is found until it is evicted, from now on.
  void unpin(std::string_view id);

  // Nothing waits or runs, nor is anything on its way to the disk or from a peer; steps may still
  // be in flight.
  bool idle() const {
    return queue_.empty() && running_.empty() && copies_.empty() && !disk_.busy() &&
           !peer_tier_.busy() && fetching_.empty();
  }
  std::vector<SequenceId> live() const;  // running ones in order, then the waiting by arrival

  int running_count() const { return static_cast<int>(running_.size()); }
  int waiting_count() const { return queue_.waiting_count(); }
  // Of their prompts, those that are still to be computed; of a prompt that waits, all.
  int64_t prompt_tokens_left() const;
  // Some sequence waits for what its guide allows.
  bool any_deferred() const;
  // Guesses are computed: a step behind would have to wait for what becomes of them.
  bool drafts() const { return capacity_.draft_tokens_max > 0 && drafting_; }
  DraftController::Report draft_report() const { return draft_controller_.report(); }
  int swapped_out_count() const { return swapped_out_count_; }
  const SchedulerCounters& counters() const { return counters_; }
  const kv::BlockPools& pools() const { return pools_; }
  const kv::BlockTimes& block_times() const { return pools_.times(); }
  kv::PerGroup<int> blocks_used() const;  // on the device

  // What the scheduler knows of a ledger: blocks, sequences, slots, steps.
  Ledger ledger() const;

  // CHECKs that slots and blocks are each held once and none is lost. Slow; tests call it after
  // every step.
  void check_integrity() const;

 private:
  struct Earlier {
    bool operator()(const Sequence* a, const Sequence* b) const {
      return std::pair(a->rank, a->id) < std::pair(b->rank, b->id);
    }
  };
  struct PlannedRow {
    Sequence* sequence;
    bool sampled;      // or embedded: it has an answer
    int end;           // the position after the last one computed
    int targets;       // prompt tokens that it scores,
    int target_begin;  // those after the positions from here on
    TokenId forced;    // what it must sample, or kNotForced
    int draft_max;     // guesses that may be computed behind it
  };
  // What a waiting sequence need not compute, and where that lies now.
  struct Found {
    struct Block {
      kv::Tier tier = kv::kDevice;
      BlockId block = kNoBlock;
      bool will_be_written = false;  // so it needs a copy, though it lies on the device
      bool is_shared() const { return tier == kv::kDevice && !will_be_written; }
    };
    enum class By { kName, kSwap, kFork } by = By::kName;
    int tokens = 0;
    int parts_at = 0;     // see Sequence; of kName
    int block_count = 0;  // that these lie in
    // In each group the last ones of as many, as far back as the next query sees; none: no groups.
    kv::PerGroup<std::vector<Block>> groups;
  };
  enum class ThenDisk { kNo, kYes };
  // What was evicted from the device, on its way to this block of the host's memory.
  struct Offload {
    int group;
    BlockId block;  // held until the step that copies it is committed
    kv::BlockHash hash;
    uint64_t owner;
    ThenDisk then_disk;
    kv::BlockPool::EvictionPriority priority;  // there
    int64_t epoch;                             // before the cache was reset nothing is kept
  };
  // A prompt that stays: its blocks, by group.
  struct Pin {
    PinnedPrefix what;
    kv::PerGroup<kv::BlockTable> tables;
  };
  struct UncommittedStep {
    int64_t step;
    std::vector<PlannedRow> rows;
    std::vector<Sequence*> swapped_out;  // in this step; none of them has a row in it
    std::vector<Offload> offloads;
    bool has_prompts = false;
    int decode_tokens = 0;
    int prompt_tokens = 0;
  };

  void end_overdue(int64_t now_ns);
  void forget_start_by(const Sequence& sequence) {
    if (sequence.request.start_by_ns)
      start_bys_.erase({*sequence.request.start_by_ns, sequence.id});
  }
  void return_unseen_blocks();
  enum class ForSiblings { kKeep, kReturn };
  bool return_unseen_blocks(Sequence& sequence, ForSiblings for_siblings);
  void choose_decodes();
  void limit_prompts();
  void choose_prefills();
  void admit_waiting();
  void see_adapters();
  void add_active_adapter(int64_t identity);
  bool is_active_adapter(int64_t identity) const;
  bool admits_adapter(int64_t identity) const;
  void note_adapter_waiter();
  void choose_drafts();
  int draft_tokens_for(const Sequence& sequence) const;
  bool waits_to_draft(const Sequence& sequence);
  bool waits_for_budget(const Sequence& sequence) const;
  void take_draft_blocks();
  std::vector<Slot>& free_slots(const Sequence& sequence) {
    return sequence.pooled() ? free_pooled_slots_ : free_slots_;
  }
  void slot(Sequence& sequence, const Found& found);
  void count_prompt(const Sequence& sequence, const Found& found);
  void count_quota(Sequence& sequence, TokenId token) const;
  void begin_quota(Sequence& sequence) const;
  bool waits_to_be_forced(const Sequence& sequence) const;
  TokenId next_forced(Sequence& sequence) const;
  StepPlan write_plan();
  void write_row(Sequence& sequence, StepPlan& plan);
  static Slice write_tables(Sequence& sequence, StepPlan& plan);
  void write_targets(const Sequence& sequence, ScheduledRow& row, StepPlan& plan) const;

  void choose(Sequence& sequence);
  bool blocks_suffice(const Sequence& arriving, const Found& found) const;
  bool comes_soon(const Sequence& arriving, const Found& found) const;
  const Sequence* running_sibling(const Sequence& sequence) const;
  bool sibling_computes_prompt(const Sequence& sequence) const;
  int blocks_wanted(const Sequence& sequence, int group, int length) const;
  bool lacks_window_blocks_only(const Sequence& sequence) const;
  // What it has computed is to be found by others, or its last row may be deferred and computed
  // again: so it stays until its step has succeeded.
  bool waits_for_settling(const Sequence& sequence) const {
    return options_.prefix_cache || sequence.family != kNoFamily || sequence.request.guide;
  }
  Sequence* whom_to_preempt(const Sequence& needy) const;
  void preempt(Sequence& sequence);
  // Blocks that hold positions [0, position).
  int blocks_for(int position) const {
    return (position + capacity_.block_tokens - 1) / capacity_.block_tokens;
  }
  // The first block that the query at `position` looks back into.
  int first_seen_block(int group, int position) const {
    return pools_.spec(group).first_seen(position) / capacity_.block_tokens;
  }
  std::optional<kv::Tier> tier_for_swap(const Sequence& sequence) const;
  void swap_out(Sequence& sequence, kv::Tier tier);
  kv::BlockTable copy_out(const Sequence& sequence, int group, kv::Tier tier);
  void commit_swap(Sequence& sequence, bool failed);
  void offload_evicted();
  void offload(const kv::BlockPool::Eviction& block, ThenDisk then_disk);
  void copy_block(const BlockCopy& copy);
  void advance_disk();
  void copy_for_disk();
  void want_on_disk(const Sequence& sequence);
  void note_disk_hit(const Sequence& sequence, const Found& found);
  bool waits_for_disk(Sequence& sequence);
  void begin_load(Sequence& sequence);
  void release_load(Sequence& sequence);
  void commit_offload(const Offload& offload, bool failed);
  void hold_copied(const Found& found);
  void release_copied(const Found& found);
  kv::PerTier<int> count_by_tier(Sequence& sequence, const Found& found) const;
  bool waits_for_peer(Sequence& sequence);
  uint64_t owner_of(std::string_view tenant) const;
  void begin_peer_load(Sequence& sequence);
  static bool only_fetches(const Sequence& sequence);
  void end_fetched();
  void release_peer_load(Sequence& sequence);
  void drop_held_writes(std::optional<uint64_t> owner);
  bool is_copied(int group, BlockId host) const;
  void watch_host_copies();
  void forget_swapped(Sequence& sequence);
  void wait_in_line(Sequence& sequence);
  void leave_line(Sequence& sequence);
  void charge_output(Sequence& sequence);

  kv::BlockHash parent_of_next(const Sequence& sequence) const;
  void name_blocks(Sequence& sequence) const;
  std::span<const kv::BlockHash> usable_names(Sequence& sequence) const;
  Found look_up(Sequence& sequence) const;
  Found find_by_name(Sequence& sequence) const;
  Found find_swapped_out(Sequence& sequence) const;
  std::optional<Found> find_in_sibling(const Sequence& sequence) const;
  void adopt(Sequence& sequence, const Found& found);
  bool adopt_group(int group, kv::BlockTable& table, const Found& found);
  SequenceId enter(request::GenerationRequest request, SequenceId family);
  void resume(Sequence& sequence, std::span<const TokenId> output);
  void settle(Sequence& sequence, int end);
  kv::BlockPool::EvictionPriority rank_of(int group, const Sequence& sequence, int block) const;
  void pin(Sequence& sequence);
  bool leaves_room(base::FunctionRef<int(int)> first, int blocks, int tokens) const;
  void unpin_if(base::FunctionRef<bool(const Pin&)> is_meant);
  void note_pins();
  int count_pinned(int group) const;
  ExecutorCapacity unpinned_capacity() const;
  void check_slots() const;
  void check_settled(const Sequence& sequence) const;

  int vector_size(const Sequence& sequence) const;
  void commit_row(const PlannedRow& row, size_t index, StepResult& step);
  static bool land_sample(Sequence& sequence);
  void defer(const PlannedRow& row, std::shared_ptr<const Deferral> deferral);
  static bool is_deferred(Sequence& sequence);
  static void take_back_forced(Sequence& sequence, TokenId token);
  // `kept`: of the guesses that were right, those whose keys and values are.
  void accept(Sequence& sequence, std::span<SampledToken> tokens, const SequenceResult& result,
              int kept);
  void count_draft(Sequence& sequence, const SequenceResult& result);
  void count_accepted(Sequence& sequence, const SequenceResult& result, size_t place);
  static void return_draft_blocks(Sequence& sequence, int accepted);
  bool accept(Sequence& sequence, SampledToken token);
  static std::optional<FinishReason> finish_of(const Sequence& sequence);
  void take_scores(Sequence& sequence, const PlannedRow& row, std::span<PromptToken> scored);
  void end(Sequence& sequence, FinishReason reason, std::optional<Error> error);
  void keep_last_window(const Sequence& sequence);  // that its tables have now
  void release_slot(Sequence& sequence);
  void forget_if_landed(Sequence& sequence);

  const ExecutorCapacity capacity_;
  const Options options_;
  const kv::BlockHasher hasher_;
  kv::BlockPools pools_;
  DiskTier disk_;
  PeerTier peer_tier_;
  std::vector<SequenceId> fetching_;         // that are over once that is; in no line
  std::vector<kv::PeerFetch> held_fetches_;  // until copies of their rooms are over
  bool needs_offered_ = false;
  std::vector<kv::BlockTransfer> held_transfers_;  // until their host blocks' copies are over
  // By group and block of the host, where others touch it too: the last step that copies it.
  kv::PerGroup<std::vector<int64_t>> copied_in_;
  const kv::BlockTransfers* kept_on_ = nullptr;  // who knows owners; null: nobody
  int64_t now_ns_ = 0;                           // of the plan that is made, or the last one
  int64_t epoch_ = 0;                            // resets of the prefix cache so far
  std::vector<Slot> free_slots_;
  std::vector<Slot> free_pooled_slots_;

  std::unordered_map<SequenceId, Sequence> sequences_;  // its nodes do not move
  admission::FairQueue queue_;                          // of those that wait
  std::vector<Sequence*> running_;                      // sorted by Earlier
  std::set<std::pair<int64_t, SequenceId>> deadlines_;  // of live sequences that have one
  std::set<std::pair<int64_t, SequenceId>> start_bys_;  // of those that never had a slot
  std::deque<UncommittedStep> uncommitted_;
  std::vector<Event> events_;
  std::list<Pin> pins_;
  std::shared_ptr<const std::vector<PinnedPrefix>> pinned_prefixes_;  // of these; null: none
  kv::PerGroup<int> pinned_;                                          // blocks, by group

  // The step that is being planned.
  int budget_ = 0;
  int prompt_budget_ = 0;  // of it, for prompts
  std::vector<Sequence*> chosen_;
  std::vector<BlockCopy> copies_;
  std::vector<Sequence*> swapped_out_;
  std::vector<Offload> offloads_;

  int waiting_to_probe_ = 0;  // rows that the step being planned goes without for a probe
  DraftController draft_controller_;
  std::vector<DraftController::Candidate> draft_candidates_;  // scratch
  bool drafting_ = true;  // the last step with decodes had guesses, or might have

  std::vector<int64_t> active_adapters_;      // of those that run, during a plan
  int64_t next_adapter_ = 0;                  // no other's sequences begin; 0: whoever has a place
  std::optional<SequenceId> adapter_waiter_;  // the first that waits for a place of its adapter
  int adapter_waits_ = 0;                     // plans that passed it over

  SequenceId next_id_ = 0;
  int64_t next_step_ = 0;
  int swapped_out_count_ = 0;  // waiting, with blocks in a further tier
  SchedulerCounters counters_;
};

}  // namespace pelton::engine
