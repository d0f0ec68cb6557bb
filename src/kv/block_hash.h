// The name of a KV block's content: a chained hash of (parent's hash, the block's tokens), started
// from (adapter, tenant's salt). The engine's prefix cache and the gateway link this same function.
//
// Why this hash: equal names are taken for equal content, so nobody may be able to make two
// contents of one name. Each 64 bytes go through two Toeplitz-shifted NH sums (Black et al. 1999)
// under secret keys, which for any two different strips agree with probability 2^-128 whatever an
// attacker chooses, as long as he does not know the seed; the 256 bits are then mixed into the 128
// of the chain. A seed is drawn for each process or fleet, never a constant. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/token_id.h"

namespace pelton::kv {

struct BlockHash {
  uint64_t low = 0;
  uint64_t high = 0;

  bool operator==(const BlockHash&) const = default;
};

class BlockHasher {
 public:
  // All of a fleet's processes that share one seed give one content one name.
  explicit BlockHasher(uint64_t seed);

  // The parent of a sequence's first block. Sequences with different salts or adapters share
  // nothing.
  struct Origin {
    std::string_view salt;
    int64_t adapter = 0;  // 0: the model itself
  };
  BlockHash root(const Origin& origin) const;

  // `tokens`: all of one block's.
  BlockHash extend(const BlockHash& parent, std::span<const TokenId> tokens) const;

 private:
  static constexpr size_t kStripBytes = 64;

  BlockHash absorb(BlockHash state, const char* bytes, size_t byte_count) const;
  BlockHash absorb_strip(const BlockHash& state, const char* strip) const;

  std::array<uint64_t, 10> keys_;  // eight for a strip and two more for the shifted sum
  BlockHash start_;
};

}  // namespace pelton::kv
