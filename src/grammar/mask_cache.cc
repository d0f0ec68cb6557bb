#include "grammar/mask_cache.h"

namespace pelton::grammar {

size_t MaskEntry::bytes_held() const {
  return sizeof(*this) + bits.capacity() * 8 + tokens.capacity() * 4 + rests.bytes_held();
}

std::shared_ptr<const MaskEntry> MaskCache::find(const MaskKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : found->second;
}

void MaskCache::insert(const MaskKey& key, std::shared_ptr<const MaskEntry> entry) {
  const size_t bytes = entry->bytes_held() + 64;
  const std::lock_guard lock(mutex_);
  if (bytes > bytes_max_) return;
  if (bytes_held_ + bytes > bytes_max_) {
    entries_.clear();
    bytes_held_ = 0;
  }
  if (entries_.emplace(key, std::move(entry)).second) bytes_held_ += bytes;
}

size_t MaskCache::bytes_held() const {
  const std::lock_guard lock(mutex_);
  return bytes_held_;
}

}  // namespace pelton::grammar
