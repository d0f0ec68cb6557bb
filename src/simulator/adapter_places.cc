#include "simulator/adapter_places.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pelton::simulator {

AdapterCounts& AdapterCounts::operator+=(const AdapterCounts& other) {
  hits += other.hits;
  misses += other.misses;
  loads += other.loads;
  evictions += other.evictions;
  refused += other.refused;
  waited_ns += other.waited_ns;
  waited_max_ns = std::max(waited_max_ns, other.waited_max_ns);
  answered += other.answered;
  resident_max = std::max(resident_max, other.resident_max);
  return *this;
}

double AdapterCounts::hits_share() const {
  const int64_t asked = hits + misses;
  return asked == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(asked);
}

AdapterPlaces::AdapterPlaces(const Options& options)
    : options_(options), load_rate_(options.loads_per_second, options.resident_max, 0) {}

int AdapterPlaces::uses() const {
  int uses = 0;
  for (const auto& [adapter, resident] : residents_) uses += resident.uses;
  return uses;
}

std::vector<int64_t> AdapterPlaces::residents() const {
  std::vector<int64_t> all;
  for (const auto& [adapter, resident] : residents_) all.push_back(adapter);
  for (const auto& [adapter, waiters] : waiters_) {
    if (!residents_.contains(adapter)) all.push_back(adapter);
  }
  return all;
}

void AdapterPlaces::use(Resident& resident) {
  ++resident.uses;
  resident.last_use = ++ticks_;
}

AdapterPlaces::Answer AdapterPlaces::ask(int64_t now_ns, int64_t adapter, int64_t request) {
  const auto found = residents_.find(adapter);
  if (found != residents_.end() && !found->second.leaving) {
    ++counts_.hits;
    use(found->second);
    return Answer::kInMemory;
  }
  if (waiting_ >= options_.waiting_max) {
    ++counts_.refused;
    return Answer::kRefused;
  }
  ++counts_.misses;
  ++waiting_;
  std::vector<Waiter>& waiters = waiters_[adapter];
  waiters.push_back({.request = request, .since_ns = now_ns});
  if (waiters.size() == 1) queue_.push_back(adapter);
  go_on(now_ns);
  return Answer::kWaits;
}

void AdapterPlaces::release(int64_t now_ns, int64_t adapter) {
  const auto found = residents_.find(adapter);
  CHECK(found != residents_.end() && found->second.uses > 0, "a use that never began has ended");
  --found->second.uses;
  go_on(now_ns);
}

void AdapterPlaces::wake(int64_t now_ns, std::vector<int64_t>& begun) {
  if (loading_ && loading_->ends_ns <= now_ns) {
    const int64_t adapter = std::exchange(loading_, std::nullopt)->adapter;
    ++counts_.loads;
    residents_[adapter].loaded_as = ++ticks_;
    counts_.resident_max = std::max(counts_.resident_max, static_cast<int>(residents_.size()));
    begin_waiters(now_ns, adapter, begun);
  }
  // Those that were to make room for another, and need not any more.
  while (!loading_ && !queue_.empty() && residents_.contains(queue_.front())) {
    begin_waiters(now_ns, queue_.front(), begun);
    queue_.pop_front();
  }
  go_on(now_ns);
}

void AdapterPlaces::begin_waiters(int64_t now_ns, int64_t adapter, std::vector<int64_t>& begun) {
  Resident& resident = residents_.at(adapter);
  for (const Waiter& waiter : waiters_[adapter]) {
    use(resident);
    const int64_t waited_ns = now_ns - waiter.since_ns;
    counts_.waited_ns += waited_ns;
    counts_.waited_max_ns = std::max(counts_.waited_max_ns, waited_ns);
    ++counts_.answered;
    const double waited_s = static_cast<double>(waited_ns) * 1e-9;
    constexpr double kNewestShare = 0.1;
    wait_s_ += (wait_s_ == 0 ? 1 : kNewestShare) * (waited_s - wait_s_);
    --waiting_;
    begun.push_back(waiter.request);
  }
  waiters_.erase(adapter);
}

// The next load begins, or it is known when it may; else a use has to end first.
void AdapterPlaces::go_on(int64_t now_ns) {
  if (loading_) return;
  wakes_at_ns_.reset();
  if (queue_.empty()) return blocked_since_ns_.reset();
  if (residents_.contains(queue_.front())) {
    wakes_at_ns_ = now_ns;
    return;
  }
  if (const int64_t wait_ns = load_rate_.wait_ns(now_ns); wait_ns > 0) {
    wakes_at_ns_ = now_ns + wait_ns;
    return;
  }
  if (!make_room()) {
    if (!blocked_since_ns_) blocked_since_ns_ = now_ns;
    const int64_t patient_ns = *blocked_since_ns_ + options_.patience_ns;
    if (patient_ns > now_ns) {
      wakes_at_ns_ = patient_ns;
    } else {
      ask_to_leave();
    }
    return;
  }
  blocked_since_ns_.reset();
  load_rate_.take();
  loading_ = {.adapter = queue_.front(),
              .ends_ns = now_ns + std::max<int64_t>(options_.load_ns, 1)};
  queue_.pop_front();
  wakes_at_ns_ = loading_->ends_ns;
}

bool AdapterPlaces::make_room() {
  while (std::ssize(residents_) >= options_.resident_max) {
    auto idle = residents_.end();
    for (auto one = residents_.begin(); one != residents_.end(); ++one) {
      if (one->second.uses > 0) continue;
      if (idle == residents_.end() || one->second.last_use < idle->second.last_use) idle = one;
    }
    if (idle == residents_.end()) return false;
    residents_.erase(idle);
    ++counts_.evictions;
  }
  for (auto& [adapter, resident] : residents_) resident.leaving = false;
  return true;
}

void AdapterPlaces::ask_to_leave() {
  Resident* oldest = nullptr;
  for (auto& [adapter, resident] : residents_) {
    if (resident.leaving) return;
    if (oldest == nullptr || resident.loaded_as < oldest->loaded_as) oldest = &resident;
  }
  if (oldest != nullptr) oldest->leaving = true;
}

}  // namespace pelton::simulator
