// What makes a request's answer the same wherever it is computed: the random numbers that are drawn
// for it (the seed of one that gives none, ids) and its date. A gateway gives it with a request
// that may have to go on elsewhere; otherwise the server draws it. Used by one stage of the request
// at a time.
#pragma once

#include <cstdint>

#include "base/random.h"

namespace pelton::server {

struct RequestIdentity {
  uint64_t seed = 0;
  int64_t created_ms = 0;  // since 1970
  uint64_t draws = 0;      // made so far

  int64_t created_s() const { return created_ms / 1000; }
  uint64_t draw() { return base::random_bits(seed, draws++); }
};

}  // namespace pelton::server
