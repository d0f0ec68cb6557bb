// The memory behind the KV blocks: for each layer, the blocks of its group. Allocated once; pages
// are touched as blocks are used, and given back as a whole. Owned by the executor (or a
// SequenceRunner); executor thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "families/kv_groups.h"
#include "families/model_config.h"
#include "kernels/kernels.h"

namespace pelton::models {

class KvStorage {
 public:
  struct Options {
    tensor::DType dtype = tensor::DType::kBf16;
    int block_tokens = 16;
    kv::PerGroup<int> block_counts;  // in the order of families::kv_groups
  };

  // kDoesNotFit if the operating system refuses the memory.
  static Result<KvStorage> allocate(const families::ModelConfig& config, const Options& options);
  KvStorage(KvStorage&& other) noexcept;
  KvStorage& operator=(KvStorage&& other) noexcept;
  ~KvStorage();

  const kernels::KvLayer& layer(int index) const { return layers_[index]; }
  const families::KvGroups& groups() const { return groups_; }
  int layer_count() const { return static_cast<int>(layers_.size()); }
  const Options& options() const { return options_; }
  int64_t bytes() const { return bytes_; }

  // The content of block `from` of `source` (this one, or one allocated for the same model with
  // other counts) becomes that of block `to` here, in one layer; nothing happens in a layer of
  // another group. Layers have nothing in common: several threads may copy in different ones.
  struct BlockCopy {
    int group = 0;
    int32_t from = 0;
    int32_t to = 0;
  };
  void copy_block(const KvStorage& source, const BlockCopy& copy, int layer);

  // A block's bytes in all layers of its group, one after the other: block_bytes of the group.
  void gather(int group, int32_t block, std::span<char> into) const;
  void scatter(int group, int32_t block, std::span<const char> from);

  // Gives all pages back to the operating system; what the blocks held is gone, and whoever writes
  // into one gets new pages. Nobody reads or writes meanwhile. How much that was at most, in bytes;
  // 0 where it is refused (memory that is locked).
  int64_t release_pages();

 private:
  KvStorage() = default;
  Result<void> map();

  Options options_;
  std::vector<kernels::KvLayer> layers_;
  families::KvGroups groups_;
  void* memory_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace pelton::models
