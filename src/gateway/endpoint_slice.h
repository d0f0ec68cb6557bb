// EndpointSlices of Kubernetes (discovery.k8s.io/v1) as workers. JSON of the API server's: foreign
// bytes; what is missing or of another type is passed over. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "gateway/config.h"

namespace pelton::gateway {

// Where a slice's workers are looked for: a pool, and one of the service's ports by its name or
// number.
struct SliceTarget {
  std::string pool;
  std::string port;
};

struct EndpointSlice {
  std::string name;
  // Those that are ready, and, marked as draining, those that end but still answer.
  std::vector<WorkerConfig> workers;
};

// Errors: kInvalidArgument, it is no slice.
Result<EndpointSlice> parse_endpoint_slice(const Json& object, const SliceTarget& target);

struct SliceList {
  std::string resource_version;
  std::string next;  // of the next page; empty: this was the last
  std::vector<EndpointSlice> slices;
};
Result<SliceList> parse_slice_list(std::string_view json, const SliceTarget& target);

// One line of a watch.
struct SliceEvent {
  enum class Kind { kPut, kDeleted, kBookmark, kExpired };
  Kind kind = Kind::kBookmark;
  std::string resource_version;  // but of kExpired: everything has to be listed anew (410)
  EndpointSlice slice;           // of kPut and kDeleted
};
// Errors: kInvalidArgument; kIo: the server says that the watch is over for another reason.
Result<SliceEvent> parse_slice_event(std::string_view line, const SliceTarget& target);

}  // namespace pelton::gateway
