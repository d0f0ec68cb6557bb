// Random numbers for made-up weights: a pure function of (seed, tensor name, element), so that any
// thread may make any part and every machine makes the same bytes.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/random.h"

namespace pelton::checkpoint {

class HashStream {
 public:
  HashStream(uint64_t seed, std::string_view name)
      : key_(base::mix64(base::fnv1a64(name) ^ base::mix64(seed))) {}

  uint64_t at(uint64_t index) const {
    return base::mix64(key_ + (index + 1) * 0x9E3779B97F4A7C15ull);
  }

  uint64_t key() const { return key_; }

 private:
  uint64_t key_;
};

}  // namespace pelton::checkpoint
