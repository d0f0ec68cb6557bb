// The memory behind the KV blocks: for each layer, the blocks of its group. Allocated once; pages
// are touched as blocks are used. Owned by the executor (or a SequenceRunner); executor thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "checkpoint/model_config.h"
#include "kernels/kernels.h"

namespace pelton::models {

class KvStorage {
 public:
  struct Options {
    tensor::DType dtype = tensor::DType::kBf16;
    int block_tokens = 16;
    int full_block_count = 0;
    int window_block_count = 0;
  };

  // kDoesNotFit if the operating system refuses the memory.
  static Result<KvStorage> allocate(const checkpoint::ModelConfig& config, const Options& options);
  KvStorage(KvStorage&& other) noexcept;
  KvStorage& operator=(KvStorage&& other) noexcept;
  ~KvStorage();

  const kernels::KvLayer& layer(int index) const { return layers_[index]; }
  const Options& options() const { return options_; }
  int64_t bytes() const { return bytes_; }

  // What one block costs over all layers of its group.
  static int64_t full_block_bytes(const checkpoint::ModelConfig& config, const Options& options);
  static int64_t window_block_bytes(const checkpoint::ModelConfig& config, const Options& options);

 private:
  KvStorage() = default;

  Options options_;
  std::vector<kernels::KvLayer> layers_;
  void* memory_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace pelton::models
