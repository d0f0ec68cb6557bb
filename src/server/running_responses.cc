#include "server/running_responses.h"

#include <utility>

namespace pelton::server {

void cancel_generation(const std::weak_ptr<net::Exchange>& exchange,
                       const std::weak_ptr<Generation>& generation) {
  const std::shared_ptr<net::Exchange> alive = exchange.lock();
  if (alive == nullptr) return;
  alive->post([generation] {
    if (const auto running = generation.lock()) running->cancel();
  });
}

void RunningResponses::add(const std::string& id, Running running) {
  const std::lock_guard lock(mutex_);
  entries_.emplace(id, Entry{.running = std::move(running), .waiters = {}});
}

std::vector<RunningResponses::Waiter> RunningResponses::take(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return {};
  std::vector<Waiter> waiters = std::move(found->second.waiters);
  entries_.erase(found);
  return waiters;
}

bool RunningResponses::cancel(const Key& key, Waiter waiter) {
  Running running;
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(std::string(key.id));
    if (found == entries_.end()) return false;
    Entry& entry = found->second;
    if (entry.running.owner != key.owner || entry.running.exchange.expired()) return false;
    if (waiter) entry.waiters.push_back(std::move(waiter));
    running = entry.running;
  }
  cancel_generation(running.exchange, running.generation);
  return true;
}

}  // namespace pelton::server
