// What makes a request's answer the same wherever it is computed: the random numbers that are drawn
// for it (the seed of one that gives none, ids) and its date. A gateway gives it with a request
// that may have to go on elsewhere; otherwise the server draws it. Used by one stage of the request
// at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/random.h"

namespace pelton::server {

struct RequestIdentity {
  uint64_t seed = 0;
  int64_t created_ms = 0;  // since 1970
  std::string date = {};   // of its prompt, as a gateway says it; empty: the clock's
  // Of `serve --seed`: what the seeds of requests that give none are drawn from instead.
  std::optional<uint64_t> sampling_seed = {};
  uint64_t draws = 0;  // made so far

  int64_t created_s() const { return created_ms / 1000; }
  std::string prompt_date() const { return date.empty() ? base::local_date(created_ms) : date; }
  uint64_t draw() { return base::random_bits(seed, draws++); }
  uint64_t draw_seed() {
    return sampling_seed ? base::random_bits(*sampling_seed, draws++) : draw();
  }
};

}  // namespace pelton::server
