// What a pool's decider was given and what it decided, as lines of JSON: written by whoever decides
// (launch/facts_recorder.h), decided again from the file by `pelton autoscale --replay`. Numbers
// and names of pools, gateways and replicas; nothing of what anybody asked a model.
//
//   {"pool":"box","begins":1,"policy":{...},"state":{...}}     a decider begins; state: of the one
//                                                              before it, or null
//   {"pool":"box","now_ns":17,"facts":{...},"decision":{...}}  a decision
//
// A line that is read and written again is the same bytes, so decisions can be compared as text.
// Members that have their default are left out. Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "autoscaler/pool_decision.h"
#include "autoscaler/pool_facts.h"
#include "autoscaler/pool_policy.h"
#include "autoscaler/pool_scaler.h"
#include "base/json.h"
#include "base/json_writer.h"
#include "base/result.h"

namespace pelton::autoscaler {

// `state`: PoolScaler::state(), or empty for one that begins anew.
std::string begin_line(std::string_view pool, const PoolPolicy& policy, std::string_view state);
std::string decision_line(std::string_view pool, int64_t now_ns, const PoolFacts& facts,
                          const PoolDecision& decision);
void write_terms(base::JsonWriter& w, const PoolDecision::Terms& terms);
void write_report(base::JsonWriter& w, const GatewayReport& report);
// None: it is no report.
std::optional<GatewayReport> read_report(const Json& json);

// Decides again what a file's lines say.
class FactsReplay {
 public:
  struct Outcome {
    bool is_decision = false;  // else a beginning, or an empty line
    std::string pool;
    int64_t now_ns = 0;
    PoolDecision decision;
    PoolFacts facts;                   // of a decision
    std::optional<PoolPolicy> policy;  // of a beginning
    std::string line;                  // as it would be written now
    bool is_equal = true;              // to the line that was read
  };
  // A line without its line feed. Errors: kInvalidArgument: it is none of ours, or a decision
  // before its beginning.
  Result<Outcome> feed(std::string_view line);

 private:
  std::map<std::string, std::unique_ptr<PoolScaler>> scalers_;  // by pool
};

}  // namespace pelton::autoscaler
