#include "gateway/prefix_index.h"

#include <cstdlib>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace pelton::gateway {
namespace {

kv::BlockHash name(uint64_t number) {
  return {.low = base::mix64(number + 1), .high = number};
}

std::vector<kv::BlockHash> names(uint64_t first, uint64_t count) {
  std::vector<kv::BlockHash> all;
  for (uint64_t i = 0; i < count; ++i) all.push_back(name(first + i));
  return all;
}

TEST(PrefixIndex, CountsTheBlocksFromTheFirstOn) {
  PrefixIndex index(1 << 16);
  for (uint64_t i = 0; i < 10; ++i) index.add(name(i), 0);
  for (uint64_t i = 0; i < 4; ++i) index.add(name(i), 1);
  for (uint64_t i = 5; i < 10; ++i) index.add(name(i), 1);
  for (uint64_t i = 1; i < 10; ++i) index.add(name(i), 2);
  std::vector<int> hits(4);
  index.find(names(0, 20), nullptr, hits);
  EXPECT_EQ(hits, (std::vector<int>{10, 4, 0, 0}));
  index.remove(name(2), 0);
  index.find(names(0, 20), nullptr, hits);
  EXPECT_EQ(hits, (std::vector<int>{2, 4, 0, 0}));
  index.forget(1);
  index.find(names(0, 20), nullptr, hits);
  EXPECT_EQ(hits, (std::vector<int>{2, 0, 0, 0}));
}

// Against a map of sets, over random adds, removals and losses of a worker.
TEST(PrefixIndex, IsWhatAMapWouldBe) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    PrefixIndex index(1 << 14);
    std::map<uint64_t, std::set<int>> map;
    for (uint64_t step = 0; step < 3000; ++step) {
      const uint64_t bits = base::random_bits(seed, step);
      const uint64_t block = bits % 300;
      const int worker = static_cast<int>((bits >> 20) % 9);
      if (bits >> 60 < 9) {
        index.add(name(block), worker);
        map[block].insert(worker);
      } else if ((bits >> 40) % 200 != 0) {
        index.remove(name(block), worker);
        map[block].erase(worker);
      } else {
        index.forget(worker);
        for (auto& [one, workers] : map) workers.erase(worker);
      }
      if (seed % 2 == 0) index.sweep(bits % 40);
    }
    while (!index.sweep(100)) {
    }
    std::erase_if(map, [](const auto& one) { return one.second.empty(); });
    EXPECT_EQ(index.size(), map.size()) << seed;
    for (int worker = 0; worker < 9; ++worker) {
      size_t held = 0;
      for (const auto& [block, workers] : map) held += workers.count(worker);
      EXPECT_EQ(index.held_by(worker), held) << seed;
    }
    for (uint64_t block = 0; block < 300; ++block) {
      std::vector<int> hits(9);
      index.find(names(block, 1), nullptr, hits);
      for (int worker = 0; worker < 9; ++worker) {
        EXPECT_EQ(hits[static_cast<size_t>(worker)],
                  map.contains(block) && map[block].contains(worker) ? 1 : 0)
            << seed;
      }
    }
  }
}

// However large the table is: what it held is void at once, and freed piece by piece.
TEST(PrefixIndex, ForgetsWithoutAScan) {
  PrefixIndex index(1 << 20);
  const std::vector<kv::BlockHash> all = names(0, 40'000);
  std::vector<int> hits(2);
  for (int round = 0; round < 40; ++round) {
    for (const kv::BlockHash& one : all) index.add(one, 0);
    index.add(name(7), 1);
    index.forget(0);
    ASSERT_FALSE(index.holds(name(3), 0)) << round;
    ASSERT_TRUE(index.holds(name(7), 1));
    index.find(all, nullptr, hits);
    ASSERT_EQ(hits, (std::vector<int>{0, 0}));
    ASSERT_EQ(index.size(), 40'000u) << "not scanned yet";
    if (round % 3 == 0) {
      for (int piece = 0; piece < 7; ++piece) ASSERT_FALSE(index.sweep(8192)) << piece;
      ASSERT_TRUE(index.sweep(8192));
      ASSERT_EQ(index.size(), 1u);
    }
  }
}

// GW-11: ever new prefixes take no more than they may, and what is used stays.
TEST(PrefixIndex, IsBounded) {
  PrefixIndex index(1 << 14);
  const size_t most = (1 << 14) / 16 / 3 * 2;
  std::vector<int> hits(2);
  const uint64_t count = std::getenv("PELTON_FULL") != nullptr ? 10'000'000 : 100'000;
  for (uint64_t i = 0; i < count; ++i) {
    index.add(name(i + 1000), static_cast<int>(i % 2));
    index.add(name(1), 1);
    ASSERT_LE(index.size(), most);
  }
  EXPECT_GT(index.evictions(), 90'000);
  index.find(names(1, 1), nullptr, hits);
  EXPECT_EQ(hits[1], 1);
  EXPECT_EQ(index.held_by(0) + index.held_by(1), index.size()) << "each of them by one";
  EXPECT_EQ(index.updates(), static_cast<int64_t>(2 * count));
}

}  // namespace
}  // namespace pelton::gateway
