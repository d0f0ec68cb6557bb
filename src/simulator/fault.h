// What goes wrong in a simulated fleet, and when: values, from a file or made by a test.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace pelton::simulator {

struct Fault {
  enum class Kind {
    kCrash,      // all it computes is lost; it comes back empty at until_s
    kSlow,       // its steps take `factor` times as long until until_s
    kStepError,  // `count` steps fail
  };
  Kind kind = Kind::kCrash;
  int replica = 0;
  double at_s = 0;
  double until_s = 0;
  double factor = 1;
  int count = 1;
};

// [{"kind": "crash", "replica": 3, "at_s": 10, "until_s": 40}, {"kind": "slow", ..., "factor": 3},
//  {"kind": "step_error", ..., "count": 2}]. Errors: kInvalidArgument.
Result<std::vector<Fault>> parse_faults(const Json& json, int replica_count,
                                        const std::string& origin);

}  // namespace pelton::simulator
