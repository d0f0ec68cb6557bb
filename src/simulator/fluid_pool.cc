#include "simulator/fluid_pool.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/random.h"
#include "simulator/fleet.h"

namespace pelton::simulator {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kLeast = 1e-9;  // of an amount
constexpr uint64_t kResidualStream = 0x666C756964;
constexpr uint64_t kPlaceStream = 0x706C616365;

// Requests are dealt out whatever replicas do.
bool deals_blindly(Dispatcher::Policy policy) {
  return policy == Dispatcher::Policy::kSession;
}

}  // namespace

void FluidPool::Heap::push(Timed one) {
  all_.push_back(std::move(one));
  std::push_heap(all_.begin(), all_.end(), std::greater<>());
}

FluidPool::Timed FluidPool::Heap::pop() {
  std::pop_heap(all_.begin(), all_.end(), std::greater<>());
  Timed one = std::move(all_.back());
  all_.pop_back();
  return one;
}

void FluidPool::Heap::restore() {
  std::make_heap(all_.begin(), all_.end(), std::greater<>());
}

FluidPool::FluidPool(const SimulationOptions& options, const cost_model::StepTimeModel& times,
                     double service_s_assumed, const autoscaler::ReplicaModel& model,
                     Listener listener)
    : options_(options),
      surface_(options, times),
      slots_(options.replica.capacity.sequences_max),
      kv_tokens_(static_cast<double>(options.replica.capacity.kv_tokens())),
      overlap_s_(options.replica.steps_in_flight_max > 1
                     ? static_cast<double>(options.replica.overlapped_step_ns_max) * 1e-9
                     : 0),
      listener_(std::move(listener)),
      service_mean_s_(service_s_assumed),
      states_(static_cast<size_t>(replicas_max(options))),
      down_until_s_(states_.size(), 0),
      slowness_(states_.size(), 1) {
  if (options.autoscaling) {
    control_.emplace(PoolControl::Options{.asked = *options.autoscaling,
                                          .slots = options.replica.capacity.sequences_max,
                                          .service_s_assumed = service_s_assumed,
                                          .model = model,
                                          .seed = options.seed});
    decides_s_ = 0;
  }
  count_ready();
}

bool FluidPool::is_empty() const {
  return arrivals_.empty() && held_.empty() && first_tokens_.empty() && row_ends_.empty();
}

double FluidPool::next_flow_s() const {
  if (!held_.empty() || !row_ends_.empty() || prompts_ > 0) return now_s_;
  double at_s = kNever;
  if (!arrivals_.empty()) at_s = arrivals_.top().at;
  if (!first_tokens_.empty()) at_s = std::min(at_s, first_tokens_.top().at);
  return at_s;
}

void FluidPool::advance(double to_s) {
  while (now_s_ < to_s) {
    while (next_change_s() <= now_s_) change();
    const double until_s = std::min(to_s, next_change_s());
    if (now_s_ > inflow_since_s_) {
      prompts_inflow_ = prompts_sent_ / (now_s_ - inflow_since_s_);
      prompts_sent_ = 0;
      inflow_since_s_ = now_s_;
    }
    drop_impatient(now_s_);
    set_flow(until_s - now_s_);
    flow_to(until_s);
  }
  while (next_change_s() <= now_s_) change();
}

// Rows are as even as a router makes them: one more than none at a replica only where all have one.
void FluidPool::set_flow(double span_s) {
  const double replicas = std::max(serving(), 1);
  const double rows = std::max(rows_, 0.0);
  flow_.rows_each = rows <= kLeast ? 0 : std::max(rows / replicas, 1.0);
  flow_.context = rows <= kLeast ? 1 : std::max(context_ / rows, 1.0);
  flow_.step_s = surface_.decode_s(flow_.rows_each, flow_.context) / speed_;
  flow_.prompt_tokens_max = surface_.prompt_tokens_max(flow_.rows_each);
  flow_.steps_per_s = 0;
  flow_.prompt_rate = 0;
  if (serving() == 0) return;
  flow_.steps_per_s = (1 - prompt_share(span_s)) / flow_.step_s;
}

