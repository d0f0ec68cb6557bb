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
    // Of a fleet that is scaled, whatever replica it is:
    kSlowStart,   // starts that are ordered until until_s take `factor` times as long
    kStartError,  // the next `count` starts fail when they should be ready
    kStockOut,    // until until_s nothing can be ordered
  };
  Kind kind = Kind::kCrash;
  bool is_of_scaling() const { return kind >= Kind::kSlowStart; }
  int replica = 0;
  double at_s = 0;
  double until_s = 0;
  double factor = 1;
  int count = 1;
};

// [{"kind": "crash", "replica": 3, "at_s": 10, "until_s": 40}, {"kind": "slow", ..., "factor": 3},
//  {"kind": "step_error", ..., "count": 2}, {"kind": "slow_start", "at_s": 0, "factor": 4},
//  {"kind": "start_error", "at_s": 5}, {"kind": "stock_out", "at_s": 5, "until_s": 65}].
// Errors: kInvalidArgument.
Result<std::vector<Fault>> parse_faults(const Json& json, int replica_count,
                                        const std::string& origin);

}  // namespace pelton::simulator
