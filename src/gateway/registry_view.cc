#include "gateway/registry_view.h"

#include <utility>

namespace pelton::gateway {

void RegistryView::put(const cluster::EtcdClient::Entry& entry, Taken& taken) {
  const Result<cluster::Registration> worker = cluster::decode_registration(entry.value);
  if (!worker.ok()) return taken.refused.push_back(entry.key + ": " + worker.error().message);
  if (entry.key != cluster::worker_key(prefix_, worker->name)) {
    return taken.refused.push_back(entry.key + ": it is another one's key than '" + worker->name +
                                   "'");
  }
  const auto known = records_.find(entry.key);
  if (known == records_.end()) {
    if (records_.size() == kRecordsMax) {
      if (passed_over_++ == 0) first_passed_over_ = entry.key;
      return;
    }
    records_.emplace(entry.key, Record{.worker = *worker, .mod_revision = entry.mod_revision});
    taken.is_other = true;
    return;
  }
  known->second.is_listed = true;
  known->second.mod_revision = entry.mod_revision;
  if (std::exchange(known->second.worker, *worker) != *worker) taken.is_other = true;
}

// In one line, however many there are, and once until there is room again.
void RegistryView::say_passed_over(Taken& taken) {
  const size_t count = std::exchange(passed_over_, 0);
  if (count == 0 || std::exchange(full_said_, true)) return;
  taken.refused.push_back(first_passed_over_ + ": it and " + std::to_string(count - 1) +
                          " further records are passed over: a gateway knows " +
                          std::to_string(kRecordsMax) + " workers of a registry");
}

RegistryView::Taken RegistryView::take(const cluster::EtcdClient::Snapshot& snapshot) {
  Taken taken;
  for (auto& [key, record] : records_) record.is_listed = false;
  for (const cluster::EtcdClient::Entry& entry : snapshot.entries) put(entry, taken);
  say_passed_over(taken);
  return taken;
}

RegistryView::Taken RegistryView::take(const std::vector<cluster::EtcdClient::Change>& changes) {
  Taken taken;
  for (const cluster::EtcdClient::Change& change : changes) {
    const auto known = records_.find(change.entry.key);
    // Late, or said twice.
    const bool is_old =
        known != records_.end() && change.entry.mod_revision <= known->second.mod_revision;
    if (is_old) continue;
    if (!change.deleted) {
      put(change.entry, taken);
    } else if (known != records_.end()) {
      known->second.is_listed = false;
      known->second.mod_revision = change.entry.mod_revision;
    }
  }
  say_passed_over(taken);
  return taken;
}

std::vector<cluster::Registration> RegistryView::workers() const {
  std::vector<cluster::Registration> workers;
  for (const auto& [key, record] : records_) workers.push_back(record.worker);
  return workers;
}

std::vector<std::pair<std::string, cluster::Registration>> RegistryView::unlisted() const {
  std::vector<std::pair<std::string, cluster::Registration>> gone;
  for (const auto& [key, record] : records_) {
    if (!record.is_listed) gone.emplace_back(key, record.worker);
  }
  return gone;
}

bool RegistryView::drop(const std::string& key) {
  const auto known = records_.find(key);
  if (known == records_.end() || known->second.is_listed) return false;
  records_.erase(known);
  full_said_ = false;
  return true;
}

}  // namespace pelton::gateway
