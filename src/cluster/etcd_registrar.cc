#include "cluster/etcd_registrar.h"

#include <algorithm>
#include <random>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>

namespace pelton::cluster {
namespace {

// Of all workers of a fleet that come back at once.
std::chrono::milliseconds jitter(std::chrono::milliseconds most) {
  std::random_device random;
  return std::chrono::milliseconds(random() % (most.count() + 1));
}

}  // namespace

EtcdRegistrar::EtcdRegistrar(Options options, base::Log& log)
    : options_(std::move(options)), log_(log), client_(options_.etcd), thread_([this] { run(); }) {
  pthread_setname_np(thread_.native_handle(), "pelton-etcd");
}

EtcdRegistrar::~EtcdRegistrar() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_all();
  client_.cancel();
  thread_.join();
  if (lease_ == 0) return;
  EtcdClient::Options quick = options_.etcd;
  quick.call_time_max = std::chrono::milliseconds(500);
  const Result<void> revoked = EtcdClient(quick).revoke(lease_);
  if (!revoked.ok()) log_.info("the record in etcd ends with its lease");
}

bool EtcdRegistrar::wait(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return !woken_.wait_for(lock, time, [this] { return stopping_; });
}

void EtcdRegistrar::note_trouble(const std::string& trouble) {
  if (trouble == trouble_) return;
  if (!trouble.empty()) log_.warning("not registered: " + trouble);
  if (trouble.empty())
    log_.info(fmt::format("registered in etcd as {}", options_.registration.name));
  trouble_ = trouble;
}

Result<void> EtcdRegistrar::enter() {
  const Registration& self = options_.registration;
  if (lease_ == 0) {
    TRY_ASSIGN(lease_, client_.grant(options_.lease));
  }
  TRY_ASSIGN(const bool is_ours,
             client_.create(name_key(options_.prefix, self.name), self.incarnation, lease_));
  if (!is_ours) {
    // Nothing lies under it, and it would end meanwhile.
    const Result<void> revoked = client_.revoke(std::exchange(lease_, 0));
    if (!revoked.ok()) log_.debug(revoked.error().message);
    return Error{
        ErrorCode::kUnavailable,
        fmt::format("another worker is called '{}'; give --fleet-name another one", self.name),
        "fleet-name"};
  }
  return client_.put(worker_key(options_.prefix, self.name), encode(self), lease_);
}

void EtcdRegistrar::run() {
  bool is_entered = false;
  std::chrono::milliseconds pause{0};
  trouble_ = "not yet";
  while (wait(pause)) {
    pause = options_.retry + jitter(options_.retry);
    if (!is_entered) {
      const Result<void> entered = enter();
      is_entered = entered.ok();
      note_trouble(entered.ok() ? "" : entered.error().message);
      if (entered.ok()) {
        refused_since_ = {};
        pause = options_.lease / 2;
        continue;
      }
      if (entered.error().code == ErrorCode::kNotFound) lease_ = 0;  // gone meanwhile
      if (entered.error().field != "fleet-name") continue;
      const auto now = std::chrono::steady_clock::now();
      if (refused_since_ == std::chrono::steady_clock::time_point{}) refused_since_ = now;
      // One that was killed a moment ago has the name until its lease is over.
      if (now - refused_since_ < options_.lease * 3 / 2 || is_logged_) continue;
      is_logged_ = true;
      if (options_.taken) options_.taken();
      continue;
    }
    const Result<std::chrono::seconds> left = client_.renew(lease_);
    if (left.ok()) {
      note_trouble("");
      pause = std::chrono::duration_cast<std::chrono::milliseconds>(*left) / 2;
      continue;
    }
    note_trouble(left.error().message);
    if (left.error().code != ErrorCode::kNotFound) continue;
    lease_ = 0;
    is_entered = false;
    pause = jitter(options_.lease / 2);
  }
}

}  // namespace pelton::cluster
