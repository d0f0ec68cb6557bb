// The lead as a Lease of Kubernetes (coordination.k8s.io/v1), taken, renewed and given up as
// Kubernetes' own controllers do: written only over the version that was read, so that of two
// writers one is refused; held by another until nobody has changed it for its duration by the clock
// of whoever looks, as machines' clocks are not compared. leaseTransitions, which rises each time
// it is taken, is the epoch.
//
//   leases/NAME                who, until when, the epoch
//   configmaps/NAME-HASH       what it remembers of a pool, with the epoch that wrote it: never
//                              written over what a later epoch wrote
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "cluster/kubernetes_api.h"
#include "launch/lead_store.h"

namespace pelton::launch {

class KubernetesLeadStore final : public LeadStore {
 public:
  struct Options {
    cluster::KubernetesApi::Options api;
    std::string name_space;
    std::string name;
    std::chrono::seconds lease{6};
  };
  // `clock` outlives it.
  KubernetesLeadStore(Options options, const base::Clock& clock);

  Result<std::optional<Term>> enter(const std::string& name) override;
  Result<std::chrono::nanoseconds> renew() override;
  Result<void> give_up() override;
  std::chrono::milliseconds look_again() const override;
  Result<std::vector<Entry>> read() override;
  Result<bool> write(const Entry& entry) override;

 private:
  using Answer = cluster::KubernetesApi::Answer;

  // The Lease as it is; none: there is none.
  struct Lease {
    std::string version;
    std::string holder;
    std::chrono::seconds duration{0};
    int64_t transitions = 0;
  };
  Result<std::optional<Lease>> look();
  bool is_free(const Lease& lease);
  std::string lease_body(const std::string& version, bool is_taken) const;
  Result<std::optional<Term>> take(const std::optional<Lease>& seen);
  // An answer that has the object: its version is kept.
  Result<Lease> lease_of(const Answer& answer) const;
  std::string leases() const;
  std::string maps() const;
  std::string map_of(const std::string& pool) const;
  // What stands there now, of which the version is kept. None: there is nothing.
  struct Map {
    std::string version;
    uint64_t epoch = 0;
  };
  Result<std::optional<Map>> look_at(const std::string& pool);

  const Options options_;
  const base::Clock& clock_;
  cluster::KubernetesApi api_;
  cluster::KubernetesApi writing_api_;  // of the thread that writes
  std::string holder_;
  std::string version_;  // of the Lease, as it was written or read last
  uint64_t epoch_ = 0;   // 0: it does not lead
  // Another one's, as it is seen: since when nobody has changed it.
  std::string seen_version_;
  int64_t seen_ns_ = 0;
  std::map<std::string, Map> written_;  // by pool; the writing thread's
};

}  // namespace pelton::launch
