// Decides which tokens run next and where their keys and values lie. Pure and deterministic: no
// threads, no clock of its own, no device. Owned by the engine's loop; engine thread only.
//
// A step carries one token of each decoding sequence first, then prefill chunks of the running
// ones, then newly admitted sequences, in the order (priority, arrival), until its token budget is
// spent. When blocks run out, a later sequence makes room for an earlier one: its blocks are
// returned, and it waits to be computed again from its known tokens. The first in order can always
// go on, so every sequence ends.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/executor.h"
#include "engine/sequence.h"
#include "engine/step_plan.h"
#include "engine/token_stream.h"
#include "kv/block_pool.h"
#include "request/generation_request.h"

namespace pelton::engine {

// Whether a request could ever run within `capacity`. Any thread. kInvalidArgument, kDoesNotFit.
Result<void> check_request(const request::GenerationRequest& request,
                           const ExecutorCapacity& capacity);

class Scheduler {
 public:
  // What happened to a sequence; token and end may come together.
  struct Event {
    SequenceId id = 0;
    std::optional<SampledToken> token;
    std::optional<StreamEnd> end;
    enum class Seating { kNone, kSeated, kPreempted } seating = Seating::kNone;
    Seat seat = -1;  // kSeated: which one
  };

  explicit Scheduler(const ExecutorCapacity& capacity);
  ~Scheduler();

  // It joins at the next plan with a free seat. Errors: as check_request.
  Result<SequenceId> submit(request::GenerationRequest request);

  // Ends it now, with kCancelled or with `error`; unknown and ended ids are ignored. A row in a
  // submitted step is discarded when that step is committed.
  void cancel(SequenceId id);
  void fail(SequenceId id, const Error& error);

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

  // Nothing waits or runs; steps may still be in flight.
  bool idle() const { return waiting_.empty() && running_.empty(); }
  std::vector<SequenceId> live() const;  // in the order (priority, arrival), running ones first

  int running_count() const { return static_cast<int>(running_.size()); }
  int waiting_count() const { return static_cast<int>(waiting_.size()); }
  int64_t preemption_count() const { return preemption_count_; }
  int full_blocks_used() const { return full_pool_.used_count(); }
  int window_blocks_used() const { return window_pool_.used_count(); }

  // CHECKs that seats and blocks are each held once and none is lost. Slow; tests call it after
  // every step.
  void check_integrity() const;

 private:
  struct Earlier {
    bool operator()(const Sequence* a, const Sequence* b) const {
      if (a->request.priority != b->request.priority) {
        return a->request.priority < b->request.priority;
      }
      return a->id < b->id;
    }
  };
  struct PlannedRow {
    Sequence* sequence;
    bool sampled;
  };
  struct UncommittedStep {
    int64_t step;
    std::vector<PlannedRow> rows;
  };

  void end_overdue(int64_t now_ns);
  void return_unseen_blocks();
  void choose_decodes();
  void choose_prefills();
  void admit_waiting();
  StepPlan write_plan();
  PlannedSequence write_row(Sequence& sequence);

  void choose(Sequence& sequence);
  bool blocks_suffice(const Sequence& arriving) const;
  int window_span(const Sequence& sequence) const;
  void preempt(Sequence& sequence);

  void commit_row(const PlannedRow& row, SequenceResult* result);
  void accept(Sequence& sequence, SampledToken token);
  void end(Sequence& sequence, FinishReason reason, std::optional<Error> error);
  void leave_seat(Sequence& sequence);
  void forget_if_landed(Sequence& sequence);

  const ExecutorCapacity capacity_;
  kv::BlockPool full_pool_;
  kv::BlockPool window_pool_;
  std::vector<Seat> free_seats_;

  std::unordered_map<SequenceId, Sequence> sequences_;  // its nodes do not move
  std::set<Sequence*, Earlier> waiting_;
  std::vector<Sequence*> running_;                      // sorted by Earlier
  std::set<std::pair<int64_t, SequenceId>> deadlines_;  // of live sequences that have one
  std::deque<UncommittedStep> uncommitted_;
  std::vector<Event> events_;

  // The step that is being planned.
  int budget_ = 0;
  std::vector<Sequence*> chosen_;

  SequenceId next_id_ = 0;
  int64_t next_step_ = 0;
  int64_t preemption_count_ = 0;
};

}  // namespace pelton::engine
