#include "executor/device.h"

#include <fmt/format.h>

namespace pelton::executor {
namespace {

Result<Device> find_device() {
  TRY_ASSIGN(cuda::DeviceLibrary library, cuda::DeviceLibrary::open_cuda());
  TRY_ASSIGN(const cuda::DeviceInfo info, library.device(0));
  return Device{.library = std::move(library), .index = 0, .info = info};
}

}  // namespace

Result<DeviceChoice> choose_device(std::string_view choice) {
  if (choice == "cpu") return DeviceChoice{.text = "device: CPU, as asked for"};
  if (choice != "auto" && choice != "cuda") {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("\"{}\" is not one of auto, cpu, cuda", choice), "device"};
  }
  Result<Device> found = find_device();
  if (found.ok()) {
    // To go when they have (docs/gpu.md): until then nobody computes with them unasked.
    const bool is_untried = std::string_view(found->library.table().kind()) == "cuda";
    if (is_untried && choice == "auto") {
      return DeviceChoice{
          .text = fmt::format("device: CPU; there is {}, whose kernels have never been tried on a "
                              "GPU: --device cuda asks for it",
                              cuda::describe(found->info))};
    }
    std::string text =
        fmt::format("device: {}{}", cuda::describe(found->info),
                    is_untried ? "; its kernels have never been tried on a GPU" : "");
    return DeviceChoice{.device = std::move(*found), .text = std::move(text)};
  }
  if (choice == "cuda") {
    return Error{ErrorCode::kUnsupported,  // nothing that is asked for by a name is missing
                 fmt::format("--device cuda: {}; it takes a GPU, NVIDIA's driver and "
                             "libpelton_cuda.so: docs/gpu.md says how to build that, and what was "
                             "never tried. --device cpu, or auto, computes on the processors",
                             found.error().message),
                 "device"};
  }
  return DeviceChoice{.text = fmt::format("device: CPU ({})", found.error().message)};
}

}  // namespace pelton::executor
