#include "checkpoint/tensor_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/foreign_text.h"
#include "checkpoint/torch_file.h"

namespace pelton::checkpoint {
namespace {

Error bad(const std::string& path, const std::string& what) {
  return Error{ErrorCode::kBadCheckpoint, fmt::format("{}: {}", path, what)};
}

}  // namespace

Result<TensorFile> TensorFile::open(const std::string& path) {
  return open_with(&parse_safetensors, path);
}

Result<TensorFile> TensorFile::open_torch(const std::string& path) {
  return open_with(&parse_torch_file, path);
}

Result<TensorFile> TensorFile::open_with(Parse parse, const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    return Error{ErrorCode::kNotFound, fmt::format("{}: there is no such file", path)};
  }
  // Asked before opening: to open a pipe would wait for somebody to write to it.
  if (!std::filesystem::is_regular_file(status)) return bad(path, "is not a regular file");
  TRY_ASSIGN(base::MappedFile mapped, base::MappedFile::open(path));
  TensorFile file(std::move(mapped));
  TRY_ASSIGN(std::vector<StoredTensor> stored, parse(file.file_.bytes(), path));
  for (StoredTensor& tensor : stored) {
    std::span<const uint8_t> bytes =
        file.file_.bytes().subspan(tensor.begin, tensor.end - tensor.begin);
    const auto address = reinterpret_cast<uintptr_t>(bytes.data());
    if (!bytes.empty() && address % tensor::dtype_bytes(tensor.dtype) != 0) {
      std::vector<uint64_t>& copy = file.realigned_.emplace_back((bytes.size() + 7) / 8);
      std::memcpy(copy.data(), bytes.data(), bytes.size());
      bytes = {reinterpret_cast<const uint8_t*>(copy.data()), bytes.size()};
    }
    file.weight_bytes_ += static_cast<int64_t>(bytes.size());
    file.tensors_.emplace(tensor.name,
                          tensor::TensorView{tensor.dtype, std::move(tensor.shape), bytes});
  }
  return file;
}

Result<void> TensorFile::rename(std::string_view from, std::string_view to) {
  std::vector<std::string> names;
  for (const auto& [name, view] : tensors_) {
    if (name.starts_with(from)) names.push_back(name);
  }
  for (const std::string& name : names) {
    const std::string other = std::string(to) + name.substr(from.size());
    if (has(other)) {
      return bad(path(), fmt::format("holds the tensors {} and {}, which are names of one",
                                     shown(name), shown(other)));
    }
    auto node = tensors_.extract(name);
    node.key() = other;
    tensors_.insert(std::move(node));
  }
  return {};
}

Result<tensor::TensorView> TensorFile::tensor(std::string_view name,
                                              std::span<const int64_t> shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return bad(path(), fmt::format("tensor {} is missing; expected the shape {}", name,
                                   tensor::shape_text(shape)));
  }
  if (!std::equal(shape.begin(), shape.end(), found->second.shape.begin(),
                  found->second.shape.end())) {
    return bad(path(),
               fmt::format("tensor {}: expected the shape {}, found {}", name,
                           tensor::shape_text(shape), tensor::shape_text(found->second.shape)));
  }
  return found->second;
}

}  // namespace pelton::checkpoint
