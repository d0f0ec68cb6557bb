// An adapter's adapter_model.safetensors while it is read: its header at once, its tensors one
// after the other in tiles of bounded size. It is read, not mapped: it may be replaced or cut short
// meanwhile. Owned by a load, on its thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/safetensors.h"

namespace pelton::lora {

// What of a file is in memory at once, beside its header.
inline constexpr int64_t kFileTileBytes = int64_t{1} << 20;
// Names of up to some hundred thousand tensors.
inline constexpr int64_t kFileHeaderBytesMax = int64_t{64} << 20;

class AdapterFile {
 public:
  // Errors: kNotFound, kIo, kBadCheckpoint (no such file, or a header beyond its limit),
  // kUnsupported (the adapter is a pickle), kDoesNotFit (more than so many bytes of tensors).
  static Result<AdapterFile> open(const std::string& folder, int64_t tensor_bytes_max);
  // What the tensors of a folder's file take, by its size and its header's length alone. 0: there
  // is no such file, as open() will say.
  static int64_t tensor_bytes_of(const std::string& folder);

  AdapterFile(AdapterFile&& other) noexcept;
  AdapterFile& operator=(AdapterFile&&) = delete;
  ~AdapterFile();

  const std::string& path() const { return path_; }
  const std::vector<checkpoint::StoredTensor>& tensors() const { return tensors_; }
  int64_t tensor_bytes() const;  // of all together

  // A tensor's numbers from `first` on.
  struct Tile {
    int64_t first = 0;
    std::string_view bytes;
  };
  // Gives `use` the tensor's tiles in their order; its error ends the reading. Errors: that, kIo,
  // kBadCheckpoint (the file has been cut short).
  Result<void> read(const checkpoint::StoredTensor& tensor,
                    const std::function<Result<void>(const Tile& tile)>& use);

 private:
  AdapterFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  static std::string path_in(const std::string& folder);
  static Result<AdapterFile> open_file(const std::string& path, uint64_t& file_bytes);
  Result<void> read_header(uint64_t file_bytes, int64_t tensor_bytes_max);
  Result<void> read_at(uint64_t offset, std::string& into) const;

  std::string path_;
  int descriptor_ = -1;
  std::vector<checkpoint::StoredTensor> tensors_;
  std::string tile_;
};

}  // namespace pelton::lora
