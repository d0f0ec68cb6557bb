#include "gateway/id_homes.h"

#include <utility>

namespace pelton::gateway {

void IdHomes::note(const std::string& id, Home home) {
  std::lock_guard lock(mutex_);
  const bool is_new = homes_.insert_or_assign(id, std::move(home)).second;
  if (!is_new) return;
  order_.push_back(id);
  if (order_.size() <= ids_max_) return;
  homes_.erase(order_.front());
  order_.pop_front();
}

std::optional<IdHomes::Home> IdHomes::find(const std::string& id) const {
  std::lock_guard lock(mutex_);
  const auto found = homes_.find(id);
  return found == homes_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace pelton::gateway
