#include "cost_model/request_overhead.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "cost_model/slices.h"

namespace pelton::cost_model {
namespace {

constexpr std::pair<std::string_view, double RequestOverhead::*> kTimes[] = {
    {"in_s", &RequestOverhead::in_s},
    {"in_token_s", &RequestOverhead::in_token_s},
    {"out_s", &RequestOverhead::out_s}};

constexpr std::pair<std::string_view, std::vector<double> RequestOverhead::*> kSpreads[] = {
    {"in_residuals", &RequestOverhead::in_residuals},
    {"out_residuals", &RequestOverhead::out_residuals}};

double seconds(int64_t ns) {
  constexpr int64_t kLeastNs = 100;  // clocks are read one after the other
  return static_cast<double>(std::max(ns, kLeastNs)) * 1e-9;
}

// Returns the mean; what the single ones are of it goes into `residuals`.
double spread(std::vector<double> measured, std::vector<double>& residuals) {
  const double mean =
      std::accumulate(measured.begin(), measured.end(), 0.0) / static_cast<double>(measured.size());
  for (double& one : measured) one /= mean;
  residuals = slices_of(std::move(measured));
  return mean;
}

}  // namespace

Result<RequestOverhead> request_overhead(const std::vector<MeasuredStep>& steps,
                                         std::vector<MeasuredRequest> requests) {
  const auto by_token = [](const MeasuredRequest& a, const MeasuredRequest& b) {
    return a.first_token_ns < b.first_token_ns;
  };
  std::sort(requests.begin(), requests.end(), by_token);
  std::vector<double> in;
  std::vector<double> out;
  size_t next = 0;
  for (const MeasuredStep& step : steps) {
    const StepLoad& load = step.load;
    if (!step.after_pause || load.rows != 1 || load.sampled != 1 || load.tokens < 2) continue;
    // The first token seen from here on is this step's, if it was asked for before.
    while (next < requests.size() && requests[next].first_token_ns < step.ended_ns) ++next;
    if (next == requests.size()) break;
    const MeasuredRequest& request = requests[next];
    if (request.start_ns > step.submitted_ns) continue;
    in.push_back(seconds(step.submitted_ns - request.start_ns));
    out.push_back(seconds(request.first_token_ns - step.ended_ns));
    ++next;
  }
  if (in.size() < kRequestsLeast) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} requests of the result have a step of their own in the step log; "
                             "at least {} are needed",
                             in.size(), kRequestsLeast),
                 "idle-result"};
  }
  RequestOverhead overhead;
  overhead.in_s = spread(std::move(in), overhead.in_residuals);
  overhead.out_s = spread(std::move(out), overhead.out_residuals);
  return overhead;
}

Json overhead_json(const RequestOverhead& overhead) {
  Json json;
  for (const auto& [name, member] : kTimes) json.set(name, overhead.*member);
  for (const auto& [name, member] : kSpreads) json.set(name, slices_json(overhead.*member));
  return json;
}

Result<RequestOverhead> read_overhead(const Json& json, const std::string& origin) {
  RequestOverhead overhead;
  const Json* const around = json.find("overhead");
  if (around == nullptr) return overhead;
  for (const auto& [name, member] : kTimes) {
    const double value = around->number(name).value_or(0);
    if (!(value >= 0 && value <= 60)) {
      return Error{ErrorCode::kBadConfig,
                   fmt::format("{}: {} must be 0 to 60 seconds", origin, name), std::string(name)};
    }
    overhead.*member = value;
  }
  for (const auto& [name, member] : kSpreads) {
    TRY_ASSIGN(overhead.*member, read_slices(*around, std::string(name), origin));
  }
  return overhead;
}

}  // namespace pelton::cost_model
