// Workers that are endpoints of a Kubernetes service: its EndpointSlices, listed and then watched
// at the API server; what the watch cannot go on from (410) is listed anew. While the API server
// does not answer, what was found last stays. The token is read again for every request, as it
// rotates. Owned by the gateway; a thread of its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "gateway/config.h"
#include "gateway/endpoint_slice.h"
#include "net/http_client.h"

namespace pelton::gateway {

class KubernetesSource {
 public:
  struct Options {
    std::string api;                             // http://HOST:PORT or https
    std::string token_file;                      // empty: none
    std::shared_ptr<const net::TlsTrust> trust;  // null: what the system trusts
    std::string name_space;
    std::string service;
    SliceTarget target;
    std::chrono::milliseconds retry{1'000};
    std::function<void()> changed;  // found() has become another; on the source's threads
  };
  // `log` outlives it.
  KubernetesSource(Options options, base::Log& log);
  ~KubernetesSource();
  KubernetesSource(const KubernetesSource&) = delete;
  KubernetesSource& operator=(const KubernetesSource&) = delete;

  std::vector<WorkerConfig> found() const;

 private:
  using Slices = std::map<std::string, std::vector<WorkerConfig>>;  // by name

  void run();
  Result<void> list();
  Result<void> watch();
  Result<net::HttpCall> call(const std::string& query) const;
  // Whole lines of a watch; the client's thread.
  Result<void> take(std::string& lines);
  void put(Slices slices);
  bool wait(std::chrono::milliseconds time);  // false: it is over

  const Options options_;
  base::Log& log_;
  std::string version_;  // to watch from; empty: to be listed. The thread's and, amid a watch, the
                         // client's
  std::string trouble_;  // the thread's own
  mutable std::mutex mutex_;
  std::condition_variable woken_;
  bool stopping_ = false;  // guarded by mutex_, as the next
  Slices slices_;
  net::HttpClient client_;
  std::thread thread_;
};

}  // namespace pelton::gateway
