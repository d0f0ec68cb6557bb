// What an engine's steps have done since the start: counted by the core, shown by EngineStats. A
// value.
#pragma once

#include <array>
#include <cstdint>

namespace pelton::engine {

struct StepCounts {
  int64_t count = 0;
  int64_t failed = 0;
  int64_t output_tokens = 0;

  // By how many tokens they computed: at most as many as the bound says, the last: more.
  static constexpr std::array<int, 13> kTokenBounds = {1,   8,    16,   32,   64,   128,  256,
                                                       512, 1024, 2048, 4096, 8192, 16384};
  std::array<int64_t, kTokenBounds.size() + 1> by_tokens{};
  int64_t tokens = 0;  // of all of them
};

}  // namespace pelton::engine
