// Numbers lists of numbers: equal lists get the same number, 0, 1, 2, ... in order of their first
// coming: {3, 5} is 0, {} is 1, {3, 5} is 0 again. What the subset constructions stand on: one
// pool, one hash table, nothing freed before the end. Grows with what is put in: its owner counts.
// One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pelton::grammar {

class ListInterner {
 public:
  ListInterner();

  uint32_t number_of(std::span<const uint64_t> list);
  // Good until the next number_of().
  std::span<const uint64_t> list(uint32_t number) const {
    return {pool_.data() + begins_[number], pool_.data() + begins_[number + 1]};
  }
  uint32_t size() const { return static_cast<uint32_t>(hashes_.size()); }
  size_t members() const { return pool_.size(); }

 private:
  void grow();

  std::vector<uint64_t> pool_;
  std::vector<uint32_t> begins_ = {0};
  std::vector<uint64_t> hashes_;   // by number
  std::vector<uint32_t> buckets_;  // number + 1, or 0; a power of two of them
};

}  // namespace pelton::grammar