// Of the time until then, what prompts add to steps; and at which rate they are computed.
double FluidPool::prompt_share(double span_s) {
  const double replicas = std::max(serving(), 1);
  const double mean = std::max(prompt_mean_, 1.0);
  // Of requests that are known each one's tokens are charged while they are computed; of amounts
  // those of the span on average.
  const double inflow = knows_requests_ ? 0 : prompts_inflow_;
  if (prompts_ + inflow <= 0 || span_s <= 0) return 0;
  const double chunk = std::min(flow_.prompt_tokens_max, std::max(mean, prompts_ / replicas));
  const double with_s =
      surface_.with_prompt_s(flow_.rows_each, flow_.context, {.tokens = std::max(chunk, 1.0)}) /
      speed_;
  const double extra = std::clamp((with_s - flow_.step_s) / with_s, 0.0, 0.999);
  if (knows_requests_) {
    const double busy = std::clamp(prompts_ / mean, 1.0, replicas);
    flow_.prompt_rate = busy * chunk / with_s;
    return busy / replicas * extra;
  }
  flow_.prompt_rate = replicas * chunk / with_s;
  const double used = (prompts_ / span_s + inflow) / flow_.prompt_rate;
  return std::min(used, 1.0) * extra;
}

void FluidPool::flow_to(double to_s) {
  for (;;) {
    const double arrival_s = arrivals_.empty() ? kNever : arrivals_.top().at;
    const double first_s = first_tokens_.empty() ? kNever : first_tokens_.top().at;
    double end_s = kNever;
    if (!row_ends_.empty() && flow_.steps_per_s > 0) {
      end_s = now_s_ + std::max(row_ends_.top().at - steps_, 0.0) / flow_.steps_per_s;
    }
    double computed_s = kNever;
    if (knows_requests_ && prompts_ > 0 && flow_.prompt_rate > 0) {
      computed_s = now_s_ + std::max(prompts_ / flow_.prompt_rate, 1e-7);
    }
    const double next_s = std::min({arrival_s, first_s, end_s, computed_s});
    if (next_s > to_s) return pass(to_s);
    pass(std::max(next_s, now_s_));
    if (next_s == computed_s) {
      if (prompts_ < 0.5) prompts_ = backlog_ = 0;
    } else if (next_s == end_s) {
      end_row(row_ends_.pop());
    } else if (next_s == first_s) {
      begin_row(first_tokens_.pop());
    } else {
      FluidParcel parcel = arrivals_.top().parcel;
      arrivals_.pop();
      receive(std::move(parcel));
    }
    // An amount changes little; where requests are known, each of them counts.
    if (knows_requests_) set_flow(std::max(to_s - now_s_, 1e-3));
  }
}

void FluidPool::pass(double to_s) {
  const double span_s = to_s - now_s_;
  if (span_s > 0) {
    const double steps = flow_.steps_per_s * span_s;
    const double replicas = std::max(serving(), 1);
    steps_ += steps;
    context_ += steps * rows_;
    const double computed = std::min(prompts_, flow_.prompt_rate * span_s);
    prompts_ -= computed;
    tokens_done_ += computed + steps * rows_;
    const double busy = rows_ > kLeast ? std::min(rows_, replicas) : 0;
    busy_s_ += busy * span_s;
    row_seconds_ += rows_ * span_s;
    steps_done_ += steps * busy;
    rows_done_ += steps * rows_;
    rows_most_ = std::max(rows_most_, rows_);
    if (context_ > kv_tokens_ * replicas) overflow_s_ += span_s;
    now_s_ = to_s;
  }
  backlog_ = prompts_;
}

void FluidPool::receive(FluidParcel parcel) {
  const double at_s = now_s_;
  came_ += parcel.amount;
  knows_requests_ = knows_requests_ || parcel.request >= 0;
  if (!control_ && serving() == 0) {
    return emit(FluidOutcome::Kind::kLost, parcel, at_s, "no replica is up");
  }
  held_amount_ += parcel.amount;
  held_.push_back(std::move(parcel));
  send_held(at_s);
  count(at_s);
  if (held_.empty()) return;
  // The first one that an empty pool holds sets it in motion.
  if (control_ && control_->empty()) decide();
  if (held_.empty()) return;
  const double replicas = std::max(serving(), 1);
  const double most = control_ ? options_.autoscaling->held_max
                               : replicas * static_cast<double>(options_.replica.inbox_max);
  const double wait_max_s =
      control_ ? kNever : static_cast<double>(options_.replica.queue_wait_max_ns) * 1e-9;
  const double wait_s = held_amount_ * service_mean_s_ / (replicas * slots_);
  const bool waits_too_long = wait_max_s > 0 && wait_s > wait_max_s;
  if (held_amount_ <= most && !waits_too_long) return;
  const FluidParcel last = held_.back();
  held_.pop_back();
  held_amount_ -= last.amount;
  emit(FluidOutcome::Kind::kLost, last, at_s,
       control_ ? "the gateway holds too many" : "the queues are full");
}

