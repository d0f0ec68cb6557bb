#include "gateway/etcd_source.h"

#include <utility>

#include <pthread.h>

namespace pelton::gateway {
namespace {

constexpr std::chrono::seconds kDropTime{1};

}  // namespace

EtcdSource::EtcdSource(Options options, base::Log& log)
    : options_(std::move(options)),
      log_(log),
      client_(options_.etcd),
      view_(options_.prefix),
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
  for (const cluster::Registration& one : view_.workers()) {
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

template <typename News>
void EtcdSource::take(const News& news) {
  RegistryView::Taken taken;
  {
    std::lock_guard lock(mutex_);
    taken = view_.take(news);
  }
  for (const std::string& one : taken.refused) log_.warning("etcd: " + one);
  if (taken.is_other) options_.changed();
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

void EtcdSource::drop_gone() {
  std::vector<std::pair<std::string, cluster::Registration>> unlisted;
  {
    std::lock_guard lock(mutex_);
    unlisted = view_.unlisted();
  }
  bool is_other = false;
  for (const auto& [key, worker] : unlisted) {
    if (!options_.is_gone(worker.host, worker.port)) continue;
    std::lock_guard lock(mutex_);
    is_other = view_.drop(key) || is_other;
  }
  if (is_other) options_.changed();
}

}  // namespace pelton::gateway
