#include "launch/simulated_provider.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

namespace pelton::launch {
namespace {

using State = LaunchedReplica::State;

Error refused(std::string why) {
  return {ErrorCode::kInvalidArgument, std::move(why), {}};
}

int64_t nanoseconds(double seconds) {
  return static_cast<int64_t>(seconds * 1e9);
}

}  // namespace

SimulatedProvider::SimulatedProvider(std::map<std::string, ProvidedMachines> pools,
                                     std::unique_ptr<LocalLauncher> processes,
                                     const base::Clock& clock, base::Log& log)
    : pools_(std::move(pools)),
      processes_(std::move(processes)),
      clock_(clock),
      log_(log),
      opened_ns_(clock.now_ns()),
      newest_token_(processes_->newest_token()) {}

uint64_t SimulatedProvider::newest_token() const {
  return newest_token_;
}

Result<void> SimulatedProvider::check(const ReplicaOrder& order, const ProvidedMachines& machines) {
  int there = 0;
  for (const LaunchedReplica& one : list()) {
    if (one.order.pool != order.pool) continue;
    const bool is_over = one.state == State::kEnded;
    there += is_over ? 0 : 1;
    if (one.order.ordinal != order.ordinal) continue;
    if (one.order.token > order.token) {
      return refused(fmt::format("the order {} for {}-{} is older than {}", order.token, order.pool,
                                 order.ordinal, one.order.token));
    }
    if (!is_over) return refused(fmt::format("{}-{} still runs", order.pool, order.ordinal));
  }
  if (epoch_of(order.token) < epoch_of(newest_token_)) {
    return refused(fmt::format("the order {} for {}-{} is older than the newest, {}", order.token,
                               order.pool, order.ordinal, newest_token_));
  }
  const double now_s = static_cast<double>(clock_.now_ns() - opened_ns_) * 1e-9;
  const bool is_out = std::ranges::any_of(machines.stock_outs, [&](const auto& one) {
    return now_s >= one.at_s && now_s < one.at_s + one.for_s;
  });
  if (is_out) return Error{ErrorCode::kUnavailable, "the provider is out of stock", {}};
  if (there < machines.quota) return {};
  return Error{ErrorCode::kUnavailable,
               fmt::format("the provider's quota is {} machines", machines.quota),
               {}};
}

// By Box and Muller.
double SimulatedProvider::lead_s(const ProvidedMachines& machines) {
  constexpr double kNormal_p90 = 1.2815515655446004;
  const double first = std::max(base::random_unit(machines.seed, draws_++), 1e-300);
  const double second = base::random_unit(machines.seed, draws_++);
  if (machines.lead_p90_s <= machines.lead_s || machines.lead_s <= 0) return machines.lead_s;
  const double normal = std::sqrt(-2 * std::log(first)) * std::cos(2 * std::numbers::pi * second);
  return machines.lead_s *
         std::exp(std::log(machines.lead_p90_s / machines.lead_s) / kNormal_p90 * normal);
}

Result<void> SimulatedProvider::start(const ReplicaOrder& order) {
  const auto pool = pools_.find(order.pool);
  if (pool == pools_.end() || order.ordinal < 0) {
    return refused(
        fmt::format("nothing says how a replica {}-{} is started", order.pool, order.ordinal));
  }
  for (const LaunchedReplica& one : list()) {
    if (one.order == order) return {};
  }
  TRY(check(order, pool->second));
  newest_token_ = std::max(newest_token_, order.token);
  const int64_t now_ns = clock_.now_ns();
  coming_[{order.pool, order.ordinal}] = {.order = order,
                                          .ordered_ns = now_ns,
                                          .comes_ns = now_ns + nanoseconds(lead_s(pool->second)),
                                          .ended = {}};
  bring();
  return {};
}

// Those whose time has come.
void SimulatedProvider::bring() {
  const int64_t now_ns = clock_.now_ns();
  for (auto it = coming_.begin(); it != coming_.end();) {
    Coming& one = it->second;
    const bool comes = one.ended.empty() && one.comes_ns <= now_ns;
    const Result<void> started = comes ? processes_->start(one.order) : Result<void>();
    if (!started.ok()) one.ended = started.error().message;
    it = comes && started.ok() ? coming_.erase(it) : std::next(it);
  }
}

void SimulatedProvider::stop(const ReplicaOrder& order, std::chrono::milliseconds grace) {
  const auto found = coming_.find({order.pool, order.ordinal});
  if (found == coming_.end()) return processes_->stop(order, grace);
  if (found->second.order == order && found->second.ended.empty()) {
    found->second.ended = "was stopped before it came";
  }
}

std::vector<LaunchedReplica> SimulatedProvider::list() {
  bring();
  std::vector<LaunchedReplica> all;
  for (LaunchedReplica& one : processes_->list()) {
    // Its place is another one's already.
    if (coming_.contains({one.order.pool, one.order.ordinal})) continue;
    take_back(one);
    all.push_back(std::move(one));
  }
  for (const auto& [place, one] : coming_) {
    all.push_back({.order = one.order,
                   .state = one.ended.empty() ? State::kRunning : State::kEnded,
                   .host = {},
                   .ordered_ns = one.ordered_ns,
                   // A machine that is to come needs no sign of life.
                   .progress_ns = clock_.now_ns(),
                   .ended = one.ended});
  }
  return all;
}

void SimulatedProvider::take_back(LaunchedReplica& replica) {
  const auto pool = pools_.find(replica.order.pool);
  if (pool == pools_.end() || pool->second.reclaim_after_s <= 0) return;
  const ProvidedMachines& machines = pool->second;
  if (replica.state == State::kEnded) {
    serves_since_ns_.erase(replica.order);
    return;
  }
  if (replica.port == 0) return;
  const int64_t now_ns = clock_.now_ns();
  const int64_t since_ns = serves_since_ns_.try_emplace(replica.order, now_ns).first->second;
  const int64_t goes_ns = since_ns + nanoseconds(machines.reclaim_after_s);
  replica.is_reclaimed = now_ns >= goes_ns - nanoseconds(machines.reclaim_notice_s);
  if (now_ns < goes_ns || replica.state != State::kRunning) return;
  log_.info(fmt::format("replica {}-{} is taken back by its provider", replica.order.pool,
                        replica.order.ordinal));
  processes_->stop(replica.order, std::chrono::milliseconds(0));
}

}  // namespace pelton::launch