double FluidPool::room() const {
  return slots_ * ready_ - (rows_ + firsts_ - draining_rows());
}

// In the order of their coming, as far as there are slots and memory.
void FluidPool::send_held(double at_s) {
  while (!held_.empty()) {
    FluidParcel& first = held_.front();
    const double kv_left = kv_tokens_ * std::max(serving(), 0) - context_ - firsts_context_;
    const bool is_alone = rows_ + firsts_ <= kLeast;
    double sent = std::min(first.amount, room());
    if (!is_alone) sent = std::min(sent, kv_left / std::max(first.prompt, 1.0));
    // A request that is known goes whole.
    if (first.request >= 0 && sent < first.amount - kLeast) return;
    // Nor is an amount split into ever smaller ones.
    const double least = slots_ * std::max(ready_, 1) / 64;
    if (first.request < 0 && sent < std::min(first.amount, least) - kLeast) return;
    if (sent <= kLeast) return;
    FluidParcel parcel = first;
    parcel.amount = std::min(sent, first.amount);
    held_amount_ = std::max(held_amount_ - parcel.amount, 0.0);
    first.amount -= parcel.amount;
    if (first.amount <= kLeast) held_.pop_front();
    send(std::move(parcel), at_s);
  }
}

void FluidPool::send(FluidParcel parcel, double at_s) {
  constexpr double kNewest = 0.05;  // in an average
  const uint64_t name =
      static_cast<uint64_t>(parcel.request) + (static_cast<uint64_t>(parcel.retries) << 40);
  const bool is_known = parcel.request >= 0;
  const double draw = is_known ? base::random_unit(options_.seed ^ kResidualStream, name) : 0.5;
  parcel.sent_s = at_s;
  parcel.first_s = at_s + first_after_s(parcel, draw);
  if (!is_known && rows_ >= ready_) parcel.spread_s = flow_.step_s;
  prompt_mean_ = prompt_mean_ <= 0 ? parcel.computed
                                   : prompt_mean_ + kNewest * (parcel.computed - prompt_mean_);
  prompts_ += parcel.amount * parcel.computed;
  prompts_sent_ += parcel.amount * parcel.computed;
  prompt_tokens_ += parcel.amount * parcel.prompt;
  cached_tokens_ += parcel.amount * (parcel.prompt - parcel.computed);
  const std::optional<double>& patience_s = options_.clients.patience_s;
  if (patience_s && parcel.first_s - parcel.came_s > *patience_s) {
    // It leaves its replica before anything was said.
    return emit(FluidOutcome::Kind::kLeft, parcel, std::max(at_s, parcel.came_s + *patience_s),
                "its client left");
  }
  firsts_ += parcel.amount;
  firsts_context_ += parcel.amount * parcel.prompt;
  first_tokens_.push({parcel.first_s, orders_++, std::move(parcel)});
}

// From being sent until the first token: the step that runs (and the one that is planned behind
// it), the prompts before, and its own steps, with what comes into the last of them meanwhile.
double FluidPool::first_after_s(const FluidParcel& parcel, double draw) const {
  const double replicas = std::max(ready_, 1);
  const double there = rows_ + firsts_;
  double rows = flow_.rows_each;
  bool is_busy = there > kLeast && there >= replicas;
  if (deals_blindly(options_.dispatch) && replicas > 1 && parcel.request >= 0) {
    const double place =
        base::random_unit(options_.seed ^ kPlaceStream, static_cast<uint64_t>(parcel.request));
    is_busy = place < 1 - std::exp(-there / replicas);
  }
  if (!is_busy) rows = 0;
  const double waiting = parcel.request >= 0 ? prompts_ : backlog_;
  const double mean = std::max(prompt_mean_, 1.0);
  // What exceeds a prompt at each of the other replicas is before it. Only a router by cost sees
  // who computes a prompt; counts show half of it.
  const double even = waiting / replicas;
  const double excess = std::max(waiting - (replicas - 1) * mean, 0.0) / replicas;
  double blind = options_.dispatch == Dispatcher::Policy::kCost ? 0 : 0.5;
  if (deals_blindly(options_.dispatch)) blind = 1;
  const double ahead = blind * even + (1 - blind) * excess;
  double after_s = 0;
  if (is_busy) {
    const double step_s = flow_.step_s;
    after_s = draw * step_s + (step_s <= overlap_s_ ? step_s : 0);
  }
  const double most = surface_.prompt_tokens_max(rows);
  const double tokens = ahead + std::max(parcel.computed, 1.0);
  const double full = std::floor(tokens / most);
  const double rest = tokens - full * most;
  if (full > 0) {
    after_s += full * surface_.with_prompt_s(rows, flow_.context, {.tokens = most}) / speed_;
  }
  if (rest >= 0.5) {
    const FluidSurface::Prompt last{.tokens = std::max(rest, 1.0),
                                    .cached = parcel.prompt - parcel.computed};
    after_s += surface_.with_prompt_s(rows, flow_.context, last) / speed_;
  }
  return after_s;
}

