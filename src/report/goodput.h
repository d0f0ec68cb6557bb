// Goodput: requests per second that kept what was promised. A promise names metrics and bounds.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "report/metric.h"
#include "report/request_record.h"

namespace pelton::report {

struct Objective {
  Metric metric = Metric::kTtft;  // kTtft, kTpot, kE2el
  double bound_ms = 0;
};

// "ttft:500 tpot:50", blanks or commas between. Errors: kInvalidArgument.
Result<std::vector<Objective>> parse_objectives(std::string_view text);

// Whether a finished request kept all of them. One that failed keeps none.
bool keeps(const RequestRecord& record, const std::vector<Objective>& objectives);

// A request's own value in milliseconds; 0 where it has none (TPOT of a single token).
double value_ms(const RequestRecord& record, Metric metric);

}  // namespace pelton::report
