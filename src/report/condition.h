// "p99_ttft_ms>500": when a benchmark's result shall fail a script. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "base/json.h"
#include "base/result.h"

namespace pelton::report {

struct Condition {
  enum class Relation { kAbove, kAtLeast, kBelow, kAtMost };

  std::string text;  // as written
  std::string key;   // of the result file
  Relation relation = Relation::kAbove;
  double bound = 0;
};

// KEY>N, KEY>=N, KEY<N, KEY<=N; KEY is one that result files have: the name is checked here, before
// an hour is spent. Errors: kInvalidArgument.
Result<Condition> parse_condition(std::string_view text);
// The same for results of another kind, whose keys `is_key` knows; `example`: a condition on one.
Result<Condition> parse_condition(std::string_view text,
                                  base::FunctionRef<bool(std::string_view)> is_key,
                                  std::string_view example);

// Whether it is so in `result`. Errors: kInvalidArgument if the result has no such number, for
// example a percentile that was not asked for.
Result<bool> holds(const Condition& condition, const Json& result);

}  // namespace pelton::report
