#include "launch/kubernetes_pod.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "cluster/kubernetes_objects.h"
#include "net/ip_address.h"

namespace pelton::launch {
namespace {

constexpr size_t kReasonBytesMax = 200;
constexpr const char* kGroupIndex = "leaderworkerset.sigs.k8s.io/group-index";
constexpr const char* kPlaceInGroup = "leaderworkerset.sigs.k8s.io/worker-index";
constexpr const char* kPodIndex = "apps.kubernetes.io/pod-index";

// Reasons for which a container waits and will wait on, and whether another pod would, too.
struct Waiting {
  std::string_view reason;
  bool is_hopeless;
};
constexpr std::array<Waiting, 7> kWaitsForEver = {{{"ImagePullBackOff", false},
                                                   {"ErrImageNeverPull", true},
                                                   {"InvalidImageName", true},
                                                   {"CreateContainerConfigError", true},
                                                   {"CreateContainerError", false},
                                                   {"RunContainerError", false},
                                                   {"CrashLoopBackOff", false}}};

const Json* object_in(const Json& json, std::string_view key) {
  const Json* found = json.find(key);
  return found != nullptr && found->is_object() ? found : nullptr;
}

std::string text_in(const Json* json, std::string_view key) {
  return json == nullptr ? "" : json->string(key).value_or("");
}

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// As its labels say; of older servers' StatefulSets the name does: "box-3".
int index_of(const Json& metadata, const Json* labels) {
  for (const char* label : {kGroupIndex, kPodIndex}) {
    if (const auto index = number(text_in(labels, label))) return *index;
  }
  const Json* owners = metadata.find("ownerReferences");
  if (owners == nullptr || !owners->is_array()) return -1;
  const bool is_of_set = std::ranges::any_of(owners->as_array(), [](const Json& one) {
    return one.is_object() && one.string("kind") == "StatefulSet";
  });
  const std::string name = metadata.string("name").value_or("");
  return is_of_set ? number(name.substr(name.rfind('-') + 1)).value_or(-1) : -1;
}

std::string shortened(std::string text) {
  if (text.size() > kReasonBytesMax) text.resize(kReasonBytesMax);
  return text;
}

void read_waiting(const Json& container, KubernetesPod& pod) {
  const Json* state = object_in(container, "state");
  const Json* waiting = state == nullptr ? nullptr : object_in(*state, "waiting");
  const std::string reason = text_in(waiting, "reason");
  const auto known = std::ranges::find(kWaitsForEver, reason, &Waiting::reason);
  if (known == kWaitsForEver.end()) return;
  pod.is_hopeless = pod.is_hopeless || known->is_hopeless;
  const Json* last = object_in(container, "lastState");
  const Json* ended = last == nullptr ? nullptr : object_in(*last, "terminated");
  const int64_t code = ended == nullptr ? -1 : ended->integer("exitCode").value_or(-1);
  if (reason == "CrashLoopBackOff" && code >= 0) {
    // As `pelton serve` ends: a wrong command line, a wrong file, no such model, too little memory.
    pod.is_hopeless = pod.is_hopeless || (code >= 2 && code <= 5);
    pod.failed = fmt::format("pod {}: ended with exit code {}", pod.name, code);
    return;
  }
  const std::string message = text_in(waiting, "message");
  pod.failed = shortened(
      fmt::format("pod {}: {}{}{}", pod.name, reason, message.empty() ? "" : ": ", message));
}

void read_containers(const Json& status, std::string_view key, KubernetesPod& pod) {
  const Json* containers = status.find(key);
  if (containers == nullptr || !containers->is_array()) return;
  for (const Json& one : containers->as_array()) {
    if (!one.is_object()) continue;
    read_waiting(one, pod);
    const Json* state = object_in(one, "state");
    pod.progress += fmt::format(
        " {}{}", one.integer("restartCount").value_or(0),
        state == nullptr || state->as_object().empty() ? "" : state->as_object().front().key);
  }
}

void read_conditions(const Json& status, KubernetesPod& pod) {
  const Json* conditions = status.find("conditions");
  if (conditions == nullptr || !conditions->is_array()) return;
  for (const Json& one : conditions->as_array()) {
    if (one.is_object() && one.string("status") == "True") {
      pod.progress += " " + one.string("type").value_or("");
    }
  }
}

}  // namespace

Result<KubernetesPod> parse_kubernetes_pod(const Json& object) {
  const Json* metadata = object.is_object() ? object_in(object, "metadata") : nullptr;
  KubernetesPod pod{.name = text_in(metadata, "name")};
  if (pod.name.empty()) return Error{ErrorCode::kInvalidArgument, "a pod has no name", {}};
  const Json* annotations = object_in(*metadata, "annotations");
  pod.replica = text_in(annotations, kReplicaAnnotation);
  pod.has_cost = annotations != nullptr && annotations->find(kDeletionCost) != nullptr;
  pod.version = cluster::kubernetes_version(object);
  pod.created = metadata->string("creationTimestamp").value_or("");
  pod.is_ending = metadata->string("deletionTimestamp").has_value();
  const Json* labels = object_in(*metadata, "labels");
  pod.index = index_of(*metadata, labels);
  pod.is_of_a_group = number(text_in(labels, kPlaceInGroup)).value_or(0) > 0;
  const Json* status = object_in(object, "status");
  if (status == nullptr) return pod;
  const std::string phase = text_in(status, "phase");
  pod.is_running = phase == "Running";
  if (std::string address = text_in(status, "podIP"); net::is_ip_address(address)) {
    pod.address = std::move(address);
  }
  pod.progress = phase + " " + pod.address;
  read_containers(*status, "initContainerStatuses", pod);
  read_containers(*status, "containerStatuses", pod);
  read_conditions(*status, pod);
  if (phase == "Failed") {
    const std::string reason = text_in(status, "reason");
    pod.failed = shortened(
        fmt::format("pod {} has failed{}{}", pod.name, reason.empty() ? "" : ": ", reason));
  }
  return pod;
}

}  // namespace pelton::launch
