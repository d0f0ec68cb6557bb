// What Kubernetes' API server answers to a list and says in a watch: the envelope; what its objects
// are is the reader's business. Foreign bytes in, values out; pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace pelton::cluster {

struct KubernetesList {
  std::string resource_version;
  std::string next;  // of the next page; empty: this was the last
  std::vector<Json> items;
};
// Errors: kInvalidArgument, it is no list.
Result<KubernetesList> parse_kubernetes_list(std::string_view json);

// One line of a watch.
struct KubernetesEvent {
  enum class Kind { kPut, kDeleted, kBookmark, kExpired };
  Kind kind = Kind::kBookmark;
  std::string resource_version;  // but of kExpired: everything has to be listed anew (410)
  Json object;                   // of kPut and kDeleted
};
// Errors: kInvalidArgument; kIo: the server says that the watch is over for another reason.
Result<KubernetesEvent> parse_kubernetes_event(std::string_view line);

// Of an object's metadata; empty where it has none.
std::string kubernetes_name(const Json& object);
std::string kubernetes_version(const Json& object);
// What the server says of an answer that is no success: its status' message, or nothing.
std::string kubernetes_message(std::string_view body);

}  // namespace pelton::cluster
