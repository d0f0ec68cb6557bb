#include "cuda/device_library.h"

#include <cstdlib>
#include <filesystem>

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace pelton::cuda {
namespace {

constexpr const char* kFile = "libpelton_cuda.so";

std::string folder_of_program() {
  std::error_code unknown;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", unknown);
  return unknown ? "." : program.parent_path().string();
}

// NVIDIA's runtime, which is part of the library, writes through what malloc() gave when it is
// opened, and does not look whether it gave anything.
bool has_room_for(const std::string& path) {
  constexpr size_t kRoom = size_t{64} << 20;
  std::error_code unknown;
  const auto file_bytes = static_cast<size_t>(std::filesystem::file_size(path, unknown));
  const size_t bytes = kRoom + (unknown ? 0 : file_bytes);
  void* const room =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return false;
  ::munmap(room, bytes);
  return true;
}

}  // namespace

Result<DeviceLibrary> DeviceLibrary::open(const std::string& path) {
  if (!has_room_for(path)) {
    return Error{ErrorCode::kDoesNotFit, fmt::format("too little memory is left to open {}", path),
                 "device"};
  }
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = ::dlerror();
    return Error{ErrorCode::kNotFound,
                 fmt::format("no device library: {}", why != nullptr ? why : path), "device"};
  }
  using Entry = const DeviceTable* (*)();
  const auto entry = reinterpret_cast<Entry>(::dlsym(handle, kAbiSymbol));
  if (entry == nullptr) {
    return Error{ErrorCode::kUnsupported, fmt::format("{} is no device library", path), "device"};
  }
  const DeviceTable* const table = entry();
  if (table->version != kAbiVersion || table->table_bytes != sizeof(DeviceTable)) {
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("{} has version {} ({} bytes); this program needs version {} ({})", path,
                    table->version, table->table_bytes, kAbiVersion, sizeof(DeviceTable)),
        "device"};
  }
  return DeviceLibrary(table, path);
}

Result<DeviceLibrary> DeviceLibrary::open_cuda() {
  const char* const given = std::getenv("PELTON_CUDA_LIBRARY");
  if (given != nullptr && *given != '\0') return open(given);
  const std::string folder = folder_of_program();
  for (const std::string& path :
       {fmt::format("{}/{}", folder, kFile), fmt::format("{}/../lib/pelton/{}", folder, kFile)}) {
    if (::access(path.c_str(), R_OK) == 0) return open(path);
  }
  return Error{ErrorCode::kNotFound,
               fmt::format("no {} beside the program or in ../lib/pelton", kFile), "device"};
}

Result<DeviceInfo> DeviceLibrary::device(int index) const {
  const int count = table_->device_count();
  TRY(check("looking for GPUs"));
  if (count == 0) {
    return Error{ErrorCode::kNotFound,
                 "no GPU that NVIDIA's driver shows to this process (nvidia-smi, "
                 "$CUDA_VISIBLE_DEVICES)",
                 "device"};
  }
  if (index < 0 || index >= count) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("device {}: there are {} devices", index, count), "device"};
  }
  DeviceInfo info = {};
  table_->device_info(index, &info);
  TRY(check("asking the device"));
  return info;
}

Result<void> DeviceLibrary::check(const char* doing) const {
  const char* const failure = table_->failure();
  if (failure == nullptr) return {};
  return Error{ErrorCode::kUnsupported, fmt::format("{}: {}", doing, failure), "device"};
}

std::string describe(const DeviceInfo& info) {
  return fmt::format("{}, {:.1f} GiB, compute {}.{}, {} multiprocessors, driver {}.{}", info.name,
                     static_cast<double>(info.memory_bytes) / (1 << 30), info.compute_major,
                     info.compute_minor, info.multiprocessors, info.driver_version / 1000,
                     info.driver_version % 1000 / 10);
}

}  // namespace pelton::cuda
