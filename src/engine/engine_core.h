// The engine's loop as a pure state machine: arrivals, results of steps and the time go in, plans
// and events come out. It has no thread, clock, lock or stream. The engine's thread drives it in
// real time, the simulator in virtual time, each with an executor and readers of its own:
//
//   receive(...)           for every request that has come
//   plan = plan(now)       submit it, if there is one
//   take_events(now)       what is over by now
//   if (awaits_result())   wait for the oldest step, then commit(result, now)
//   take_events(now)
//
// One thread, the driver's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "engine/admission_queue.h"
#include "engine/executor.h"
#include "engine/scheduler.h"
#include "engine/step_counts.h"
#include "engine/token_stream.h"
#include "request/generation_request.h"

namespace pelton::engine {

class EngineCore {
 public:
  struct Options {
    // Steps submitted and not collected, 1 or 2. With 2, step n+1 is planned and submitted while
    // step n runs. Its price is that an arrival waits up to one step longer and that a stop token
    // wastes one row: so it is done only while steps take less than `overlapped_step_ns_max`, where
    // planning is a visible share of them and a step is not a visible delay.
    int steps_in_flight_max = 2;
    int64_t overlapped_step_ns_max = 20'000'000;
    int64_t step_ns = 0;  // what steps are taken to last before the first was seen
  };
  // Gives the admission queue to `use`, under whatever lock guards it.
  using WithQueue = std::function<void(base::FunctionRef<void(AdmissionQueue&)> use)>;

  EngineCore(const ExecutorCapacity& capacity, const Scheduler::Options& scheduler,
             const Options& options, WithQueue with_queue);

  // One answer, from receive() until its end was taken.
  struct Answer {
    AdmissionQueue::Ticket ticket;
    bool was_scheduled = false;
    RequestTimes times;
    void* reader = nullptr;  // the driver's own
  };

  // An admitted request with an answer for each reader, which joins at the next plan with a free
  // slot; ids in the readers' order. An error means that a pinned prefix has taken what it needs
  // since it was checked; the admission queue knows.
  Result<std::vector<SequenceId>> receive(request::GenerationRequest request, int64_t queued_ns,
                                          std::span<void* const> readers);

  // The next step, if one may be on its way beside those that are and there is one; the driver
  // submits it. No sequence joins or leaves it any more.
  std::optional<StepPlan> plan(int64_t now_ns);
  // Whether nothing is to be done before the oldest step's result is there. Asked behind plan().
  bool awaits_result() const;
  // That result. A later step runs on.
  void commit(StepResult result, int64_t now_ns);

  // What has happened since the last call, in order, counted already: valid until the next call.
  // The driver ends every answer whose event has an end with forget().
  std::span<Scheduler::Event> take_events(int64_t now_ns);
  Answer& answer(SequenceId id) { return answers_.at(id); }
  void forget(SequenceId id) { answers_.erase(id); }

  void cancel(SequenceId id) { scheduler_.cancel(id); }
  void fail(SequenceId id, const Error& error) { scheduler_.fail(id, error); }
  void force(SequenceId id, TokenConstraints tokens) { scheduler_.force(id, std::move(tokens)); }

  // Between the host's memory and a disk: what is to be carried out beside the steps, and what came
  // of it.
  std::vector<kv::BlockTransfer> take_transfers() { return scheduler_.take_transfers(); }
  void finish_transfer(const kv::TransferResult& result, int64_t now_ns) {
    scheduler_.finish_transfer(result, now_ns);
  }
  // Of other workers' caches.
  void turn_on_peers() { scheduler_.turn_on_peers(); }
  std::vector<kv::PeerFetch> take_peer_fetches() { return scheduler_.take_peer_fetches(); }
  std::vector<int64_t> take_peer_cancels() { return scheduler_.take_peer_cancels(); }
  void finish_peer_fetch(const kv::PeerFetched& fetched, int64_t now_ns) {
    scheduler_.finish_peer_fetch(fetched, now_ns);
  }
  kv::PeerOffer offer(const kv::PeerAsk& ask, int64_t now_ns) {
    return scheduler_.offer(ask, now_ns);
  }
  std::vector<kv::PeerOffer> further_offers(int64_t now_ns) {
    return scheduler_.further_offers(now_ns);
  }
  void end_offer(int64_t id) { scheduler_.end_offer(id); }
  void end_all_offers() { scheduler_.end_all_offers(); }
  void adopt_kept(const kv::BlockTransfers& disk) { scheduler_.adopt_kept(disk); }
  void reset_prefix_cache() { scheduler_.reset_prefix_cache(); }
  void erase_tenant(std::string_view tenant) { scheduler_.erase_tenant(tenant); }
  void unpin(std::string_view id) { scheduler_.unpin(id); }

  // Nothing is known and nothing runs. note_idle() notifies the admission queue.
  bool idle() const { return scheduler_.idle() && in_flight_ == 0; }
  void note_idle(int64_t now_ns);
  // Who could run waits for what its guide allows, for the disk or a peer: planning is tried again
  // soon.
  bool all_deferred() const {
    return in_flight_ == 0 &&
           (scheduler_.any_deferred() || scheduler_.disk().busy() || scheduler_.peer_tier().busy());
  }

  int in_flight() const { return in_flight_; }
  // Steps that may be on their way at once: two while they are short.
  int depth() const;
  const Scheduler& scheduler() const { return scheduler_; }
  const std::unordered_map<SequenceId, Answer>& answers() const { return answers_; }
  const StepCounts& counts() const { return counts_; }

 private:
  void count(const StepPlan& plan);
  void note_event(const Scheduler::Event& event, int64_t now_ns);

  const Options options_;
  const int batch_tokens_max_;
  const WithQueue with_queue_;
  Scheduler scheduler_;
  std::unordered_map<SequenceId, Answer> answers_;
  std::vector<Scheduler::Event> events_;  // reused
  StepCounts counts_;
  int in_flight_ = 0;
  bool planned_ = false;          // the last plan() gave a step
  bool was_idle_ = true;          // nothing to do, since the latest result
  int64_t committed_ns_ = 0;      // that result; or from when on there was something to do
  int64_t running_since_ns_ = 0;  // the oldest step in flight
  int64_t step_ns_ = 0;           // what steps took lately
};

}  // namespace pelton::engine
