// What an AdapterRegistry loads next: whose turn it is, when it may begin, and what has to make
// room.
#include <algorithm>
#include <chrono>
#include <utility>

#include <pthread.h>

#include "server/adapter_registry.h"

namespace pelton::server {
namespace {

// Most operators load less at once; a request waits for these at most.
constexpr int kOperatorLoadsInRow = 4;

}  // namespace

// By a request: others are an operator's.
bool AdapterRegistry::is_asked_for(const std::shared_ptr<Named>& named) {
  return !named->is_candidate && !named->waiting.empty();
}

void AdapterRegistry::locked_queue(const std::shared_ptr<Named>& named) {
  if (named->queued) return;
  named->queued = true;
  // What an operator has asked for goes before requests, whose loads are limited in number.
  const auto before =
      is_asked_for(named) ? queue_.end() : std::ranges::find_if(queue_, is_asked_for);
  queue_.insert(before, named);
  shared_->changed.notify_all();
}

void AdapterRegistry::run() {
  pthread_setname_np(pthread_self(), "pelton-lora");
  std::unique_lock lock(shared_->mutex);
  int64_t blocked_since_ns = 0;
  const Named* blocked = nullptr;
  while (!stopping_) {
    std::vector<std::shared_ptr<Version>> gone;  // freed without the lock
    locked_drop_orphans(gone);
    if (!gone.empty()) {
      lock.unlock();
      gone.clear();
      lock.lock();
      continue;
    }
    locked_let_stay();
    if (!folders_.empty() && clock_.now_ns() - swept_ns_ >= options_.sweep_ns) {
      sweep(lock);
      continue;
    }
    const std::shared_ptr<Named> next = locked_next();
    if (next.get() != blocked) blocked_since_ns = 0;
    blocked = next.get();
    if (next == nullptr) {
      locked_wait_idle(lock);
      continue;
    }
    // By another of its names, or it need not make room any more.
    if (!next->is_candidate && next->version != nullptr && !next->version->leaving) {
      std::erase(queue_, next);
      finish(lock, next, {});
      continue;
    }
    if (!next->checked) {
      next->checked = true;
      check_one(lock, next);
      continue;
    }
    const int64_t now_ns = clock_.now_ns();
    // What an operator has asked for, once, is not a request's doing.
    const bool is_requests = is_asked_for(next);
    const int64_t wait_ns = is_requests ? load_rate_.wait_ns(now_ns) : 0;
    if (wait_ns > 0) {
      shared_->changed.wait_for(lock, std::chrono::nanoseconds(wait_ns));
      continue;
    }
    const Room room = locked_make_room(*next, gone);
    if (!gone.empty()) {
      lock.unlock();
      gone.clear();
      lock.lock();
    }
    if (room == Room::kWait) {
      if (blocked_since_ns == 0) blocked_since_ns = now_ns;
      locked_wait_for_room(lock, blocked_since_ns + options_.patience_ns - now_ns);
      continue;
    }
    blocked_since_ns = 0;
    std::erase(queue_, next);  // another one may have come before it meanwhile
    if (room != Room::kYes) {
      finish(lock, next, no_room(*next, room));
      continue;
    }
    locked_begin_load(next);
    load_one(lock, next);
  }
}

void AdapterRegistry::locked_wait_idle(std::unique_lock<std::mutex>& lock) {
  if (folders_.empty()) return shared_->changed.wait(lock);
  shared_->changed.wait_for(lock, std::chrono::nanoseconds(options_.sweep_ns));
}

// Those that keep it stay until they end by themselves, or until patience does.
void AdapterRegistry::locked_wait_for_room(std::unique_lock<std::mutex>& lock, int64_t left_ns) {
  if (left_ns > 0) {
    shared_->changed.wait_for(lock, std::chrono::nanoseconds(left_ns));
    return;
  }
  locked_ask_to_leave();
  shared_->changed.wait(lock);
}

void AdapterRegistry::locked_begin_load(const std::shared_ptr<Named>& named) {
  const bool is_requests = is_asked_for(named);
  operator_loads_ = is_requests ? 0 : operator_loads_ + 1;
  if (!is_requests) return;
  load_rate_.take();
  // It is the turn of that tenant of those who wait for it whose last one is longest ago.
  TenantWaits* first = nullptr;
  for (const WaitingEntry& entry : named->waiting) {
    TenantWaits& waits = waiting_of_tenant_.find(entry.waiter.tenant)->second;
    if (first == nullptr || waits.turn < first->turn) first = &waits;
  }
  first->turn = ++turn_;
}

// Of those that requests wait for, the first of the tenant whose last load is longest ago: who asks
// for many names keeps no other waiting for more than one of them.
std::shared_ptr<AdapterRegistry::Named> AdapterRegistry::locked_next_asked() const {
  std::shared_ptr<Named> next;
  uint64_t turn = 0;
  for (const std::shared_ptr<Named>& named : queue_) {
    if (!is_asked_for(named) || named->removed) continue;
    for (const WaitingEntry& entry : named->waiting) {
      const uint64_t of_tenant = waiting_of_tenant_.find(entry.waiter.tenant)->second.turn;
      if (next != nullptr && of_tenant >= turn) continue;
      next = named;
      turn = of_tenant;
    }
  }
  return next;
}

// The first that is still wanted; but behind some of operators' loads in a row, which may be
// without end, one that a request waits for.
std::shared_ptr<AdapterRegistry::Named> AdapterRegistry::locked_next() {
  while (!queue_.empty() && !locked_wants(*queue_.front())) {
    queue_.front()->queued = queue_.front()->checked = false;
    queue_.pop_front();
  }
  if (queue_.empty()) return nullptr;
  const bool is_operators = !is_asked_for(queue_.front());
  if (is_operators &&
      (operator_loads_ < kOperatorLoadsInRow || load_rate_.wait_ns(clock_.now_ns()) > 0)) {
    return queue_.front();
  }
  std::shared_ptr<Named> asked = locked_next_asked();
  return asked == nullptr ? queue_.front() : asked;
}

bool AdapterRegistry::locked_wants(const Named& named) const {
  if (named.is_candidate) return true;
  const bool is_missed = named.source.pinned && named.version == nullptr && !asleep_;
  return !named.removed && (!named.waiting.empty() || is_missed);
}

}  // namespace pelton::server
