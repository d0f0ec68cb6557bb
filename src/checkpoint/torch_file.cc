#include "checkpoint/torch_file.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/foreign_text.h"
#include "checkpoint/torch_pickle.h"
#include "checkpoint/zip_directory.h"

namespace pelton::checkpoint {
namespace {

using Entries = std::map<std::string, std::span<const uint8_t>, std::less<>>;

constexpr std::string_view kPickle = "data.pkl";
constexpr std::string_view kByteOrder = "byteorder";

Error bad(const std::string& path, const std::string& what) {
  return Error{ErrorCode::kBadCheckpoint, fmt::format("{}: {}", path, what)};
}

// "archive/" of "archive/data.pkl"; whatever the file was called when it was saved.
Result<std::string> folder_of(const Entries& entries, const std::string& path) {
  for (const auto& [name, bytes] : entries) {
    const size_t slash = name.find('/');
    if (slash == std::string::npos) continue;
    if (std::string_view(name).substr(slash + 1) == kPickle) return name.substr(0, slash + 1);
  }
  return bad(path, "holds no data.pkl: it is no file of torch.save()");
}

}  // namespace

Result<std::vector<StoredTensor>> parse_torch_file(std::span<const uint8_t> file,
                                                   const std::string& path) {
  TRY_ASSIGN(const Entries entries, read_zip_directory(file, path));
  TRY_ASSIGN(const std::string folder, folder_of(entries, path));
  if (const auto order = entries.find(folder + std::string(kByteOrder)); order != entries.end()) {
    const std::string_view text(reinterpret_cast<const char*>(order->second.data()),
                                order->second.size());
    if (text != "little") {
      return Error{ErrorCode::kUnsupported,
                   fmt::format("{}: its numbers are not little-endian", path)};
    }
  }
  const auto pickle = entries.find(folder + std::string(kPickle));
  TRY_ASSIGN(const std::vector<PickledTensor> pickled, read_torch_pickle(pickle->second, path));
  std::vector<StoredTensor> tensors;
  for (const PickledTensor& tensor : pickled) {
    if (tensor.name.empty() || tensor.name.size() > kSafetensorsNameBytesMax) {
      return bad(path, "holds a tensor whose name is empty or too long");
    }
    const auto storage = entries.find(fmt::format("{}data/{}", folder, tensor.storage));
    if (storage == entries.end()) {
      return bad(path, fmt::format("tensor {}: there is no storage {}", shown(tensor.name),
                                   shown(tensor.storage)));
    }
    const uint64_t size = tensor::dtype_bytes(tensor.dtype);
    uint64_t count = 1;
    for (const int64_t length : tensor.shape) count *= static_cast<uint64_t>(length);
    const uint64_t room = storage->second.size() / size;
    if (tensor.offset > room || count > room - tensor.offset) {
      return bad(path, fmt::format("tensor {} reaches beyond its storage", shown(tensor.name)));
    }
    const auto begin =
        static_cast<uint64_t>(storage->second.data() - file.data()) + tensor.offset * size;
    tensors.push_back({.name = tensor.name,
                       .dtype = tensor.dtype,
                       .shape = tensor.shape,
                       .begin = begin,
                       .end = begin + count * size});
  }
  return tensors;
}

}  // namespace pelton::checkpoint
