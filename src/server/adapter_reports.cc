// What an AdapterRegistry says of its adapters.
#include <algorithm>
#include <functional>

#include "server/adapter_registry.h"

namespace pelton::server {

std::vector<AdapterRegistry::Info> AdapterRegistry::list() const {
  const std::lock_guard lock(shared_->mutex);
  std::vector<Info> all;
  all.reserve(names_.size());
  for (const auto& [name, named] : names_) {
    Info info{.name = name,
              .path = named->source.path,
              .created = named->created,
              .uses = named->uses,
              .waiting = static_cast<int>(named->waiting.size()),
              .pinned = named->source.pinned};
    if (named->version != nullptr) {
      info.digest = named->version->loaded.digest;
      info.rank = named->version->loaded.rank;
      info.bytes = named->version->loaded.bytes;
    }
    all.push_back(std::move(info));
  }
  return all;
}

std::vector<AdapterRegistry::Resident> AdapterRegistry::residents(size_t count_max) const {
  const std::lock_guard lock(shared_->mutex);
  std::vector<const Version*> latest;
  for (const auto& version : versions_) {
    if (!version->leaving) latest.push_back(version.get());
  }
  std::ranges::sort(latest, std::greater(), &Version::last_use);
  std::vector<Resident> all;
  for (const Version* const version : latest) {
    for (const Named* const named : version->names) {
      if (all.size() == count_max) return all;
      all.push_back({.name = named->source.name, .digest = version->loaded.digest});
    }
  }
  const auto add = [&](const std::shared_ptr<Named>& named) {
    const bool is_awaited = named != nullptr && !named->is_candidate && !named->waiting.empty();
    if (is_awaited && all.size() < count_max) all.push_back({.name = named->source.name});
  };
  add(loading_);
  for (const std::shared_ptr<Named>& named : queue_) add(named);
  return all;
}

std::vector<std::string> AdapterRegistry::names(size_t bytes_max) const {
  const std::lock_guard lock(shared_->mutex);
  std::vector<std::string> all;
  size_t bytes = 0;
  for (const auto& [name, named] : names_) {
    bytes += name.size();
    if (bytes > bytes_max) break;
    all.push_back(name);
  }
  return all;
}

std::map<std::string, int64_t, std::less<>> AdapterRegistry::requests() const {
  const std::lock_guard lock(shared_->mutex);
  return requests_;
}

AdapterRegistry::Stats AdapterRegistry::stats() const {
  const std::lock_guard lock(shared_->mutex);
  Stats stats = counted_;
  stats.resident = static_cast<int>(versions_.size());
  stats.in_use = static_cast<int>(
      std::ranges::count_if(versions_, [](const auto& version) { return version->uses > 0; }));
  stats.bytes = locked_bytes();
  stats.waiting = waiting_;
  stats.changed_unix_ms = shared_->changed_unix_ms;
  return stats;
}

}  // namespace pelton::server
