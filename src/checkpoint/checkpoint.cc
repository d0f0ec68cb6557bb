#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "checkpoint/expected_tensors.h"
#include "checkpoint/foreign_text.h"
#include "checkpoint/safetensors.h"

namespace pelton::checkpoint {
namespace {

using tensor::DType;
using tensor::TensorView;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr size_t kIndexBytesMax = size_t{16} << 20;  // the largest published ones have 9 MB
constexpr size_t kShardsMax = 4096;

Error bad(const std::string& path, const std::string& what) {
  return Error{ErrorCode::kBadCheckpoint, fmt::format("{}: {}", path, what)};
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::string type_text(DType dtype, std::span<const int64_t> shape) {
  return fmt::format("{} {}", tensor::dtype_name(dtype), tensor::shape_text(shape));
}

// A shard stands in the model's folder: a plain name, so that an index cannot make us open anything
// else. (The file itself may be a link: the hub's cache keeps the bytes elsewhere.)
bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

struct Index {
  std::map<std::string, std::string, std::less<>> file_of_tensor;
  std::vector<std::string> files;  // each once, sorted
  std::optional<int64_t> total_bytes;
};

Result<Index> read_index(const std::string& path) {
  TRY_ASSIGN(const std::string text, base::read_file(path, kIndexBytesMax));
  const Result<Json> parsed = Json::parse(text);
  if (!parsed.ok()) return bad(path, parsed.error().message);
  const Json* map = parsed->find("weight_map");
  if (map == nullptr || !map->is_object()) return bad(path, "weight_map is missing or no object");
  Index index;
  for (const Json::Member& member : map->as_object()) {
    if (!member.value.is_string() || !is_plain_file_name(member.value.as_string())) {
      return bad(path, fmt::format("weight_map[{}] must be the name of a file in the same folder, "
                                   "found {}",
                                   shown(member.key), member.value.dump().substr(0, 200)));
    }
    if (!index.file_of_tensor.emplace(member.key, member.value.as_string()).second) {
      return bad(path, fmt::format("weight_map names tensor {} twice", shown(member.key)));
    }
    index.files.push_back(member.value.as_string());
  }
  std::sort(index.files.begin(), index.files.end());
  index.files.erase(std::unique(index.files.begin(), index.files.end()), index.files.end());
  if (index.files.size() > kShardsMax) {
    return bad(path,
               fmt::format("names {} shards; the limit is {}", index.files.size(), kShardsMax));
  }
  if (const Json* metadata = parsed->find("metadata"); metadata != nullptr) {
    index.total_bytes = metadata->integer("total_size");
  }
  return index;
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    return Error{ErrorCode::kNotFound, fmt::format("{}: is not a folder", folder)};
  }
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  TRY_ASSIGN(checkpoint.config_, read_model_config(folder));
  if (exists(folder + "/" + kIndexFile)) {
    TRY(checkpoint.map_shards());
  } else if (exists(folder + "/" + kSingleFile)) {
    TRY(checkpoint.map_file(kSingleFile));
  } else {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{}: holds neither {} nor {}", folder, kSingleFile, kIndexFile)};
  }
  TRY(checkpoint.check_tensors());
  return checkpoint;
}

Result<void> Checkpoint::map_file(const std::string& name) {
  const std::string path = folder_ + "/" + name;
  // Asked before opening: to open a pipe would wait for somebody to write to it.
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    return Error{ErrorCode::kNotFound, fmt::format("{}: there is no such file", path)};
  }
  if (!std::filesystem::is_regular_file(status)) return bad(path, "is not a regular file");
  TRY_ASSIGN(base::MappedFile file, base::MappedFile::open(path));
  TRY_ASSIGN(std::vector<StoredTensor> stored, parse_safetensors(file.bytes(), path));
  for (StoredTensor& tensor : stored) {
    const auto owner = file_of_tensor_.find(tensor.name);
    if (owner != file_of_tensor_.end()) {
      return bad(path, fmt::format("tensor {} is also in {}", shown(tensor.name), owner->second));
    }
    std::span<const uint8_t> bytes = file.bytes().subspan(tensor.begin, tensor.end - tensor.begin);
    if (tensor.begin % tensor::dtype_bytes(tensor.dtype) != 0) {
      std::vector<uint64_t>& copy = realigned_.emplace_back((bytes.size() + 7) / 8);
      std::memcpy(copy.data(), bytes.data(), bytes.size());
      bytes = {reinterpret_cast<const uint8_t*>(copy.data()), bytes.size()};
    }
    weight_bytes_ += static_cast<int64_t>(bytes.size());
    file_of_tensor_.emplace(tensor.name, path);
    tensors_.emplace(std::move(tensor.name),
                     TensorView{tensor.dtype, std::move(tensor.shape), bytes});
  }
  files_.push_back(std::move(file));
  return {};
}

Result<void> Checkpoint::map_shards() {
  const std::string path = folder_ + "/" + kIndexFile;
  TRY_ASSIGN(const Index index, read_index(path));
  for (const std::string& file : index.files) TRY(map_file(file));
  for (const auto& [tensor, file] : index.file_of_tensor) {
    const auto found = file_of_tensor_.find(tensor);
    if (found == file_of_tensor_.end() || found->second != folder_ + "/" + file) {
      return bad(path, fmt::format(
                           "places tensor {} in {}, but it is {}", shown(tensor), file,
                           found == file_of_tensor_.end() ? "in no shard" : "in " + found->second));
    }
  }
  for (const auto& [tensor, file] : file_of_tensor_) {
    if (index.file_of_tensor.find(tensor) == index.file_of_tensor.end()) {
      return bad(path, fmt::format("does not list tensor {}, which {} holds", shown(tensor), file));
    }
  }
  if (index.total_bytes && *index.total_bytes != weight_bytes_) {
    return bad(path,
               fmt::format("metadata.total_size is {}, but the shards hold {} bytes of tensors",
                           *index.total_bytes, weight_bytes_));
  }
  return {};
}

// A missing tensor could not be computed with; one that we do not know would be left out of the
// computation in silence.
Result<void> Checkpoint::check_tensors() const {
  const std::vector<ExpectedTensor> expected = expected_tensors(config_);
  std::map<std::string_view, const ExpectedTensor*> wanted;
  for (const ExpectedTensor& tensor : expected) {
    TRY(this->tensor(tensor.name, tensor.dtype, tensor.shape));
    wanted.emplace(tensor.name, &tensor);
  }
  for (const auto& [name, view] : tensors_) {
    if (wanted.find(name) == wanted.end()) {
      return bad(file_of_tensor_.find(name)->second,
                 fmt::format("tensor {} ({}) has no place in a {} of {} layers", shown(name),
                             type_text(view.dtype, view.shape), config_.architecture,
                             config_.layer_count));
    }
  }
  return {};
}

Result<TensorView> Checkpoint::tensor(std::string_view name, DType dtype,
                                      std::span<const int64_t> shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return bad(folder_, fmt::format("tensor {} is missing; expected {}", shown(name),
                                    type_text(dtype, shape)));
  }
  const TensorView& view = found->second;
  if (view.dtype != dtype ||
      !std::equal(shape.begin(), shape.end(), view.shape.begin(), view.shape.end())) {
    return bad(file_of_tensor_.find(name)->second,
               fmt::format("tensor {}: expected {} from config.json, found {}", shown(name),
                           type_text(dtype, shape), type_text(view.dtype, view.shape)));
  }
  return view;
}

Result<TensorView> Checkpoint::tensor(std::string_view name, std::span<const int64_t> shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return bad(folder_, fmt::format("tensor {} is missing; expected {}", shown(name),
                                    tensor::shape_text(shape)));
  }
  if (!std::equal(shape.begin(), shape.end(), found->second.shape.begin(),
                  found->second.shape.end())) {
    return bad(file_of_tensor_.find(name)->second,
               fmt::format("tensor {}: expected the shape {}, found {}", shown(name),
                           tensor::shape_text(shape), tensor::shape_text(found->second.shape)));
  }
  return found->second;
}

}  // namespace pelton::checkpoint
