#include "gateway/kubernetes_source.h"

#include <utility>

#include <fmt/format.h>

#include "cluster/kubernetes_objects.h"
#include "net/url.h"

namespace pelton::gateway {

KubernetesSource::KubernetesSource(Options options, base::Log& log)
    : options_(std::move(options)),
      watch_({.api = options_.api,
              .name = options_.name_space + "/" + options_.service,
              .target = fmt::format(
                  "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices?labelSelector={}",
                  net::percent_encode(options_.name_space),
                  net::percent_encode("kubernetes.io/service-name=" + options_.service)),
              .list_begins = [this] { listed_.clear(); },
              .listed_one = [this](const Json& object) { return take(listed_, object); },
              .listed = [this] { put(std::exchange(listed_, {})); },
              .changed = [this](auto kind, const Json& object) { return change(kind, object); }},
             log) {}

std::vector<WorkerConfig> KubernetesSource::found() const {
  std::vector<WorkerConfig> all;
  for (const auto& [name, workers] : slices()) {
    all.insert(all.end(), workers.begin(), workers.end());
  }
  return all;
}

Result<void> KubernetesSource::take(Slices& slices, const Json& object) const {
  TRY_ASSIGN(EndpointSlice slice, parse_endpoint_slice(object, options_.target));
  slices[slice.name] = std::move(slice.workers);
  return {};
}

Result<void> KubernetesSource::change(cluster::KubernetesWatch::Options::Kind kind,
                                      const Json& object) {
  Slices slices = this->slices();
  if (kind == cluster::KubernetesWatch::Options::Kind::kDeleted) {
    slices.erase(cluster::kubernetes_name(object));
  } else {
    TRY(take(slices, object));
  }
  put(std::move(slices));
  return {};
}

KubernetesSource::Slices KubernetesSource::slices() const {
  std::lock_guard lock(mutex_);
  return slices_;
}

void KubernetesSource::put(Slices slices) {
  {
    std::lock_guard lock(mutex_);
    if (slices_ == slices) return;
    slices_ = std::move(slices);
  }
  options_.changed();
}

}  // namespace pelton::gateway
