// A scenario: a load, a fleet and what goes wrong in it, in a file of TOML that says where its
// figures come from. Those of scenarios/ are compiled in. What it says of the model, the hardware
// and the load are the flags of `pelton simulate`, so that there is one way only to say it. Values.
//
//   title = "..."                       in a line
//   source = "..."                      where figures come from
//   published = "..."                   what was published
//   assumed = "..."                     what was not, and is assumed here
//   model = "gpt-oss-20b"
//   table = "p4de.24xlarge"             plays that instance's published table, and nothing else
//   efficiency = {bandwidth = 1, compute = 1}   instead of what is assumed of the hardware
//   faults = [{kind = "crash", ...}]    as --faults
//   fault_rates = [{cause = "zone", of = "zone", mtbf_s = 3e7}]   of a year (fluid_year.h)
//   compare = {figure = "output_throughput", value = 1.5e6}   a published one, beside what is
//   played [flags]                             names of flags without their dashes [workload] as a
//   workload's file (docs/formats/workload.md) [scale]                             as [pool.scale]
//   [sweep]                             flag = "start-seconds", values = [5, 30]: one run each
//   [[front]]                           name = "split", flags = {split = "auto"}: the sweep's runs
//                                       of each of two, side by side
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "gateway/scaling_config.h"

namespace pelton::simulator {

struct SweptFlag {
  std::string flag;  // "--start-seconds"
  std::vector<double> values;
};

// A fleet that is compared with others at each value of the sweep: what each user sees against what
// a GPU brings.
struct Front {
  std::string name;
  std::vector<std::pair<std::string, std::string>> flags;  // beside the scenario's
};

struct ComparedFigure {
  std::string figure;  // a key of the result file
  double value = 0;    // as it was published
};

struct Scenario {
  std::string name;
  std::string title;
  std::string source;
  std::string published;
  std::string assumed;
  std::string model;
  std::string table;
  std::optional<double> bandwidth;  // shares of the hardware's figures
  std::optional<double> compute;
  std::vector<std::pair<std::string, std::string>> flags;  // "--gpu", "h100"
  std::optional<Json> workload;
  std::optional<Json> faults;
  std::optional<Json> fault_rates;
  std::optional<gateway::ScalingConfig> scaling;
  std::optional<SweptFlag> sweep;
  std::vector<Front> fronts;
  std::optional<ComparedFigure> compared;
};

// Errors: kBadConfig, "FILE:LINE: ...".
Result<Scenario> parse_scenario(std::string_view text, const std::string& file);
// One that is compiled in, or a file. Errors: kInvalidArgument, with the nearest name.
Result<Scenario> find_scenario(const std::string& name_or_file);
// Those that are compiled in, by name. CHECKs that they are sound.
std::vector<Scenario> built_in_scenarios();

}  // namespace pelton::simulator
