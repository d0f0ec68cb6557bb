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

  // Of those that gave an embedding, by their tokens' share of the most that a step may hold (of a
  // prompt's chunk beside chats' tokens, that of all); the last range takes what is above the last
  // bound, of which there is nothing.
  static constexpr std::array<double, 10> kFillBounds = {0.01, 0.02, 0.05, 0.1, 0.2,
                                                         0.3,  0.5,  0.7,  0.9, 1.0};
  std::array<int64_t, kFillBounds.size() + 1> by_fill{};
  double fill_sum = 0;
};

}  // namespace pelton::engine
