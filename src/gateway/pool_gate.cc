#include "gateway/pool_gate.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace pelton::gateway {
namespace {

// Each turn of an autoscaler says anew what is in force, five times a second: whoever does not any
// more has been killed, and what was held in its name goes to the replica that is still there.
constexpr int64_t kRetirementNs = 2'000'000'000;
constexpr double kSlotsAssumed = 16;  // of a replica

}  // namespace

PoolGate::PoolGate(ScalingConfig config, const base::Clock& clock, std::function<void()> on_demand)
    : config_(std::move(config)),
      is_scaled_(true),
      clock_(clock),
      on_demand_(std::move(on_demand)),
      hold_(config_.hold),
      passed_ns_(clock.now_ns()) {
  if (config_.launch) announcement_.eta_s = config_.launch->start_s;
}

PoolGate::PoolGate(const HoldConfig& hold, const base::Clock& clock)
    : is_scaled_(false),
      clock_(clock),
      on_demand_([] {}),
      hold_(hold),
      passed_ns_(clock.now_ns()) {}

HoldConfig PoolGate::hold() const {
  std::lock_guard lock(mutex_);
  return hold_;
}

void PoolGate::set_hold(const HoldConfig& hold) {
  std::lock_guard lock(mutex_);
  hold_ = hold;
}

void PoolGate::pass(int64_t now_ns) {
  const double since_s = static_cast<double>(std::max<int64_t>(now_ns - passed_ns_, 0)) * 1e-9;
  report_.in_service_s += since_s * (report_.in_service + jobs_);
  report_.held_s += since_s * report_.held;
  passed_ns_ = std::max(passed_ns_, now_ns);
}

void PoolGate::note_request() {
  std::lock_guard lock(mutex_);
  ++report_.requests;
}

void PoolGate::note_refused() {
  std::lock_guard lock(mutex_);
  ++refused_;
}

void PoolGate::count(Place place, int by) {
  if (place == Place::kHeld) report_.held += by;
  if (place == Place::kInService) report_.in_service += by;
}

void PoolGate::move(Place from, Place to) {
  std::lock_guard lock(mutex_);
  pass(clock_.now_ns());
  count(from, -1);
  count(to, 1);
  // One that was never at a replica says nothing of how long an answer takes.
  if (from == Place::kInService && to == Place::kOver) ++report_.finished;
}

void PoolGate::note_served(const autoscaler::ServedSums::Request& request) {
  std::lock_guard lock(mutex_);
  report_.served.add(request);
}

bool PoolGate::is_retired(int64_t now_ns) const {
  return retirement_ != 0 && now_ns - retired_ns_ < kRetirementNs;
}

bool PoolGate::holds_now(const PoolSupply& supply) const {
  return supply.ready == 0 || !waiting_.empty() || is_retired(clock_.now_ns());
}

bool PoolGate::holds(const PoolSupply& supply) const {
  std::lock_guard lock(mutex_);
  return holds_now(supply);
}

bool PoolGate::passes(const PoolSupply& supply, Takes takes) {
  std::lock_guard lock(mutex_);
  if (holds_now(supply)) return false;
  if (takes == Takes::kSlot && passing_ >= supply.free_slots) return false;
  ++passing_;
  return true;
}

// Until one that comes now is served: a start, and the answers of those before it.
double PoolGate::wait_s() const {
  const double slots = config_.policy.concurrency_target.value_or(kSlotsAssumed);
  const double service_s =
      report_.finished == 0 ? 0 : report_.in_service_s / static_cast<double>(report_.finished);
  const double rounds =
      static_cast<double>(waiting_.size()) / std::max(slots * config_.policy.replicas_max, 1.0);
  return announcement_.eta_s + rounds * service_s;
}

// The same where workers are there, and as many as they take are with them.
double PoolGate::slot_wait_s(const PoolSupply& supply) const {
  if (report_.finished == 0) return 0;
  const double service_s = report_.in_service_s / static_cast<double>(report_.finished);
  return static_cast<double>(waiting_.size() + 1) / std::max(supply.slots, 1) * service_s;
}

PoolGate::Refusal PoolGate::refuse_full(const PoolSupply& supply, std::string why) const {
  return {.code = "overloaded",
          .message = std::move(why),
          .retry_after_s = slot_wait_s(supply),
          .status = 429};
}

// None: it may wait.
std::optional<PoolGate::Refusal> PoolGate::refusal_of(const Held& held,
                                                      const PoolSupply& supply) const {
  const bool is_full =
      std::ssize(waiting_) >= hold_.requests_max || bytes_ + held.bytes > hold_.bytes_max;
  if (held.takes == Takes::kSlot && (supply.ready > 0 || !is_scaled_)) {
    if (!is_full) return std::nullopt;
    return refuse_full(supply,
                       fmt::format("the workers have as many requests as they take, and {} wait",
                                   waiting_.size()));
  }
  if (!announcement_.failure.empty()) {
    return Refusal{.code = "model_start_failed",
                   .message = "the model did not start: " + announcement_.failure,
                   .retry_after_s = announcement_.again_s};
  }
  const double wait_s = this->wait_s();
  if (wait_s * 1e9 > static_cast<double>(held.wait_max_ns)) {
    return Refusal{
        .code = "model_starting",
        .message = fmt::format("the model would be ready for this request in {:.0f} s, which "
                               "is more than it may wait",
                               wait_s),
        .retry_after_s = wait_s};
  }
  if (!is_full) return std::nullopt;
  return Refusal{.code = "model_starting",
                 .message = "the model is starting, and too many requests wait for it",
                 .retry_after_s = wait_s};
}

