// A device library, opened at run time (device_abi.h). Whoever opened it keeps it for as long as
// anything made by it lives; it stays in the process to its end, as drivers do not like to be
// unloaded. Any thread may read the table.
#pragma once

#include <string>

#include "base/result.h"
#include "cuda/device_abi.h"

namespace pelton::cuda {

class DeviceLibrary {
 public:
  // Errors: kNotFound (no such file, or something that it needs is missing), kUnsupported (another
  // version's).
  static Result<DeviceLibrary> open(const std::string& path);

  // Where libpelton_cuda.so is looked for: PELTON_CUDA_LIBRARY, else beside the running program,
  // else in ../lib/pelton from there.
  static Result<DeviceLibrary> open_cuda();

  // Of a table that is no opened library's own. Tests.
  static DeviceLibrary with_table(const DeviceTable& table) { return {&table, ""}; }

  const DeviceTable& table() const { return *table_; }
  const std::string& path() const { return path_; }

  // kUnsupported with the device's own words if there is none, or none of that number.
  Result<DeviceInfo> device(int index) const;

  // What failed since it was last asked.
  Result<void> check(const char* doing) const;

 private:
  DeviceLibrary(const DeviceTable* table, std::string path)
      : table_(table), path_(std::move(path)) {}

  const DeviceTable* table_;
  std::string path_;
};

// For people: "NVIDIA H100 80GB HBM3, 79.1 GiB, compute 9.0, 132 multiprocessors, driver 13.0".
std::string describe(const DeviceInfo& info);

}  // namespace pelton::cuda