void FluidPool::begin_row(const Timed& first) {
  FluidParcel parcel = first.parcel;
  firsts_ = std::max(firsts_ - parcel.amount, 0.0);
  firsts_context_ = std::max(firsts_context_ - parcel.amount * parcel.prompt, 0.0);
  rows_ += parcel.amount;
  context_ += parcel.amount * parcel.prompt;
  parcel.first_row = steps_;
  const double end = steps_ + std::max(parcel.output - 1, 0.0);
  row_ends_.push({end, orders_++, std::move(parcel)});
}

void FluidPool::end_row(const Timed& row) {
  const FluidParcel& parcel = row.parcel;
  constexpr double kNewest = 0.02;
  rows_ -= parcel.amount;
  context_ -= parcel.amount * (parcel.prompt + std::max(parcel.output - 1, 0.0));
  if (rows_ <= kLeast || row_ends_.empty()) rows_ = context_ = 0;
  context_ = std::max(context_, 0.0);
  service_mean_s_ += kNewest * (now_s_ - parcel.sent_s - service_mean_s_);
  emit(FluidOutcome::Kind::kServed, parcel, now_s_, "");
  send_held(now_s_);
  count(now_s_);
}

void FluidPool::emit(FluidOutcome::Kind kind, const FluidParcel& parcel, double at_s,
                     const char* why) {
  done_ += parcel.amount;
  FluidOutcome outcome{.kind = kind, .parcel = parcel, .at_s = at_s, .why = why};
  if (kind == FluidOutcome::Kind::kServed) {
    outcome.output = parcel.said + parcel.output;
    count_served(outcome);
  } else if (kind == FluidOutcome::Kind::kLost && parcel.first_s >= 0 && parcel.first_s <= at_s) {
    outcome.output = std::floor(std::max(steps_ - parcel.first_row, 0.0)) + 1;
  }
  listener_(outcome);
}

// Who waits in the gateway for too long.
void FluidPool::drop_impatient(double at_s) {
  double most_s = control_ ? options_.autoscaling->hold_s_max : kNever;
  FluidOutcome::Kind kind = FluidOutcome::Kind::kLost;
  const char* why = "held for too long";
  if (options_.clients.patience_s && *options_.clients.patience_s <= most_s) {
    most_s = *options_.clients.patience_s;
    kind = FluidOutcome::Kind::kLeft;
    why = "its client left";
  }
  while (!held_.empty() && held_.front().came_s + most_s <= at_s) {
    const FluidParcel parcel = held_.front();
    held_.pop_front();
    held_amount_ = std::max(held_amount_ - parcel.amount, 0.0);
    emit(kind, parcel, parcel.came_s + most_s, why);
  }
}

ReplicaCounts FluidPool::counts() const {
  ReplicaCounts counts;
  counts.steps = std::llround(steps_done_);
  counts.rows = std::llround(rows_done_);
  counts.tokens = std::llround(tokens_done_);
  counts.busy_ns = nanoseconds(busy_s_);
  counts.running_max = static_cast<int>(std::lround(rows_most_ / std::max(serving(), 1)));
  counts.scheduler.prompt_tokens = std::llround(prompt_tokens_);
  counts.scheduler.prompt_tokens_cached = std::llround(cached_tokens_);
  return counts;
}

ScalingCounts FluidPool::scaling() const {
  return {.replica_s = control_->replica_seconds(nanoseconds(now_s_)),
          .replicas_most = control_->most(),
          .started = control_->started(),
          .failed_starts = control_->failed_starts(),
          .direction_changes = control_->direction_changes(),
          .held_s = control_->held_seconds(),
          .history = control_->history()};
}

}  // namespace pelton::simulator
