#include "cluster/worker_health.h"

#include <algorithm>
#include <iterator>

namespace pelton::cluster {
namespace {

constexpr int64_t kSlowSteps = 4;
constexpr int64_t kFading = 64;  // a slow step counts half after some forty others

}  // namespace

std::string_view worker_state_name(WorkerState state) {
  switch (state) {
    case WorkerState::kJoining:
      return "joining";
    case WorkerState::kProbing:
      return "probing";
    case WorkerState::kUnverified:
      return "unverified";
    case WorkerState::kReady:
      return "ready";
    case WorkerState::kSuspect:
      return "suspect";
    case WorkerState::kEjected:
      return "ejected";
    case WorkerState::kDraining:
      return "draining";
    case WorkerState::kDown:
      return "down";
  }
  return "down";
}

WorkerHealth::News WorkerHealth::note_record(const WorkerRecord& record, int64_t now_ns) {
  watch_lost_ = refused_ = false;
  recorded_ = true;
  heard_ns_ = now_ns;
  if (record.incarnation == incarnation_) return News::kSame;
  incarnation_ = record.incarnation;
  slots_ = record.slots;
  batch_tokens_ = record.batch_tokens;
  probed_ = false;
  load_ = {.ready = false};  // until it says so: its costs and what is in its memory are unknown
  progressed_ns_ = now_ns;
  slow_step_ns_ = 0;
  restore();
  return News::kNewIncarnation;
}

void WorkerHealth::note_load(const WorkerLoad& load, int64_t now_ns) {
  if (load.progress != load_.progress || load.busy_ms == 0) {
    // What it was busy with is over: so long a step of this worker may take.
    slow_step_ns_ = std::max(slow_step_ns_ - slow_step_ns_ / kFading, stuck_ns());
    progressed_ns_ = now_ns;
  }
  load_ = load;
  heard_ns_ = now_ns;
  watch_lost_ = false;
}

void WorkerHealth::note_watch_lost(bool refused, int64_t now_ns) {
  // What has not been heard lately is judged by its silence already.
  if (!watch_lost_) heard_ns_ = std::min(heard_ns_, now_ns);
  watch_lost_ = true;
  refused_ = refused;
}

void WorkerHealth::note_probe(bool passed) {
  probed_ = passed;
}

void WorkerHealth::note_outcome(Outcome outcome, int64_t dispatch, int64_t now_ns) {
  const bool was_trial = trial_ != 0 && dispatch >= trial_;
  if (was_trial) trials_ = std::max(trials_ - 1, 0);
  if (outcome == Outcome::kNeither) return;
  const bool failed = outcome == Outcome::kFailed;
  Second& second = seconds_[static_cast<size_t>(now_ns / kSecondNs) % seconds_.size()];
  if (second.at != now_ns / kSecondNs) second = {.at = now_ns / kSecondNs, .share = {}};
  ++second.share.requests;
  if (failed) ++second.share.failures;
  failures_ = failed ? failures_ + 1 : 0;
  if (ejection_.cause != Cause::kNone) {
    // What was sent before says nothing new of it.
    if (!was_trial) return;
    return failed ? eject(ejection_.cause, now_ns) : restore();
  }
  if (!failed) return;
  if (failures_ >= options_.failures_max) return eject(Cause::kInARow, now_ns);
  const Share lately = share(now_ns);
  const bool is_half = 2 * lately.failures >= lately.requests;
  if (is_half && lately.requests >= options_.requests_min) eject(Cause::kShare, now_ns);
}

WorkerHealth::Share WorkerHealth::share(int64_t now_ns) const {
  Share all;
  for (const Second& second : seconds_) {
    if (second.at < 0 || now_ns / kSecondNs - second.at >= std::ssize(seconds_)) continue;
    all.requests += second.share.requests;
    all.failures += second.share.failures;
  }
  return all;
}

void WorkerHealth::eject(Cause cause, int64_t now_ns) {
  constexpr int64_t kForgottenNs = 300'000'000'000;
  if (now_ns - ejected_until_ns_ > kForgottenNs) ejections_ = 0;
  const int64_t span = options_.eject_ns << std::min(ejections_, 16);
  ejected_until_ns_ = now_ns + std::min(span, options_.eject_max_ns);
  ++ejections_;
  ++ejected_times_;
  last_cause_ = cause;
  const Share lately = share(now_ns);
  ejection_ = {.cause = cause,
               .failures = cause == Cause::kInARow ? failures_ : lately.failures,
               .requests = lately.requests};
  trial_ = 0;
  trials_ = 0;
  seconds_ = {};  // it is judged by what comes
}

void WorkerHealth::restore() {
  // One request that was served says nothing of how late it is: the next time is a longer one.
  if (ejection_.cause != Cause::kSlow) ejections_ = 0;
  ejection_ = {};
  trial_ = 0;
  trials_ = 0;
  failures_ = 0;
  seconds_ = {};
}

int64_t WorkerHealth::slow_step_ns() const {
  const StepCosts& costs = load_.costs;
  const double largest_s = costs.fixed_s + costs.prefill_token_s * batch_tokens_ +
                           costs.row_s * slots_ +
                           costs.context_token_s * static_cast<double>(load_.context_tokens);
  const double bound_s = static_cast<double>(options_.hung_after_max_ns) * 1e-9;
  return std::max(slow_step_ns_, static_cast<int64_t>(std::min(largest_s, bound_s) * 1e9));
}

bool WorkerHealth::is_hung() const {
  if (load_.progress == 0) return stuck_ns() > options_.hung_after_max_ns;
  const int64_t slow_ns = std::min(kSlowSteps * slow_step_ns(), options_.hung_after_max_ns);
  return stuck_ns() > std::max(options_.hung_after_ns, slow_ns);
}

WorkerState WorkerHealth::state(int64_t now_ns) const {
  if (!recorded_) return WorkerState::kJoining;
  const int64_t silence_ns = now_ns - heard_ns_;
  if ((watch_lost_ && refused_) || silence_ns > options_.down_after_ns || is_hung()) {
    return WorkerState::kDown;
  }
  if (watch_lost_ || silence_ns > options_.suspect_after_ns) return WorkerState::kSuspect;
  if (drained_by_operator_ || load_.draining) return WorkerState::kDraining;
  if (!probed_ || !load_.ready) return WorkerState::kProbing;
  if (unverified_) return WorkerState::kUnverified;
  if (ejection_.cause != Cause::kNone) return WorkerState::kEjected;
  return WorkerState::kReady;
}

bool WorkerHealth::takes_requests(int64_t now_ns) const {
  const WorkerState now = state(now_ns);
  if (now == WorkerState::kReady) return true;
  return now == WorkerState::kEjected && trials_ == 0 && now_ns >= ejected_until_ns_;
}

}  // namespace pelton::cluster
