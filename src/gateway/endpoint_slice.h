// EndpointSlices of Kubernetes (discovery.k8s.io/v1) as workers. JSON of the API server's: foreign
// bytes; what is missing or of another type is passed over. Pure functions.
#pragma once

#include <string>
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

}  // namespace pelton::gateway
