// Workers that register themselves in etcd (cluster/etcd_registrar.h): a watch over the fleet's
// records, on a thread of its own, read anew every 30 s. etcd finds workers; it never takes one out
// that answers (FT-45): one whose record is gone stays until `is_gone` says that nobody answers
// there. So an outage, a lost lease, a compaction or a restored backup changes nothing but what is
// found. Owned by the gateway; any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/periodic_thread.h"
#include "cluster/etcd_client.h"
#include "gateway/config.h"
#include "gateway/registry_view.h"

namespace pelton::gateway {

class EtcdSource {
 public:
  struct Options {
    cluster::EtcdClient::Options etcd;
    std::string prefix;
    std::chrono::seconds reread{30};
    std::chrono::milliseconds retry{1'000};
    // Nobody answers there. Not called under a lock of the source's.
    std::function<bool(const std::string& host, int port)> is_gone;
    std::function<void()> changed;  // found() has become another; on one of the source's threads
  };
  // `log` outlives it.
  EtcdSource(Options options, base::Log& log);
  ~EtcdSource();
  EtcdSource(const EtcdSource&) = delete;
  EtcdSource& operator=(const EtcdSource&) = delete;

  std::vector<WorkerConfig> found() const;

 private:
  void run();
  Result<void> follow();
  bool wait(std::chrono::milliseconds time);  // false: it is over
  template <typename News>
  void take(const News& news);
  void drop_gone();

  const Options options_;
  base::Log& log_;
  cluster::EtcdClient client_;
  std::string trouble_;  // the thread's own
  mutable std::mutex mutex_;
  std::condition_variable woken_;
  bool stopping_ = false;  // guarded by mutex_, as the next
  RegistryView view_;
  std::thread thread_;
  base::PeriodicThread dropper_;
};

}  // namespace pelton::gateway
