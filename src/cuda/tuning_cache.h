// A table of configs (kernel_configs.h) in a file, for the next start with the same model on the
// same GPU, driver and library: one small JSON file for each, which any process may write or delete
// at any time. What is read is foreign bytes: a file that is damaged, of something else, or names a
// config that this device cannot take is an error, and its owner measures again. Host.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "cuda/device_abi.h"

namespace pelton::cuda {

// What a measurement is good for.
struct TuningKey {
  std::string gpu;      // its name
  std::string compute;  // "9.0"
  int64_t driver = 0;
  int64_t runtime = 0;
  std::string library;  // which build of it: version and digest
  std::string model;    // shape, and how many rows a step may have
};

// `library`: what identifies its build.
TuningKey tuning_key(const DeviceInfo& info, const std::string& library, const ModelShape& shape,
                     const Limits& limits);

inline constexpr size_t kTuningFileBytesMax = 16 << 10;

std::string tuning_text(const TuningKey& key, const KernelConfigs& configs);
// Errors: kInvalidArgument.
Result<KernelConfigs> parse_tuning(std::string_view text, const TuningKey& key,
                                   const ModelShape& shape, const KernelDevice& device);

// FOLDER/NAME-DIGEST.json
std::string tuning_file(const std::string& folder, const TuningKey& key);
// Errors: kNotFound, kIo, kInvalidArgument; the message names the file.
Result<KernelConfigs> read_tuning(const std::string& file, const TuningKey& key,
                                  const ModelShape& shape, const KernelDevice& device);
// Makes the folder if need be. Errors: kIo.
Result<void> write_tuning(const std::string& file, const TuningKey& key,
                          const KernelConfigs& configs);

}  // namespace pelton::cuda
