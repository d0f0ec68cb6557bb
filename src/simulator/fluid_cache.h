// How much of a prompt a replica's prefix cache would still have, at the fluid fidelity: one book
// of blocks for all replicas. A block that was used k times is where a request goes with
// probability 1 - (1 - 1 / replicas)^k, with certainty under a router that looks at prefixes; it is
// gone when as many tokens were stored since as all caches hold. One owner, one thread.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>

#include "base/token_id.h"
#include "simulator/simulation.h"

namespace pelton::simulator {

class FluidCache {
 public:
  explicit FluidCache(const SimulationOptions& options);

  struct Fleet {
    int replicas = 1;
    double tokens = 0;             // that their caches hold beside what runs
    bool is_same_replica = false;  // as the conversation's earlier turns
  };
  // Tokens at the prompt's beginning, as expected.
  double found(std::span<const TokenId> prompt, const Fleet& fleet) const;
  // It was computed, and can be found from now on.
  void note(std::span<const TokenId> prompt);

 private:
  struct Block {
    int64_t stored = 0;  // tokens that had been stored when it was last used
    int uses = 0;
  };

  const bool is_on_;
  const bool follows_prefixes_;
  const size_t block_tokens_;
  std::unordered_map<uint64_t, Block> blocks_;
  int64_t stored_ = 0;
};

}  // namespace pelton::simulator
