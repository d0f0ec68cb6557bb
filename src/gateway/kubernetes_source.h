// Workers that are endpoints of a Kubernetes service: its EndpointSlices, listed and watched
// (cluster/kubernetes_watch.h). Owned by the gateway; any thread may ask.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/log.h"
#include "cluster/kubernetes_watch.h"
#include "gateway/config.h"
#include "gateway/endpoint_slice.h"

namespace pelton::gateway {

class KubernetesSource {
 public:
  struct Options {
    cluster::KubernetesApi::Options api;
    std::string name_space;
    std::string service;
    SliceTarget target;
    std::function<void()> changed;  // found() has become another; on the source's threads
  };
  // `log` outlives it.
  KubernetesSource(Options options, base::Log& log);
  KubernetesSource(const KubernetesSource&) = delete;
  KubernetesSource& operator=(const KubernetesSource&) = delete;

  std::vector<WorkerConfig> found() const;

 private:
  using Slices = std::map<std::string, std::vector<WorkerConfig>>;  // by name

  Result<void> take(Slices& slices, const Json& object) const;
  Result<void> change(cluster::KubernetesWatch::Options::Kind kind, const Json& object);
  void put(Slices slices);
  Slices slices() const;

  const Options options_;
  Slices listed_;  // of the list that is being read; the watch's thread
  mutable std::mutex mutex_;
  Slices slices_;                   // guarded by mutex_
  cluster::KubernetesWatch watch_;  // the last: it calls the others
};

}  // namespace pelton::gateway
