#include "server/running_answers.h"

#include <utility>

#include "server/generation.h"

namespace pelton::server {

void RunningAnswers::add(const std::string& id, Entry entry) {
  const std::lock_guard lock(mutex_);
  entries_[id] = std::move(entry);
}

void RunningAnswers::remove(const std::string& id, const Generation& generation) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  // By identity: its owner may be going already, so that the pointer can no longer be locked.
  const bool is_it = !generation.weak_from_this().owner_before(found->second.generation) &&
                     !found->second.generation.owner_before(generation.weak_from_this());
  if (is_it) entries_.erase(found);
}

bool RunningAnswers::end_reasoning(const std::string& id, const std::string& tenant) const {
  std::shared_ptr<net::Exchange> exchange;
  std::weak_ptr<Generation> generation;
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(id);
    if (found == entries_.end() || found->second.tenant != tenant) return false;
    exchange = found->second.exchange.lock();
    generation = found->second.generation;
  }
  if (exchange == nullptr) return false;
  exchange->post([generation] {
    if (const auto running = generation.lock()) running->end_reasoning();
  });
  return true;
}

}  // namespace pelton::server
