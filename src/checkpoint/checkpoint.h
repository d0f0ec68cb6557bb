// A model's files, opened: configuration and named tensors, mapped read-only, every offset checked
// before use. Immutable after open; any thread may read. Owned by whoever loads the model, and
// outlives the model, which points into the mapping.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "checkpoint/model_config.h"
#include "tensor/tensor_view.h"

namespace pelton::checkpoint {

class Checkpoint {
 public:
  // A Hugging Face folder: config.json, and model.safetensors or model.safetensors.index.json with
  // its shards; exactly the tensors that the configuration asks for. Errors name file, tensor,
  // expected and found (kNotFound, kBadCheckpoint, kUnsupported).
  static Result<Checkpoint> open(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const ModelConfig& config() const { return config_; }

  // The tensor of that name if it has exactly this type and shape. Its bytes are aligned to its
  // element size and no further: files promise nothing more.
  Result<tensor::TensorView> tensor(std::string_view name, tensor::DType dtype,
                                    std::span<const int64_t> shape) const;
  // The same, whatever its type.
  Result<tensor::TensorView> tensor(std::string_view name, std::span<const int64_t> shape) const;
  bool has(std::string_view name) const { return tensors_.find(name) != tensors_.end(); }

  // All tensors by name, and their bytes in all.
  const std::map<std::string, tensor::TensorView, std::less<>>& tensors() const { return tensors_; }
  int64_t weight_bytes() const { return weight_bytes_; }
  int shard_count() const { return static_cast<int>(files_.size()); }

 private:
  Result<void> map_file(const std::string& name);
  Result<void> map_shards();
  Result<void> check_tensors() const;

  std::string folder_;
  ModelConfig config_;
  std::vector<base::MappedFile> files_;
  std::vector<std::vector<uint64_t>>
      realigned_;  // copies of tensors at odd offsets; hardly ever any
  std::map<std::string, tensor::TensorView, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> file_of_tensor_;  // for messages
  int64_t weight_bytes_ = 0;
};

// A model argument: a folder as it is, or a hub id ("openai/gpt-oss-20b") looked up in the standard
// Hugging Face cache ($HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub,
// ~/.cache/huggingface/hub). kNotFound says exactly how to get it.
Result<std::string> resolve_model(const std::string& model);

}  // namespace pelton::checkpoint
