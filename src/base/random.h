// Counter-based randomness: a pure function of (seed, counter), so that a draw is the same whatever
// batch, thread or order it is made in. splitmix64 (Steele, Lea, Flood 2014).
#pragma once

#include <cstdint>
#include <string_view>

namespace pelton::base {

constexpr uint64_t mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// The counter-th draw of the stream `seed`, 64 uniform bits.
constexpr uint64_t random_bits(uint64_t seed, uint64_t counter) {
  return mix64(mix64(seed) + (counter + 1) * 0x9E3779B97F4A7C15ull);
}

// Uniform in [0, 1), 53 bits.
constexpr double random_unit(uint64_t seed, uint64_t counter) {
  return static_cast<double>(random_bits(seed, counter) >> 11) * 0x1.0p-53;
}

constexpr uint64_t fnv1a64(std::string_view bytes) {
  uint64_t hash = 0xCBF29CE484222325ull;
  for (const char c : bytes) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  }
  return hash;
}

}  // namespace pelton::base
