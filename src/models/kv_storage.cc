#include "models/kv_storage.h"

#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

#include "base/check.h"
#include "tensor/kv_block.h"

namespace pelton::models {
namespace {

int64_t block_bytes(const families::ModelConfig& config, const KvStorage::Options& options) {
  return tensor::kv_block_bytes(options.dtype, {.kv_heads = config.kv_head_count,
                                                .head_size = config.head_size,
                                                .block_tokens = options.block_tokens});
}

int64_t layers_of(const families::ModelConfig& config, bool sliding) {
  int64_t count = 0;
  for (int i = 0; i < config.layer_count(); ++i) count += config.is_sliding(i) == sliding ? 1 : 0;
  return count;
}

}  // namespace

int64_t KvStorage::full_block_bytes(const families::ModelConfig& config, const Options& options) {
  return layers_of(config, false) * block_bytes(config, options);
}

int64_t KvStorage::window_block_bytes(const families::ModelConfig& config, const Options& options) {
  return layers_of(config, true) * block_bytes(config, options);
}

Result<KvStorage> KvStorage::allocate(const families::ModelConfig& config, const Options& options) {
  KvStorage storage;
  storage.options_ = options;
  storage.bytes_ = full_block_bytes(config, options) * options.full_block_count +
                   window_block_bytes(config, options) * options.window_block_count;
  storage.layer_block_bytes_ = block_bytes(config, options);
  storage.memory_ = ::mmap(nullptr, static_cast<size_t>(storage.bytes_), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (storage.memory_ == MAP_FAILED) {
    storage.memory_ = nullptr;
    return Error{ErrorCode::kDoesNotFit,
                 fmt::format("cannot allocate {} bytes for the KV cache", storage.bytes_)};
  }
  char* at = static_cast<char*>(storage.memory_);
  for (int i = 0; i < config.layer_count(); ++i) {
    const bool sliding = config.is_sliding(i);
    storage.sliding_.push_back(sliding);
    storage.layers_.push_back({.data = at,
                               .dtype = options.dtype,
                               .block_tokens = options.block_tokens,
                               .kv_heads = config.kv_head_count,
                               .head_size = config.head_size});
    at += block_bytes(config, options) *
          (sliding ? options.window_block_count : options.full_block_count);
  }
  return storage;
}

void KvStorage::copy_block(const KvStorage& source, const BlockCopy& copy, int layer) {
  CHECK(source.layer_block_bytes_ == layer_block_bytes_ && source.sliding_ == sliding_,
        "copying between caches of different shapes");
  const size_t i = static_cast<size_t>(layer);
  if (sliding_[i] != copy.sliding) return;
  std::memcpy(static_cast<char*>(layers_[i].data) + copy.to * layer_block_bytes_,
              static_cast<const char*>(source.layers_[i].data) + copy.from * layer_block_bytes_,
              static_cast<size_t>(layer_block_bytes_));
}

KvStorage::KvStorage(KvStorage&& other) noexcept
    : options_(other.options_),
      layers_(std::move(other.layers_)),
      sliding_(std::move(other.sliding_)),
      layer_block_bytes_(other.layer_block_bytes_),
      memory_(std::exchange(other.memory_, nullptr)),
      bytes_(other.bytes_) {}

KvStorage& KvStorage::operator=(KvStorage&& other) noexcept {
  std::swap(options_, other.options_);
  std::swap(layers_, other.layers_);
  std::swap(sliding_, other.sliding_);
  std::swap(layer_block_bytes_, other.layer_block_bytes_);
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

KvStorage::~KvStorage() {
  if (memory_ != nullptr) ::munmap(memory_, static_cast<size_t>(bytes_));
}

}  // namespace pelton::models
