// The blocks that one vLLM worker holds, as it says (cluster/vllm_events.h), under the names that
// this gateway gives to prompts' blocks: their tokens are known, so its own hashes need not be
// understood. One owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "cluster/vllm_events.h"
#include "kv/block_hash.h"

namespace pelton::gateway {

class VllmBlocks {
 public:
  // What its worker has come to hold, and let go.
  struct Change {
    bool stored = true;
    kv::BlockHash name;
  };
  struct Changes {
    bool clears = false;  // before the others: it holds nothing any more
    std::vector<Change> changes;
  };

  // Blocks behind a parent that is not known have no name: they are passed over, which hides a hit.
  void apply(const std::vector<cluster::VllmEvent>& events, const kv::BlockHasher& hasher,
             Changes& changes);
  void clear() { names_.clear(); }

  int block_tokens() const { return block_tokens_; }  // 0: not known yet
  size_t size() const { return names_.size(); }

 private:
  static constexpr size_t kBlocksMax = size_t{1} << 21;

  void store(const cluster::VllmEvent& event, const kv::BlockHasher& hasher, Changes& changes);
  void remove(const cluster::VllmEvent& event, Changes& changes);

  int block_tokens_ = 0;
  std::unordered_map<uint64_t, kv::BlockHash> names_;  // by its own
};

}  // namespace pelton::gateway
