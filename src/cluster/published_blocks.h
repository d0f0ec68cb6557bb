// What a worker has said of its prefix cache in vLLM's form, where each block comes with its
// tokens. The cache knows blocks by their names only: which tokens a name stands for is learnt of
// the prompts that come. A block that an answer has filled is said when a prompt first holds it, as
// the next turn of its conversation does. Prompts under a salt or an adapter are not learnt, so
// nothing of them is ever said. One owner.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/token_id.h"
#include "cluster/vllm_events.h"
#include "kv/block_hash.h"
#include "kv/event_log.h"

namespace pelton::cluster {

class PublishedBlocks {
 public:
  // `known_max`: names whose tokens are kept; the oldest go first.
  PublishedBlocks(uint64_t block_seed, size_t known_max)
      : hasher_(block_seed), known_max_(known_max) {}

  void learn(std::span<const TokenId> prompt, int block_tokens);
  // Of the group and tier that are published; what is to be said of it goes to `said`.
  void apply(const kv::Event& event, std::vector<VllmEvent>& said);
  // What is held, and whose tokens have been learnt since.
  void say_learnt(std::vector<VllmEvent>& said);
  // Nothing is held any more, or nobody knows what.
  void clear(std::vector<VllmEvent>& said);

 private:
  struct Known {
    std::optional<uint64_t> parent;  // none: it begins a prompt
    std::vector<TokenId> tokens;
  };
  void say_stored(uint64_t name, const Known& known, std::vector<VllmEvent>& said) const;

  const kv::BlockHasher hasher_;
  const size_t known_max_;
  std::unordered_map<uint64_t, Known> known_;  // by the first 64 bits of its name
  std::deque<uint64_t> order_;                 // of known_, the oldest first
  std::unordered_map<uint64_t, bool> held_;    // whether it has been said
  std::vector<uint64_t> learnt_;               // held, and not said
};

}  // namespace pelton::cluster
