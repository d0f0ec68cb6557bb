// Random exchanges under random delays against what they should deliver: every number is a function
// of (round, row, column), so a stale, torn or misplaced one shows. For tests of every transport:
// one rank's side, to be called on each with the same seed.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "base/random.h"
#include "parallel/exchange.h"

namespace pelton::parallel {

inline uint32_t number(uint64_t round, int64_t row, int64_t column) {
  return static_cast<uint32_t>(
      base::random_bits(round, static_cast<uint64_t>(row * 100'003 + column)));
}

// One rank's side of so many rounds, drawn by the same seed on all.
inline void take_part(Exchange& exchange, uint64_t seed, int rounds, std::atomic<int>& wrong) {
  std::mt19937_64 random(seed);
  std::mt19937_64 own(seed + 1 + static_cast<uint64_t>(exchange.rank()));
  const int64_t before = exchange.counts().exchanges;
  for (int round = 0; round < rounds && wrong == 0; ++round) {
    const int columns = 1 + static_cast<int>(random() % 60);
    const auto rows = static_cast<int64_t>(1 + random() % 90);  // some need several parts
    std::vector<int> weights(static_cast<size_t>(exchange.ranks()));
    for (int& weight : weights) weight = static_cast<int>(random() % 4);
    weights[random() % weights.size()] += 1;
    const bool in_place = random() % 2 == 0;
    const bool leader_only = random() % 4 == 0;
    const Share share = Share::make(columns, 1, weights);
    const int first = share.begin(exchange.rank());
    const int count = share.count(exchange.rank());
    if (own() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 300));

    std::vector<uint32_t> whole(static_cast<size_t>(rows * columns), 0xDEAD);
    std::vector<uint32_t> part(static_cast<size_t>(rows * count) + 1);
    for (int64_t row = 0; row < rows; ++row) {
      for (int i = 0; i < count; ++i) {
        const uint32_t value = number(static_cast<uint64_t>(round), row, first + i);
        part[static_cast<size_t>(row * count + i)] = value;
        if (in_place) whole[static_cast<size_t>(row * columns + first + i)] = value;
      }
    }
    const bool needs = !leader_only || exchange.rank() == 0;
    const void* const from =
        in_place ? static_cast<const void*>(whole.data() + first) : part.data();
    exchange.all_gather(share,
                        {.part = from,
                         .part_stride = 4 * (in_place ? columns : count),
                         .whole = needs ? whole.data() : nullptr,
                         .whole_stride = 4 * columns,
                         .column_bytes = 4},
                        rows);
    for (int64_t row = 0; needs && row < rows; ++row) {
      for (int column = 0; column < columns; ++column) {
        const uint32_t got = whole[static_cast<size_t>(row * columns + column)];
        if (got != number(static_cast<uint64_t>(round), row, column)) ++wrong;
      }
    }
  }
  wrong += exchange.failed() || exchange.counts().exchanges - before != rounds;
}

// Rows that are one rank's each, whosever; some ranks have none of a call's.
inline void take_part_by_rows(Exchange& exchange, uint64_t seed, int rounds,
                              std::atomic<int>& wrong) {
  std::mt19937_64 random(seed);
  std::mt19937_64 own(seed + 1 + static_cast<uint64_t>(exchange.rank()));
  const int64_t before = exchange.counts().rows;
  int64_t own_rows = 0;
  for (int round = 0; round < rounds && wrong == 0; ++round) {
    const int columns = 1 + static_cast<int>(random() % 60);
    const auto rows = static_cast<int64_t>(random() % 90);
    const auto ranks = 1 + random() % static_cast<uint64_t>(exchange.ranks());
    std::vector<int> ranks_of(static_cast<size_t>(rows));
    for (int& rank : ranks_of) rank = static_cast<int>(random() % ranks);
    if (own() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 300));
    std::vector<uint32_t> whole(static_cast<size_t>(rows * columns), 0xDEAD);
    const auto each = [&](const auto& sees) {
      for (int64_t row = 0; row < rows; ++row) {
        for (int column = 0; column < columns; ++column) {
          sees(row, whole[static_cast<size_t>(row * columns + column)],
               number(static_cast<uint64_t>(round), row, column));
        }
      }
    };
    each([&](int64_t row, uint32_t& value, uint32_t right) {
      if (ranks_of[static_cast<size_t>(row)] == exchange.rank()) value = right;
    });
    own_rows += std::ranges::count(ranks_of, exchange.rank());
    exchange.gather_rows({.data = whole.data(), .row_bytes = int64_t{4} * columns, .count = rows},
                         [&](int64_t row) { return ranks_of[static_cast<size_t>(row)]; });
    each([&](int64_t, uint32_t value, uint32_t right) { wrong += value != right; });
  }
  wrong += exchange.failed() || exchange.counts().rows - before != own_rows;
}

}  // namespace pelton::parallel
