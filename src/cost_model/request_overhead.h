// What a request costs around the engine: from a client's sending to the step that takes it up, and
// from that step's end to the client's seeing the token. Measured where client and server share a
// clock. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cost_model/calibration.h"

namespace pelton::cost_model {

// As a client saw it, on the clock of the step log.
struct MeasuredRequest {
  int64_t start_ns = 0;
  int64_t first_token_ns = 0;
};

// Of those whose prompt was a step of its own after a pause, so that nothing made them wait.
// kInvalidArgument: there are fewer than `kRequestsLeast`.
inline constexpr int kRequestsLeast = 4;
Result<RequestOverhead> request_overhead(const std::vector<MeasuredStep>& steps,
                                         std::vector<MeasuredRequest> requests);

Json overhead_json(const RequestOverhead& overhead);
// Nothing where `json` has no "overhead". kBadConfig.
Result<RequestOverhead> read_overhead(const Json& json, const std::string& origin);

}  // namespace pelton::cost_model
