// A pod as Kubernetes' API server describes it, as far as a launcher asks. Foreign bytes; what is
// missing or of another type is passed over. Pure.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"

namespace pelton::launch {

// On a pod: the order whose replica it is, "ORDINAL.TOKEN".
constexpr const char* kReplicaAnnotation = "pelton/replica";
// Which of a Deployment's pods go first when it shrinks.
constexpr const char* kDeletionCost = "controller.kubernetes.io/pod-deletion-cost";

struct KubernetesPod {
  std::string name;
  std::string version;  // of its description, as it was read
  std::string replica;  // as our annotation says
  bool has_cost = false;
  std::string address;         // once it has one
  bool is_running = false;     // its containers are; whether it serves, gateways find out
  bool is_ending = false;      // it has been deleted and drains
  bool is_of_a_group = false;  // not the first of its group: it is no replica by itself
  std::string failed;          // why it will not come to run; empty: it may
  bool is_hopeless = false;    // nor would another one
  int index = -1;              // its place in a StatefulSet or LeaderWorkerSet; -1: it has none
  std::string created;         // times compare as texts
  std::string progress;        // another text: its start has advanced

  friend bool operator==(const KubernetesPod&, const KubernetesPod&) = default;
};

// Errors: kInvalidArgument, it is no pod.
Result<KubernetesPod> parse_kubernetes_pod(const Json& object);

}  // namespace pelton::launch
