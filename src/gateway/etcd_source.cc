#include "gateway/etcd_source.h"

#include <set>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>

namespace pelton::gateway {
namespace {

constexpr std::chrono::seconds kDropTime{1};
constexpr size_t kRecordsMax = 8192;

}  // namespace

EtcdSource::EtcdSource(Options options, base::Log& log)
    : options_(std::move(options)),
      log_(log),
      client_(options_.etcd),
      thread_([this] { run(); }),
      dropper_({.name = "pelton-registry", .interval = kDropTime}, [this] { drop_gone(); }) {
  pthread_setname_np(thread_.native_handle(), "pelton-etcd");
}

EtcdSource::~EtcdSource() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_all();
  client_.cancel();
  thread_.join();
}

bool EtcdSource::wait(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return !woken_.wait_for(lock, time, [this] { return stopping_; });
}

std::vector<WorkerConfig> EtcdSource::found() const {
  std::lock_guard lock(mutex_);
  std::vector<WorkerConfig> workers;
  for (const auto& [key, record] : records_) {
    const cluster::Registration& one = record.worker;
    workers.push_back({.pool = one.pool, .host = one.host, .port = one.port, .zone = one.zone});
  }
  return workers;
}

void EtcdSource::run() {
  while (wait(std::chrono::milliseconds(0))) {
    const Result<void> followed = follow();
    if (followed.ok()) continue;
    const Error& error = followed.error();
    if (error.code == ErrorCode::kCancelled) return;
    if (error.message != trouble_ && error.code != ErrorCode::kNotFound) {
      log_.warning(error.message + "; workers that were found before stay");
    }
    trouble_ = error.message;
    if (!wait(options_.retry)) return;
  }
}

Result<void> EtcdSource::follow() {
  const std::string prefix = cluster::workers_prefix(options_.prefix);
  TRY_ASSIGN(const cluster::EtcdClient::Snapshot snapshot, client_.range(prefix));
  if (!trouble_.empty()) log_.info("etcd answers again");
  trouble_.clear();
  take(snapshot);
  return client_.watch(
      prefix, snapshot.revision + 1, options_.reread,
      [this](const std::vector<cluster::EtcdClient::Change>& changes) { take(changes); });
}

bool EtcdSource::locked_put(const cluster::EtcdClient::Entry& entry) {
  const auto known = records_.find(entry.key);
  const Result<cluster::Registration> worker = cluster::decode_registration(entry.value);
  if (!worker.ok()) {
    log_.warning(fmt::format("etcd: {}: {}", entry.key, worker.error().message));
    return false;
  }
  if (known == records_.end()) {
    if (records_.size() == kRecordsMax) return false;
    records_.emplace(entry.key, Record{.worker = *worker, .mod_revision = entry.mod_revision});
    return true;
  }
  known->second.is_listed = true;
  known->second.mod_revision = entry.mod_revision;
  return std::exchange(known->second.worker, *worker) != *worker;
}

void EtcdSource::take(const cluster::EtcdClient::Snapshot& snapshot) {
  bool is_other = false;
  {
    std::lock_guard lock(mutex_);
    for (auto& [key, record] : records_) record.is_listed = false;
    for (const auto& entry : snapshot.entries) is_other = locked_put(entry) || is_other;
  }
  if (is_other) options_.changed();
}

void EtcdSource::take(const std::vector<cluster::EtcdClient::Change>& changes) {
  bool is_other = false;
  {
    std::lock_guard lock(mutex_);
    for (const auto& change : changes) {
      const auto known = records_.find(change.entry.key);
      // Late, or said twice.
      const bool is_old =
          known != records_.end() && change.entry.mod_revision <= known->second.mod_revision;
      if (is_old) continue;
      if (!change.deleted) {
        is_other = locked_put(change.entry) || is_other;
      } else if (known != records_.end()) {
        known->second.is_listed = false;
        known->second.mod_revision = change.entry.mod_revision;
      }
    }
  }
  if (is_other) options_.changed();
}

void EtcdSource::drop_gone() {
  std::vector<std::pair<std::string, Record>> unlisted;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, record] : records_) {
      if (!record.is_listed) unlisted.emplace_back(key, record);
    }
  }
  bool is_other = false;
  for (const auto& [key, record] : unlisted) {
    if (!options_.is_gone(record.worker.host, record.worker.port)) continue;
    std::lock_guard lock(mutex_);
    const auto known = records_.find(key);
    if (known == records_.end() || known->second.is_listed) continue;
    records_.erase(known);
    is_other = true;
  }
  if (is_other) options_.changed();
}

}  // namespace pelton::gateway
