#include "models/kv_storage.h"

#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

#include "base/check.h"

namespace pelton::models {

Result<KvStorage> KvStorage::allocate(const families::ModelConfig& config, const Options& options) {
  KvStorage storage;
  storage.options_ = options;
  storage.groups_ =
      families::kv_groups(config, {.dtype = options.dtype, .block_tokens = options.block_tokens});
  CHECK(options.block_counts.size() == storage.groups_.specs.size(),
        "block counts of other groups than the model's");
  for (int group = 0; group < options.block_counts.size(); ++group) {
    storage.bytes_ += storage.groups_.specs[group].block_bytes * options.block_counts[group];
  }
  if (storage.bytes_ > 0) TRY(storage.map());
  const tensor::KvBlockShape shape = families::kv_block_shape(config, options.block_tokens);
  char* at = static_cast<char*>(storage.memory_);
  for (const int group : storage.groups_.of_layer) {
    storage.layers_.push_back({.data = at,
                               .dtype = options.dtype,
                               .block_tokens = options.block_tokens,
                               .kv_heads = shape.kv_heads,
                               .head_size = shape.head_size,
                               .latent = shape.latent});
    at += storage.groups_.layer_block_bytes[group] * options.block_counts[group];
  }
  return storage;
}

Result<void> KvStorage::map() {
  memory_ = ::mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory_ != MAP_FAILED) return {};
  memory_ = nullptr;
  return Error{ErrorCode::kDoesNotFit,
               fmt::format("cannot allocate {} bytes for the KV cache", bytes_)};
}

void KvStorage::copy_block(const KvStorage& source, const BlockCopy& copy, int layer) {
  CHECK(source.groups_ == groups_, "copying between caches of different shapes");
  const size_t i = static_cast<size_t>(layer);
  if (groups_.of_layer[i] != copy.group) return;
  const int64_t bytes = groups_.layer_block_bytes[copy.group];
  if (bytes == 0) return;  // of several ranks, one without heads
  std::memcpy(static_cast<char*>(layers_[i].data) + copy.to * bytes,
              static_cast<const char*>(source.layers_[i].data) + copy.from * bytes,
              static_cast<size_t>(bytes));
}

void KvStorage::gather(int group, int32_t block, std::span<char> into) const {
  const auto bytes = static_cast<size_t>(groups_.layer_block_bytes[group]);
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (groups_.of_layer[i] != group) continue;
    std::memcpy(into.data(),
                static_cast<const char*>(layers_[i].data) + static_cast<size_t>(block) * bytes,
                bytes);
    into = into.subspan(bytes);
  }
  CHECK(into.empty(), "a block of another size");
}

void KvStorage::scatter(int group, int32_t block, std::span<const char> from) {
  const auto bytes = static_cast<size_t>(groups_.layer_block_bytes[group]);
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (groups_.of_layer[i] != group) continue;
    std::memcpy(static_cast<char*>(layers_[i].data) + static_cast<size_t>(block) * bytes,
                from.data(), bytes);
    from = from.subspan(bytes);
  }
  CHECK(from.empty(), "a block of another size");
}

int64_t KvStorage::release_pages() {
  if (memory_ == nullptr) return 0;
  return ::madvise(memory_, static_cast<size_t>(bytes_), MADV_DONTNEED) == 0 ? bytes_ : 0;
}

KvStorage::KvStorage(KvStorage&& other) noexcept
    : options_(other.options_),
      layers_(std::move(other.layers_)),
      groups_(std::move(other.groups_)),
      memory_(std::exchange(other.memory_, nullptr)),
      bytes_(other.bytes_) {}

KvStorage& KvStorage::operator=(KvStorage&& other) noexcept {
  std::swap(options_, other.options_);
  std::swap(layers_, other.layers_);
  std::swap(groups_, other.groups_);
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

KvStorage::~KvStorage() {
  if (memory_ != nullptr) ::munmap(memory_, static_cast<size_t>(bytes_));
}

}  // namespace pelton::models
