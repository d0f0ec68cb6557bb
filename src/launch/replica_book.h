// Which orders are in force in a pool whose replicas a Kubernetes workload makes by number, and
// which of its pods is whose. The book is kept in the cluster, so that the next launcher finds it;
// a workload makes as many pods as there are orders in it, and each pod is marked with its order.
// Pure: what is to be done is said, not done.
//
//   {"newest":9437188,"replicas":{"0":{"token":9437185},"1":{"token":9437188,"stops":true}}}
//
// Example: orders 0 and 1 have the pods a and b; 0 stops. The plan: mark a as the one to go (a
// Deployment), one pod. Of a StatefulSet the last pod goes, so 1 gets a, and 0 goes with b.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "launch/kubernetes_pod.h"
#include "launch/launcher.h"

namespace pelton::launch {

struct ReplicaBook {
  struct Entry {
    uint64_t token = 0;
    bool stops = false;

    friend bool operator==(const Entry&, const Entry&) = default;
  };
  uint64_t newest = 0;  // token of all that were ever written there
  std::map<int, Entry> replicas;

  friend bool operator==(const ReplicaBook&, const ReplicaBook&) = default;
};
std::string book_text(const ReplicaBook& book);
// Errors: kInvalidArgument.
Result<ReplicaBook> parse_book(std::string_view text);

// "ORDINAL.TOKEN", what a pod is marked with.
std::string replica_mark(int ordinal, uint64_t token);

// Which pod a workload takes when it shrinks.
enum class Shrinks { kByCost, kFromTheEnd };

struct PodPlan {
  ReplicaBook book;  // as it is to be
  int pods = 0;      // that there are to be
  struct Mark {
    std::string pod;
    std::string replica;
    bool goes = false;  // the next one to go

    friend bool operator==(const Mark&, const Mark&) = default;
  };
  std::vector<Mark> marks;                 // pods that are to be marked so
  std::map<int, const KubernetesPod*> of;  // by ordinal: the pod, into the pods that were given
  struct Ended {
    uint64_t token = 0;
    std::string how;
    bool is_hopeless = false;
  };
  std::map<int, Ended> ended;  // by ordinal: what was in the book and is not any more
};

// `had`: orders (ordinal, token) that are known to have had a pod; what gets one is added.
PodPlan plan_pods(const ReplicaBook& book, const std::map<std::string, KubernetesPod>& pods,
                  Shrinks shrinks, std::set<std::pair<int, uint64_t>>& had);

// Of a workload whose pods nobody has kept a book of: each is a replica, and so are those that are
// still to come, up to the number that it is to have.
ReplicaBook adopted_book(const std::map<std::string, KubernetesPod>& pods, uint64_t token,
                         int replicas);

}  // namespace pelton::launch
