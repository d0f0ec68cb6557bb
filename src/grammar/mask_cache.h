// Masks that were computed once. What tokens a frame allows depends on what stands below it only
// from where a token leaves the frame; so a frame is probed alone, and an entry keeps the tokens
// that stay in it or end with it, and those that go on, as a tree of what is left of them. Bounded;
// guards itself; any thread.
//
// Behind [1 of an array of integers the top is a number. Its entry, made once for all grammars with
// such numbers: the tokens 0 to 9, 12, 123 ... stay in it; 2] and 3} leave it behind their first
// byte, so `rests` is a tree with ] and }; and as the number may end before any byte,
// may_end_at_once. In the array, the walk over the rests allows 2] and not 3}; behind {"a":1 the
// same entry gives 3} and not 2].
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/byte_trie.h"
#include "grammar/machine.h"
#include "grammar/token_trie.h"

namespace pelton::grammar {

struct MaskEntry {
  std::vector<uint64_t> bits;    // of all tokens, or empty:
  std::vector<TokenId> tokens;   // then these
  ByteTrie rests;                // what is left of the tokens that go on below
  uint32_t chars_max = 0;        // the most characters that a token adds to the string
  bool may_end_at_once = false;  // what stands below may go on before any byte (numbers)
  int64_t work = 0;              // what it took to compute (work_budget.h)
  size_t bytes_held() const;
};

// What two frames have in common that allow the same tokens.
struct MaskKey {
  uint64_t content = 0;
  uint64_t state = 0;
  uint64_t length = 0;
  friend bool operator==(const MaskKey&, const MaskKey&) = default;
};

class MaskCache {
 public:
  explicit MaskCache(size_t bytes_max) : bytes_max_(bytes_max) {}

  std::shared_ptr<const MaskEntry> find(const MaskKey& key) const;
  // Full: what is there makes room.
  void insert(const MaskKey& key, std::shared_ptr<const MaskEntry> entry);
  size_t bytes_held() const;

 private:
  struct Hash {
    size_t operator()(const MaskKey& key) const {
      uint64_t hash = key.content ^ key.state * 0x9e3779b97f4a7c15;
      hash = (hash ^ hash >> 31 ^ key.length) * 0xff51afd7ed558ccd;
      return hash ^ hash >> 32;
    }
  };

  const size_t bytes_max_;
  mutable std::mutex mutex_;
  std::unordered_map<MaskKey, std::shared_ptr<const MaskEntry>, Hash> entries_;
  size_t bytes_held_ = 0;
};

}  // namespace pelton::grammar
