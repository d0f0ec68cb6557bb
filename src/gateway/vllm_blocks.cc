#include "gateway/vllm_blocks.h"

#include <span>

namespace pelton::gateway {

void VllmBlocks::apply(const std::vector<cluster::VllmEvent>& events, const kv::BlockHasher& hasher,
                       Changes& changes) {
  using Kind = cluster::VllmEvent::Kind;
  for (const cluster::VllmEvent& event : events) {
    if (event.kind == Kind::kCleared) {
      clear();
      changes.clears = true;
      changes.changes.clear();
      continue;
    }
    // Of a model with several groups of layers the first one sees everything.
    if (event.is_special || event.group != 0) continue;
    event.kind == Kind::kStored ? store(event, hasher, changes) : remove(event, changes);
  }
}

void VllmBlocks::store(const cluster::VllmEvent& event, const kv::BlockHasher& hasher,
                       Changes& changes) {
  kv::BlockHash name = hasher.root({});
  if (event.parent) {
    const auto known = names_.find(*event.parent);
    if (known == names_.end()) return;
    name = known->second;
  }
  block_tokens_ = event.block_tokens;
  const auto block = static_cast<size_t>(event.block_tokens);
  for (size_t i = 0; i < event.hashes.size() && names_.size() < kBlocksMax; ++i) {
    name = hasher.extend(name, std::span(event.tokens).subspan(i * block, block));
    names_[event.hashes[i]] = name;
    changes.changes.push_back({.stored = true, .name = name});
  }
}

void VllmBlocks::remove(const cluster::VllmEvent& event, Changes& changes) {
  for (const uint64_t hash : event.hashes) {
    const auto known = names_.find(hash);
    if (known == names_.end()) continue;
    changes.changes.push_back({.stored = false, .name = known->second});
    names_.erase(known);
  }
}

}  // namespace pelton::gateway
