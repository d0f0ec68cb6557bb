#include "lora/adapter_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/safetensors_start.h"
#include "tensor/dtype.h"

namespace pelton::lora {
namespace {

using checkpoint::kSafetensorsLengthBytes;

// What lies in the names and rights there stays so until somebody changes them; a disk that does
// not read may do so the next time.
ErrorCode code_of(int code) {
  switch (code) {
    case ENOENT:
      return ErrorCode::kNotFound;
    case ELOOP:
    case ENOTDIR:
    case ENAMETOOLONG:
    case EACCES:
    case EPERM:
      return ErrorCode::kBadCheckpoint;
    default:
      return ErrorCode::kIo;
  }
}

Error io_error(const std::string& path, int code) {
  return {code_of(code), fmt::format("{}: cannot read: {}", path, std::strerror(code)), ""};
}

Result<void> refuse_pickle(const std::string& folder, const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) return {};
  const std::string pickled = folder + "/adapter_model.bin";
  if (!std::filesystem::exists(pickled, ignored)) return {};
  return Error{ErrorCode::kUnsupported,
               fmt::format("{}: a pickled adapter_model.bin may run any code and is not read; save "
                           "the adapter as adapter_model.safetensors",
                           pickled)};
}

}  // namespace

AdapterFile::AdapterFile(AdapterFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      tensors_(std::move(other.tensors_)),
      tile_(std::move(other.tile_)) {}

AdapterFile::~AdapterFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::string AdapterFile::path_in(const std::string& folder) {
  return folder + "/adapter_model.safetensors";
}

Result<AdapterFile> AdapterFile::open_file(const std::string& path, uint64_t& file_bytes) {
  // A pipe of that name would keep the opening waiting.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return io_error(path, errno);
  AdapterFile file(path, descriptor);
  struct stat facts {};
  if (::fstat(descriptor, &facts) != 0) return io_error(path, errno);
  if (!S_ISREG(facts.st_mode)) {
    return Error{ErrorCode::kBadCheckpoint, fmt::format("{}: is no regular file", path)};
  }
  file_bytes = static_cast<uint64_t>(facts.st_size);
  return file;
}

Result<AdapterFile> AdapterFile::open(const std::string& folder, int64_t tensor_bytes_max) {
  const std::string path = path_in(folder);
  TRY(refuse_pickle(folder, path));
  uint64_t file_bytes = 0;
  TRY_ASSIGN(AdapterFile file, open_file(path, file_bytes));
  TRY(file.read_header(file_bytes, tensor_bytes_max));
  return file;
}

int64_t AdapterFile::tensor_bytes_of(const std::string& folder) {
  uint64_t file_bytes = 0;
  const Result<AdapterFile> file = open_file(path_in(folder), file_bytes);
  uint64_t header_bytes = 0;
  std::string length(sizeof header_bytes, '\0');
  if (!file.ok() || !file->read_at(0, length).ok()) return 0;
  std::memcpy(&header_bytes, length.data(), sizeof header_bytes);
  const uint64_t data = length.size() + std::min(header_bytes, file_bytes);
  return data < file_bytes ? static_cast<int64_t>(file_bytes - data) : 0;
}

Result<void> AdapterFile::read_header(uint64_t file_bytes, int64_t tensor_bytes_max) {
  std::string start(std::min(file_bytes, kSafetensorsLengthBytes), '\0');
  TRY(read_at(0, start));
  uint64_t header_bytes = 0;
  if (start.size() == sizeof header_bytes) {
    std::memcpy(&header_bytes, start.data(), sizeof header_bytes);
    if (header_bytes > static_cast<uint64_t>(kFileHeaderBytesMax)) {
      return Error{ErrorCode::kBadCheckpoint,
                   fmt::format("{}: claims a header of {} bytes; the limit of an adapter's is {}",
                               path_, header_bytes, kFileHeaderBytesMax)};
    }
    const uint64_t data = std::min(file_bytes, sizeof header_bytes + header_bytes);
    if (file_bytes - data > static_cast<uint64_t>(tensor_bytes_max)) {
      return Error{ErrorCode::kDoesNotFit,
                   fmt::format("{} has {} bytes of tensors; an adapter of this base within the "
                               "limits has {} at most",
                               path_, file_bytes - data, tensor_bytes_max)};
    }
    start.resize(data);
    TRY(read_at(0, start));
  }
  TRY_ASSIGN(tensors_, checkpoint::parse_safetensors_start(
                           {reinterpret_cast<const uint8_t*>(start.data()), start.size()},
                           file_bytes, path_));
  return {};
}

Result<void> AdapterFile::read_at(uint64_t offset, std::string& into) const {
  for (size_t done = 0; done < into.size();) {
    const ssize_t got = ::pread(descriptor_, into.data() + done, into.size() - done,
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error(path_, errno);
    if (got == 0) {
      return Error{
          ErrorCode::kBadCheckpoint,
          fmt::format("{}: was cut short to {} bytes while it was read", path_, offset + done)};
    }
    done += static_cast<size_t>(got);
  }
  return {};
}

int64_t AdapterFile::tensor_bytes() const {
  uint64_t bytes = 0;
  for (const checkpoint::StoredTensor& tensor : tensors_) bytes += tensor.end - tensor.begin;
  return static_cast<int64_t>(bytes);
}

Result<void> AdapterFile::read(const checkpoint::StoredTensor& tensor,
                               const std::function<Result<void>(const Tile& tile)>& use) {
  const uint64_t size = tensor::dtype_bytes(tensor.dtype);
  for (uint64_t at = tensor.begin; at < tensor.end; at += tile_.size()) {
    tile_.resize(std::min<uint64_t>(tensor.end - at, kFileTileBytes));
    TRY(read_at(at, tile_));
    TRY(use({.first = static_cast<int64_t>((at - tensor.begin) / size), .bytes = tile_}));
  }
  return {};
}

}  // namespace pelton::lora
