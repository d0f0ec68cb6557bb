// What a device can do at most, and machines made of several: read from data files in which every
// figure names its source (data/hardware, data/instances.json), or from a file of the user's in the
// same form. Plain values; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace pelton::cost_model {

// Types in which products are computed.
enum class Arithmetic { kF32, kBf16, kInt8, kFp8, kFp4 };
std::string_view arithmetic_name(Arithmetic arithmetic);  // "bf16"
Result<Arithmetic> parse_arithmetic(std::string_view name);

struct Hardware {
  std::string name;          // "h100"
  std::string title;         // "NVIDIA H100 SXM"
  std::string architecture;  // "sm_90"
  std::string link;          // "NVLink 4"
  int64_t memory_bytes = 0;
  double bytes_per_second = 0;                 // of that memory
  std::map<Arithmetic, double> rates;          // operations per second, dense
  double link_bytes_per_second = 0;            // to its peers, one way; 0: none
  double link_latency_seconds = 0;             // of one hop
  int link_domain = 1;                         // devices that such links join
  double watts = 0;                            // 0: not known
  std::map<std::string, std::string> sources;  // of each figure, by its name in the file

  // kInvalidArgument, naming what the architecture has.
  Result<double> rate(Arithmetic arithmetic) const;
  bool is_processor() const;  // not a GPU
};

// How much of the datasheet an instance reached in others' published measurements.
struct InstanceFit {
  double bandwidth = 0;  // shares; compute: of the bf16 rate, of attention and of the links alike
  double compute = 0;
  double step_s = 0;     // whatever is in a step
  double error_p90 = 0;  // nine of ten published values are within this share of the fitted model
  std::string source;
};

struct Instance {
  std::string name;  // "p4de.24xlarge"
  std::string gpu;
  int count = 1;
  double price_per_hour = 0;  // dollars; 0: not known
  int64_t host_memory_bytes = 0;
  std::string source;
  std::optional<InstanceFit> fit;
};

// By name, or a file's path (anything that ends in .json). kInvalidArgument lists the names there
// are.
Result<Hardware> find_hardware(const std::string& name);
Result<Instance> find_instance(const std::string& name);
std::vector<Instance> instances();

Result<Hardware> parse_hardware(const Json& json, const std::string& origin);

}  // namespace pelton::cost_model
