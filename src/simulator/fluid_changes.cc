// What changes in a pool at the fluid fidelity: replicas that start, drain and die.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/random.h"
#include "simulator/fleet.h"
#include "simulator/fluid_pool.h"

namespace pelton::simulator {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr uint64_t kDeathStream = 0x6465617468;

}  // namespace

double FluidPool::next_change_s() const {
  double at_s = decides_s_;
  for (const Coming& one : coming_) at_s = std::min(at_s, one.at_s);
  for (size_t i = 0; !control_ && i < down_until_s_.size(); ++i) {
    if (down_until_s_[i] > now_s_) at_s = std::min(at_s, down_until_s_[i]);
  }
  return at_s;
}

int FluidPool::serving() const {
  return ready_ + static_cast<int>(draining_.size());
}

// Everything that is due now.
void FluidPool::change() {
  for (size_t i = 0; i < coming_.size();) {
    if (coming_[i].at_s > now_s_) {
      ++i;
      continue;
    }
    control_->become_ready(coming_[i].replica, nanoseconds(coming_[i].at_s));
    coming_.erase(coming_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  if (decides_s_ <= now_s_) {
    decide();
    decides_s_ += options_.autoscaling->tick_s;
  }
  follow_phases();
  send_held(now_s_);
}

void FluidPool::decide() {
  note_drained(now_s_);
  count(now_s_);
  observe();
  const int64_t at_ns = nanoseconds(now_s_);
  for (const PoolControl::Start& start : control_->decide(at_ns, states_)) {
    // By the clock of seconds it must not be before it is by that of nanoseconds.
    coming_.push_back(
        {.at_s = static_cast<double>(start.ready_ns + 1) * 1e-9, .replica = start.replica});
  }
  follow_phases();
  send_held(now_s_);
}

// Who drains now that did not, and the other way round.
void FluidPool::follow_phases() {
  const double each = (rows_ + firsts_) / std::max(serving(), 1);
  for (size_t i = 0; control_ && i < states_.size(); ++i) {
    const auto replica = static_cast<int>(i);
    const auto found = std::ranges::find(draining_, replica, &Draining::replica);
    if (control_->drains(replica) == (found != draining_.end())) continue;
    if (found != draining_.end()) {
      draining_.erase(found);
      continue;
    }
    draining_.push_back(
        {.replica = replica, .rows = each, .from_rows = steps_, .until_rows = exit_rows(each)});
  }
  note_drained(now_s_);
  count_ready();
}

// The steps after which the last of so many rows, drawn of all, has ended.
double FluidPool::exit_rows(double rows_each) const {
  if (rows_each <= 1e-6) return steps_;
  std::vector<double> ends;
  for (const Timed& one : row_ends_.all()) ends.push_back(one.at);
  for (const Timed& one : first_tokens_.all()) ends.push_back(steps_ + one.parcel.output);
  if (ends.empty()) return steps_;
  const double share = rows_each / (rows_each + 1);
  const auto place =
      std::min(static_cast<size_t>(share * static_cast<double>(ends.size())), ends.size() - 1);
  std::nth_element(ends.begin(), ends.begin() + static_cast<std::ptrdiff_t>(place), ends.end());
  return ends[place];
}

void FluidPool::note_drained(double at_s) {
  const bool nothing_runs = rows_ + firsts_ <= 1e-9;
  const size_t before = draining_.size();
  std::erase_if(draining_, [&](const Draining& one) {
    if (steps_ < one.until_rows && !nothing_runs) return false;
    control_->note_gone(one.replica, nanoseconds(at_s));
    return true;
  });
  if (draining_.size() != before) count_ready();
}

double FluidPool::draining_rows() const {
  double rows = 0;
  for (const Draining& one : draining_) {
    const double span = std::max(one.until_rows - one.from_rows, 1e-9);
    rows += one.rows * std::clamp((one.until_rows - steps_) / span, 0.0, 1.0);
  }
  return std::min(rows, rows_ + firsts_);
}

void FluidPool::observe() {
  const double draining = draining_rows();
  const double running = rows_ + firsts_ - draining;
  const double kv = kv_tokens_ * std::max(serving(), 1);
  const double kv_used = std::clamp((context_ + firsts_context_) / std::max(kv, 1.0), 0.0, 1.0);
  double given = 0;
  int seen = 0;
  for (size_t i = 0; i < states_.size(); ++i) {
    ReplicaState& state = states_[i];
    state.slots = options_.replica.capacity.sequences_max;
    state.is_up = control_->takes_requests(static_cast<int>(i));
    state.running = 0;
    state.kv_used = state.is_up ? kv_used : 0;
    if (!state.is_up) continue;
    // Whole ones, and all of them together.
    ++seen;
    const double upto = running * seen / std::max(ready_, 1);
    state.running = static_cast<int>(std::floor(upto + 1e-9) - std::floor(given + 1e-9));
    given = upto;
  }
  for (const Draining& one : draining_) {
    ReplicaState& state = states_[static_cast<size_t>(one.replica)];
    state.running = static_cast<int>(std::ceil(draining / static_cast<double>(draining_.size())));
    state.kv_used = kv_used;
  }
}

void FluidPool::count_ready() {
  ready_ = 0;
  double speed = 0;
  for (size_t i = 0; i < states_.size(); ++i) {
    const bool is_up =
        control_ ? control_->takes_requests(static_cast<int>(i)) : down_until_s_[i] <= now_s_;
    if (!is_up) continue;
    ++ready_;
    speed += 1 / slowness_[i];
  }
  speed_ = ready_ > 0 ? speed / ready_ : 1;
}

void FluidPool::count(double at_s) {
  if (!control_) return;
  control_->note_amounts(nanoseconds(at_s), {.requests = static_cast<int64_t>(came_ + 1e-6),
                                             .finished = static_cast<int64_t>(done_ + 1e-6),
                                             .held = held_amount_,
                                             .in_service = rows_ + firsts_});
}

void FluidPool::count_served(const FluidOutcome& outcome) {
  if (!control_ || outcome.parcel.retries > 0) return;
  unserved_ += outcome.parcel.amount;
  const auto whole = static_cast<int64_t>(unserved_ + 1e-6);
  if (whole < 1) return;
  unserved_ -= static_cast<double>(whole);
  const FluidParcel& parcel = outcome.parcel;
  control_->note_served({.input = std::llround(parcel.prompt),
                         .computed = std::max<int64_t>(std::llround(parcel.computed), 1),
                         .output = std::max<int64_t>(std::llround(parcel.output), 1),
                         .first_token_s = parcel.first_s - parcel.sent_s,
                         .further_s = std::max(outcome.at_s - parcel.first_s, 0.0)},
                        whole);
}

void FluidPool::begin_fault(const Fault& fault) {
  if (fault.is_of_scaling()) return control_->begin_fault(fault);
  const auto replica = static_cast<size_t>(fault.replica);
  if (fault.kind == Fault::Kind::kSlow) {
    slowness_[replica] = fault.factor;
    return count_ready();
  }
  if (fault.kind != Fault::Kind::kCrash) return;
  const double share = 1.0 / std::max(serving(), 1);
  bool has_served = !control_ && down_until_s_[replica] <= now_s_;
  if (control_) {
    has_served = control_->takes_requests(fault.replica) || control_->drains(fault.replica);
    control_->note_died(fault.replica, nanoseconds(now_s_));
    std::erase_if(coming_, [&](const Coming& one) { return one.replica == fault.replica; });
    std::erase_if(draining_, [&](const Draining& one) { return one.replica == fault.replica; });
  } else {
    down_until_s_[replica] = fault.until_s > now_s_ ? fault.until_s : kNever;
  }
  count_ready();
  if (has_served) lose(share);
  send_held(now_s_);
  count(now_s_);
}

void FluidPool::end_fault(const Fault& fault) {
  if (fault.is_of_scaling()) return control_->end_fault(fault);
  const auto replica = static_cast<size_t>(fault.replica);
  if (fault.kind == Fault::Kind::kSlow) slowness_[replica] = 1;
  if (fault.kind == Fault::Kind::kCrash && !control_) down_until_s_[replica] = 0;
  count_ready();
  send_held(now_s_);
}

int FluidPool::kill(int count, double back_after_s) {
  std::vector<int> alive;
  for (size_t i = 0; i < states_.size(); ++i) {
    const auto replica = static_cast<int>(i);
    const bool serves = control_ ? control_->takes_requests(replica) || control_->drains(replica)
                                 : down_until_s_[i] <= now_s_;
    if (serves) alive.push_back(replica);
  }
  int killed = 0;
  for (; killed < count && !alive.empty(); ++killed) {
    const size_t place = base::random_bits(options_.seed ^ kDeathStream, draws_++) % alive.size();
    begin_fault({.kind = Fault::Kind::kCrash,
                 .replica = alive[place],
                 .at_s = now_s_,
                 .until_s = now_s_ + back_after_s});
    alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(place));
  }
  if (control_ && killed > 0) decide();
  return killed;
}

// What replicas had that died: of all that is there so large a share. Requests that are known are
// there or not, which is drawn.
void FluidPool::lose(double share) {
  const auto of = [&](Heap& heap, bool has_begun) {
    for (Timed& one : heap.all()) lose_one(one, share, has_begun);
    std::erase_if(heap.all(), [](const Timed& one) { return one.parcel.amount <= 1e-9; });
    heap.restore();
  };
  of(first_tokens_, false);
  of(row_ends_, true);
  prompts_ *= 1 - share;
  backlog_ = prompts_;
  if (row_ends_.empty()) rows_ = context_ = 0;
  if (first_tokens_.empty()) firsts_ = firsts_context_ = 0;
}

void FluidPool::lose_one(Timed& one, double share, bool has_begun) {
  double lost = one.parcel.amount * share;
  if (one.parcel.request >= 0) {
    if (base::random_unit(options_.seed ^ kDeathStream, draws_++) >= share) return;
    lost = one.parcel.amount;
  }
  FluidParcel parcel = one.parcel;
  parcel.amount = lost;
  one.parcel.amount -= lost;
  const double said = has_begun ? std::floor(std::max(steps_ - parcel.first_row, 0.0)) + 1 : 0;
  (has_begun ? rows_ : firsts_) -= lost;
  (has_begun ? context_ : firsts_context_) -=
      lost * (parcel.prompt + (has_begun ? steps_ - parcel.first_row : 0));
  const bool goes_on = !has_begun || options_.answers_go_on;
  if (!goes_on || parcel.retries >= options_.retries_max) {
    return emit(FluidOutcome::Kind::kLost, parcel, now_s_, "its replica died");
  }
  ++parcel.retries;
  redispatched_ += std::max<int64_t>(std::llround(lost), 1);
  if (has_begun) {
    moved_ += std::max<int64_t>(std::llround(lost), 1);
    if (parcel.begun_s < 0) parcel.begun_s = parcel.first_s;
    parcel.said += said;
    parcel.prompt += said;
    parcel.computed = parcel.prompt;
    parcel.output = std::max(parcel.output - said, 1.0);
  }
  held_amount_ += lost;
  held_.push_front(std::move(parcel));
}

}  // namespace pelton::simulator
