#include "parallel/mpi_library.h"

#include <cstdlib>
#include <filesystem>

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

namespace pelton::parallel {
namespace {

constexpr const char* kFile = "libpelton_mpi.so";
constexpr const char* kMpi = "libmpi.so.40";  // Open MPI 2 to 5; 4.1 in Debian 12
constexpr const char* kField = "rank-transport";

std::string folder_of_program() {
  std::error_code unknown;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", unknown);
  return unknown ? "." : program.parent_path().string();
}

std::string why_not(const char* otherwise) {
  const char* const why = ::dlerror();
  return why != nullptr ? why : otherwise;
}

}  // namespace

// MPI for all to see: Open MPI opens parts of its own that look for it there, and so does the
// plugin, which names no library and so brings none into a package's dependencies.
Result<const MpiTable*> open_mpi(const std::string& path) {
  if (::dlopen(kMpi, RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("no MPI: {}: install Open MPI (Debian: apt-get install openmpi-bin)",
                             why_not(kMpi)),
                 kField};
  }
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return Error{ErrorCode::kNotFound, fmt::format("no plugin for MPI: {}", why_not(path.c_str())),
                 kField};
  }
  using Entry = const MpiTable* (*)();
  const auto entry = reinterpret_cast<Entry>(::dlsym(handle, kMpiAbiSymbol));
  if (entry == nullptr) {
    return Error{ErrorCode::kUnsupported, fmt::format("{} is no plugin for MPI", path), kField};
  }
  const MpiTable* const table = entry();
  if (table->version == kMpiAbiVersion && table->table_bytes == sizeof(MpiTable)) return table;
  return Error{ErrorCode::kUnsupported,
               fmt::format("{} has version {} ({} bytes); this program needs version {} ({})", path,
                           table->version, table->table_bytes, kMpiAbiVersion, sizeof(MpiTable)),
               kField};
}

Result<const MpiTable*> open_mpi() {
  const char* const given = std::getenv("PELTON_MPI_LIBRARY");
  if (given != nullptr && *given != '\0') return open_mpi(given);
  const std::string folder = folder_of_program();
  for (const std::string& path :
       {fmt::format("{}/{}", folder, kFile), fmt::format("{}/../lib/pelton/{}", folder, kFile)}) {
    if (::access(path.c_str(), R_OK) == 0) return open_mpi(path);
  }
  return Error{ErrorCode::kNotFound,
               fmt::format("no {} beside the program or in ../lib/pelton: it is built where Open "
                           "MPI's headers are (Debian: apt-get install libopenmpi-dev openmpi-bin)",
                           kFile),
               kField};
}

}  // namespace pelton::parallel
