// A file of tensors that is no whole model, as drafters and vocoders are published (safetensors, or
// torch.save()'s): its tensors by the names they have, mapped read-only, every offset checked
// before use. Immutable after open; any thread may read. Owned by who computes with it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "checkpoint/safetensors.h"
#include "tensor/tensor_view.h"

namespace pelton::checkpoint {

class TensorFile {
 public:
  // `path`: one file; shards of one are not read. Errors: kNotFound, kBadCheckpoint.
  static Result<TensorFile> open(const std::string& path);
  // The same of a PyTorch file (checkpoint/torch_file.h), in which nothing is executed. And
  // kUnsupported.
  static Result<TensorFile> open_torch(const std::string& path);

  // Tensors whose names begin with `from` are found with `to` instead: the same tensors have
  // several names in published files. kBadCheckpoint where one is there under both.
  Result<void> rename(std::string_view from, std::string_view to);

  bool has(std::string_view name) const { return tensors_.find(name) != tensors_.end(); }
  // The tensor of that name if it has exactly this shape. Errors: kBadCheckpoint, naming file,
  // tensor, expected and found.
  Result<tensor::TensorView> tensor(std::string_view name, std::span<const int64_t> shape) const;

  const std::string& path() const { return file_.path(); }
  const std::map<std::string, tensor::TensorView, std::less<>>& tensors() const { return tensors_; }
  int64_t weight_bytes() const { return weight_bytes_; }  // of all tensors

 private:
  explicit TensorFile(base::MappedFile file) : file_(std::move(file)) {}
  using Parse = Result<std::vector<StoredTensor>> (*)(std::span<const uint8_t> file,
                                                      const std::string& path);
  static Result<TensorFile> open_with(Parse parse, const std::string& path);

  base::MappedFile file_;
  std::vector<std::vector<uint64_t>> realigned_;  // copies of tensors at odd offsets
  std::map<std::string, tensor::TensorView, std::less<>> tensors_;
  int64_t weight_bytes_ = 0;
};

}  // namespace pelton::checkpoint