std::optional<int64_t> PoolGate::enter(Held held, Refusal& refusal, const PoolSupply& supply) {
  std::unique_lock lock(mutex_);
  const bool is_first = waiting_.empty();
  std::optional<int64_t> number;
  if (std::optional<Refusal> refused = refusal_of(held, supply)) {
    refusal = *std::move(refused);
  } else {
    number = ++numbers_;
    bytes_ += held.bytes;
    Waiting waiting{.held = std::move(held), .item = {.id = *number, .rank = queue_.rank(0)}};
    queue_.enter(waiting.held.tenant, waiting.held.weight);
    queue_.add(waiting.held.tenant, waiting.item);
    waiting_.emplace(*number, std::move(waiting));
  }
  // Also one that is refused says that the model is wanted; and the first one that is held before
  // move() has counted it, as the next report may be asked for at once.
  is_wanted_ = is_wanted_ || !number || is_first;
  lock.unlock();
  if (is_first) on_demand_();
  return number;
}

PoolGate::Refusal PoolGate::refuse_late(Takes takes, const PoolSupply& supply) {
  std::lock_guard lock(mutex_);
  if (takes == Takes::kSlot && supply.ready > 0) {
    return refuse_full(supply, "no worker was free within the time that requests wait");
  }
  return {.code = "model_starting",
          .message = "no replica was ready within the time that requests are held",
          .retry_after_s = announcement_.eta_s};
}

PoolGate::Refusal PoolGate::refuse_cold() {
  double wait_s = 0;
  {
    std::lock_guard lock(mutex_);
    wait_s = this->wait_s();
    is_wanted_ = true;
  }
  on_demand_();
  return {.code = "model_starting",
          .message = "the model is not ready, and the request asks not to wait for it",
          .retry_after_s = wait_s};
}

std::weak_ptr<HeldRequest> PoolGate::take(int64_t number) {
  const auto found = waiting_.find(number);
  const Waiting waiting = std::move(found->second);
  waiting_.erase(found);
  bytes_ -= waiting.held.bytes;
  queue_.remove(waiting.held.tenant, waiting.item);
  queue_.leave(waiting.held.tenant);
  return waiting.held.request;
}

void PoolGate::leave(int64_t number) {
  std::lock_guard lock(mutex_);
  if (waiting_.contains(number)) take(number);
}

void PoolGate::note_passed() {
  std::lock_guard lock(mutex_);
  --passing_;
}

void PoolGate::release(const PoolSupply& supply) {
  std::vector<std::shared_ptr<HeldRequest>> released;
  {
    std::lock_guard lock(mutex_);
    const int64_t now_ns = clock_.now_ns();
    pass(now_ns);
    jobs_ = supply.jobs;
    if (is_retired(now_ns)) return;
    while (passing_ < supply.free_slots && !waiting_.empty()) {
      const std::optional<int64_t> next = queue_.next({});
      if (!next) break;
      queue_.charge(waiting_.at(*next).held.tenant, 1);
      std::shared_ptr<HeldRequest> request = take(*next).lock();
      if (request == nullptr) continue;
      ++passing_;
      released.push_back(std::move(request));
    }
  }
  for (const auto& one : released) one->on_released();
}

void PoolGate::retire(uint64_t retirement) {
  std::lock_guard lock(mutex_);
  retirement_ = retirement;
  retired_ns_ = clock_.now_ns();
}

void PoolGate::announce(const autoscaler::PoolAnnouncement& announcement) {
  std::vector<std::shared_ptr<HeldRequest>> refused;
  {
    std::lock_guard lock(mutex_);
    announcement_ = announcement;
    while (!announcement.failure.empty() && !waiting_.empty()) {
      std::shared_ptr<HeldRequest> request = take(waiting_.begin()->first).lock();
      if (request != nullptr) refused.push_back(std::move(request));
    }
  }
  for (const auto& one : refused) one->on_start_failed();
}

autoscaler::PoolAnnouncement PoolGate::announcement() const {
  std::lock_guard lock(mutex_);
  return announcement_;
}

PoolGate::Counts PoolGate::counts() const {
  std::lock_guard lock(mutex_);
  return {.held = static_cast<int>(waiting_.size()), .entered = numbers_, .refused = refused_};
}

autoscaler::GatewayReport PoolGate::report(const std::string& gateway) {
  std::lock_guard lock(mutex_);
  const int64_t now_ns = clock_.now_ns();
  pass(now_ns);
  ++report_.sequence;
  report_.gateway = gateway;
  report_.incarnation = 1;  // the name is another one at every start
  report_.holds_for = is_retired(now_ns) ? retirement_ : 0;
  report_.at_ns = now_ns;
  autoscaler::GatewayReport report = report_;
  report.in_service += jobs_;
  // Whoever would not wait stands in one report like somebody who does: that starts a replica.
  if (std::exchange(is_wanted_, false)) report.held = std::max(report.held, 1);
  return report;
}

}  // namespace pelton::gateway
