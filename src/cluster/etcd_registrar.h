// Keeps a worker's record in etcd for as long as the worker runs: under a lease of ten seconds that
// is renewed at half of what is left of it, and anew when the lease, or all of etcd's data, is
// gone. While etcd does not answer it tries again; nothing else depends on that. A name belongs to
// one process: where another one keeps it beyond a lease's time, `taken` is called, once. Owned by
// the worker; a thread of its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/log.h"
#include "cluster/etcd_client.h"
#include "cluster/registration.h"

namespace pelton::cluster {

class EtcdRegistrar {
 public:
  struct Options {
    EtcdClient::Options etcd;
    std::string prefix;
    Registration registration;
    std::chrono::seconds lease{10};
    std::chrono::milliseconds retry{1'000};
    std::function<void()> taken;
  };
  // `log` outlives it.
  EtcdRegistrar(Options options, base::Log& log);
  ~EtcdRegistrar();  // takes the record out, if etcd answers at once
  EtcdRegistrar(const EtcdRegistrar&) = delete;
  EtcdRegistrar& operator=(const EtcdRegistrar&) = delete;

 private:
  void run();
  // The record stands; or why not.
  Result<void> enter();
  bool wait(std::chrono::milliseconds time);  // false: it is over
  void note_trouble(const std::string& trouble);

  const Options options_;
  base::Log& log_;
  EtcdClient client_;
  int64_t lease_ = 0;  // 0: none; the thread's own, as the next
  std::string trouble_;
  std::chrono::steady_clock::time_point refused_since_{};
  bool is_logged_ = false;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace pelton::cluster
