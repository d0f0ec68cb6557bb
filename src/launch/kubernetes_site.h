// Replicas as pods of a Kubernetes workload (Deployment, StatefulSet, LeaderWorkerSet), whose
// number is written through its scale subresource. Which orders are in force stands in a Lease
// beside it, and each pod is marked with its order, so that the next launcher finds what this one
// has started. Book and scale are written only over what was read (resourceVersion), and the book
// refuses whoever's epoch is older than the newest in it.
//
// What may be asked of the API server: get and patch of the workload's scale; get, create, patch of
// leases; list, watch, patch of pods. One thread, besides those of the watches.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "cluster/kubernetes_api.h"
#include "cluster/kubernetes_watch.h"
#include "launch/kubernetes_pod.h"
#include "launch/replica_book.h"
#include "launch/replica_site.h"

namespace pelton::launch {

class KubernetesSite final : public ReplicaSite {
 public:
  enum class Kind { kDeployment, kStatefulSet, kLeaderWorkerSet };
  struct Workload {
    std::string pool;
    std::string name_space;
    Kind kind = Kind::kDeployment;
    std::string name;
    int port = 0;  // of its pods, for gateways
  };
  struct Options {
    cluster::KubernetesApi::Options api;
    std::vector<Workload> workloads;
    uint64_t epoch = 0;  // of whoever leads; 0: nobody else is there
  };
  // `clock` and `log` outlive it.
  KubernetesSite(Options options, const base::Clock& clock, base::Log& log);
  ~KubernetesSite() override;
  KubernetesSite(const KubernetesSite&) = delete;
  KubernetesSite& operator=(const KubernetesSite&) = delete;

  bool knows(const std::string& pool) const override { return places_.contains(pool); }
  Result<void> start(const ReplicaOrder& order) override;
  Result<void> stop(const ReplicaOrder& order, std::chrono::milliseconds grace) override;
  Result<std::vector<LaunchedReplica>> list() override;
  uint64_t newest_token() const override { return newest_token_; }
  void set_on_change(std::function<void()> changed) override { changed_ = std::move(changed); }

 private:
  using Pods = std::map<std::string, KubernetesPod>;  // by name
  struct Scale {
    std::string version;
    std::string selector;
    int replicas = 0;
  };
  struct WrittenBook {
    std::string version;  // of the lease; empty: there is none
    ReplicaBook book;
  };
  struct Replica {  // what is remembered beside the book
    LaunchedReplica seen;
    std::string progress;
  };
  struct Place {
    Workload workload;
    std::string scale_target;
    std::string lease_target;
    std::string pods_target;
    // Pods that were marked, until it is seen: how, and the version that has them since.
    struct Marked {
      std::string replica;
      std::string version;
    };
    std::map<std::string, Marked> marked;
    std::set<std::pair<int, uint64_t>> had;  // orders that had a pod
    std::map<int, Replica> replicas;         // by ordinal
    bool is_known = false;                   // has been seen once
    std::string trouble;
    std::mutex mutex;
    Pods pods;    // guarded by mutex, as the next two
    Pods listed;  // of the list that is being read
    bool is_listed = false;
    std::unique_ptr<cluster::KubernetesWatch> watch;  // the last: it calls the others
  };
  using Change = std::function<Result<void>(ReplicaBook& book)>;

  Result<void> reconcile(Place& place, const Change& change);
  Result<void> reconcile_once(Place& place, const Change& change);
  Result<Scale> read_scale(const Place& place);
  Result<WrittenBook> read_book(const Place& place, const Pods& pods, int replicas);
  Result<void> write_book(const Place& place, const WrittenBook& before, const ReplicaBook& book);
  Result<void> write_scale(const Place& place, const Scale& before, int replicas);
  Result<void> mark(Place& place, const PodPlan::Mark& mark, const std::string& version);
  Result<Pods> pods_of(Place& place, const Scale& scale);
  void watch(Place& place, const std::string& selector);
  Result<void> take(Pods& pods, const Json& object) const;
  void show(Place& place, const PodPlan& plan);
  static LaunchedReplica shown(const Place& place, const ReplicaOrder& order,
                               const ReplicaBook::Entry& entry, const KubernetesPod* pod);
  Result<cluster::KubernetesApi::Answer> checked(Result<cluster::KubernetesApi::Answer> answer);

  const Options options_;
  const base::Clock& clock_;
  base::Log& log_;
  cluster::KubernetesApi api_;
  uint64_t newest_token_ = 0;
  int64_t not_before_ns_ = 0;  // the server asks to be left alone until then
  std::function<void()> changed_ = [] {};
  std::map<std::string, std::unique_ptr<Place>> places_;  // by pool
};

}  // namespace pelton::launch
