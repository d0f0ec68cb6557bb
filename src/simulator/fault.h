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
    // Of the network between gateways and replicas (network.h), until until_s:
    kCut,    // nothing passes between the replica and `gateway`
    kLossy,  // at least `share` of what is sent there is lost, each time that it is sent
    kLate,   // what is sent there comes `delay_s` later
    // `gateway` is gone until until_s, with every request that it has: their clients' connections
    // break, and who comes meanwhile asks another one.
    kGatewayDown,
    // Of a fleet that is scaled, whatever replica it is:
    kSlowStart,       // starts that are ordered until until_s take `factor` times as long
    kStartError,      // the next `count` starts fail when they should be ready
    kStockOut,        // until until_s nothing can be ordered
    kFactsCut,        // until until_s the autoscaler hears nothing of gateways and replicas
    kAutoscalerDown,  // until until_s nothing is decided; starts under way go on
  };
  Kind kind = Kind::kCrash;
  bool is_of_scaling() const { return kind >= Kind::kSlowStart; }
  bool is_of_network() const { return kind >= Kind::kCut && kind <= Kind::kLate; }
  int replica = 0;
  int gateway = -1;  // of the network's and kGatewayDown; -1: every one
  double at_s = 0;
  double until_s = 0;
  double factor = 1;
  int count = 1;
  double share = 0;
  double delay_s = 0;
};

// [{"kind": "crash", "replica": 3, "at_s": 10, "until_s": 40}, {"kind": "slow", ..., "factor": 3},
//  {"kind": "step_error", ..., "count": 2}, {"kind": "slow_start", "at_s": 0, "factor": 4},
//  {"kind": "start_error", "at_s": 5}, {"kind": "stock_out", "at_s": 5, "until_s": 65},
//  {"kind": "facts_cut", "at_s": 5, "until_s": 65}, {"kind": "autoscaler_down", ...},
//  {"kind": "cut", "replica": 3, "gateway": 0, "at_s": 10, "until_s": 20},
//  {"kind": "lossy", ..., "share": 0.1}, {"kind": "late", ..., "delay_s": 0.3},
//  {"kind": "gateway_down", "gateway": 0, "at_s": 10, "until_s": 20}].
// Instead of "replica" also "node" or "zone": one for each replica that stands there. Errors:
// kInvalidArgument.
struct FaultPlaces {
  int replicas = 1;
  int zones = 1;          // replica i stands in zone i % zones
  int node_replicas = 8;  // and on node i / node_replicas
};
Result<std::vector<Fault>> parse_faults(const Json& json, const FaultPlaces& places,
                                        const std::string& origin);

}  // namespace pelton::simulator
