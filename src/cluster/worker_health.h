// One worker's state, from what is heard of it: its record, its load reports (which are the beat),
// broken connections, outcomes of requests. Pure: time comes with each call, in nanoseconds of one
// monotonic clock. One owner's, under that one's lock.
//
//   kJoining  --record--> kProbing --a report, and its probe has passed--> kReady
//   kReady    --no report for 1 s, or the watch broke--> kSuspect --a report--> kReady
//   kSuspect  --3 s of silence, or refused after a reset--> kDown --a new record--> kProbing
//   kReady    --busy reports without progress for 2 s, or 4 slow steps--> kDown (hung); a step is
//               as slow as those that were seen, or as its own costs say of the largest one; until
//               one has ended nothing says how long they take: 30 s
//   kReady    --failures in a row, or of half of its requests in 10 s, or its pool says that it is
//               the odd one out--> kEjected --5 s x 2^k, at most 60--> one trial request, which
//               ends it, or begins it anew, or says nothing: then there is another trial
//   any       --the worker says so, or an operator--> kDraining
//   kReady    --it does not compute what its pool does--> kUnverified, until it does
//
// Silence and progress are judged by the listener's clock alone, between reports that it has heard:
// how long a worker says that it has been busy is not compared with anything, as its clock may have
// been stopped or stepped with it. The owner's clock leaves out pauses of its own process
// (gateway/awake_clock.h), so that a pause of everything makes nobody suspect.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "cluster/envelope.h"

namespace pelton::cluster {

enum class WorkerState {
  kJoining,
  kProbing,
  kUnverified,
  kReady,
  kSuspect,
  kEjected,
  kDraining,
  kDown
};
std::string_view worker_state_name(WorkerState state);

class WorkerHealth {
 public:
  struct Options {
    int64_t suspect_after_ns = 1'000'000'000;
    int64_t down_after_ns = 3'000'000'000;
    int64_t hung_after_ns = 2'000'000'000;       // busy without progress
    int64_t hung_after_max_ns = 30'000'000'000;  // however slow its steps are
    int failures_max = 5;                        // in a row
    int requests_min = 20;                       // in the window, to judge by their share
    int64_t eject_ns = 5'000'000'000;
    int64_t eject_max_ns = 60'000'000'000;
  };

  explicit WorkerHealth(const Options& options) : options_(options) {}

  // A watch is open and says who answers. A new incarnation begins anew.
  enum class News { kSame, kNewIncarnation };
  News note_record(const WorkerRecord& record, int64_t now_ns);
  void note_load(const WorkerLoad& load, int64_t now_ns);
  // The watch has broken, or could not be opened; `refused`: nobody listens there.
  void note_watch_lost(bool refused, int64_t now_ns);
  void note_probe(bool passed);
  // Of a request, by its number among all that the owner has sent: whether the worker failed it (a
  // reset, a 5xx of its own, broken framing); kNeither: it says nothing of the worker.
  enum class Outcome { kServed, kFailed, kNeither };
  void note_outcome(Outcome outcome, int64_t dispatch, int64_t now_ns);
  // What it says of its model is not what its pool's owner expects: nothing is sent to it.
  void set_unverified(bool unverified) { unverified_ = unverified; }
  void set_draining(bool by_operator) { drained_by_operator_ = by_operator; }
  enum class Cause { kNone, kInARow, kShare, kSlow, kOperator };
  static constexpr int kCauses = 5;
  void eject(Cause cause, int64_t now_ns);
  void restore();
  // Why it is ejected, and how many requests it had failed then: in a row, or of `requests`.
  struct Ejection {
    Cause cause = Cause::kNone;
    int failures = 0;
    int requests = 0;
  };
  const Ejection& ejection() const { return ejection_; }
  // How often it was ejected, whenever and for whatever reason.
  int64_t ejected_times() const { return ejected_times_; }
  Cause last_cause() const { return last_cause_; }
  // Outcomes of the last ten seconds.
  struct Share {
    int requests = 0;
    int failures = 0;
  };
  Share share(int64_t now_ns) const;

  WorkerState state(int64_t now_ns) const;
  // May have a new request. Of one that was ejected: a single trial once its time is over.
  bool takes_requests(int64_t now_ns) const;
  // It was ejected for its failures, and not by an operator: better than none.
  bool is_worth_a_try(int64_t now_ns) const {
    return state(now_ns) == WorkerState::kEjected && ejection_.cause != Cause::kOperator;
  }
  // A request of this number goes to it though it is ejected. It and all behind it, of which there
  // are several at a time in panic, say whether it is well again: the first of them that ends.
  void note_trial(int64_t dispatch) {
    if (trial_ == 0) trial_ = dispatch;
    ++trials_;
  }

  const WorkerLoad& load() const { return load_; }
  int64_t report_age_ns(int64_t now_ns) const { return now_ns - heard_ns_; }
  // The longest that a step of it was seen to take, or may by what it says of itself.
  int64_t slow_step_ns() const;
  // How long reports have said that it is busy at the same step; 0: it moves, or is idle.
  int64_t stuck_ns() const { return load_.busy_ms > 0 ? heard_ns_ - progressed_ns_ : 0; }
  bool is_hung() const;

 private:
  Options options_;
  std::string incarnation_;
  bool recorded_ = false;
  bool probed_ = false;
  bool unverified_ = false;
  bool watch_lost_ = false;
  bool refused_ = false;
  bool drained_by_operator_ = false;
  int64_t heard_ns_ = 0;
  int64_t progressed_ns_ = 0;  // when a report last said that a step had ended, or that it is idle
  int64_t slow_step_ns_ = 0;   // as slow steps lately were: the slowest, fading
  int slots_ = 0;
  int batch_tokens_ = 0;
  WorkerLoad load_;
  int failures_ = 0;  // in a row
  // By the second that they were noted in.
  struct Second {
    int64_t at = -1;
    Share share;
  };
  static constexpr int64_t kSecondNs = 1'000'000'000;
  std::array<Second, 10> seconds_;
  int ejections_ = 0;
  int64_t ejected_times_ = 0;
  Cause last_cause_ = Cause::kNone;
  int64_t ejected_until_ns_ = 0;
  Ejection ejection_;
  int64_t trial_ = 0;  // the first one's number since it was ejected; 0: there was none
  int trials_ = 0;     // on their way
};

}  // namespace pelton::cluster
