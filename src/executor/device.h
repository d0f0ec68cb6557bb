// Where a model is computed: on a GPU, if there is one and the flag does not say otherwise, or on
// this machine's processors. Decided once, at start, before weights are packed for either.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cuda/device_library.h"

namespace pelton::executor {

struct Device {
  cuda::DeviceLibrary library;
  int index = 0;
  cuda::DeviceInfo info = {};
};

struct DeviceChoice {
  std::optional<Device> device;  // empty: the processors
  std::string text;              // one line for the log: which, or why none
};

// "auto": device 0 if there is one; "cpu"; "cuda": device 0 or an error. Errors: kInvalidArgument,
// kNotFound, kUnsupported.
Result<DeviceChoice> choose_device(std::string_view choice);

}  // namespace pelton::executor
