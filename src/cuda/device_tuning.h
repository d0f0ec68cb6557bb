// The configs that a session computes its products in: by constants, measured now, or measured at
// an earlier start and kept in a file. Host; whoever opened the session, before its first step.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cuda/autotuner.h"
#include "cuda/device_library.h"

namespace pelton::cuda {

enum class TuningMode {
  kDefault,     // constants
  kAuto,        // what was kept; else measured, if the library is a GPU's, and kept
  kMeasure,     // measured and kept, whatever was kept before
  kPlain,       // constants, and wgmma is not even tried: for a GPU that does not survive the trial
  kPersistent,  // constants, but that steps of few rows are persistent
};
// default, auto, measure, plain, persistent
Result<TuningMode> parse_tuning_mode(std::string_view name);

struct TuningOptions {
  TuningMode mode = TuningMode::kDefault;
  std::string folder;  // where they are kept; empty: nowhere
  TuningBudget budget = {};
};

struct DeviceTuning {
  KernelConfigs configs;
  std::string how;                    // one line: "measured in 0.41 s ...", "from PATH"
  std::vector<std::string> problems;  // a line each: a damaged file, a config that failed
};

// Sets the session's configs and says what they are. Weights must lie where they belong: what is
// measured is their products, and whole steps. Errors: kUnsupported, the device's own.
Result<DeviceTuning> choose_configs(const DeviceLibrary& library, const DeviceInfo& info,
                                    Session* session, const ModelShape& shape, const Limits& limits,
                                    const TuningOptions& options);

// All configs in one line: "qkv 8x1 to 8 rows, 16x1 to 16, ...; o ...; steps of 1 to 1 rows
// persistent".
std::string describe(const KernelConfigs& configs);

}  // namespace pelton::cuda
