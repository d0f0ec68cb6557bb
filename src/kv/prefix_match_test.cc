// Caching, evicting and finding blocks; hits that every group can serve.
#include "kv/prefix_match.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "kv/block_index.h"
#include "kv/block_table.h"

namespace pelton::kv {
namespace {

using testing::ElementsAre;

using EvictionPriority = BlockPool::EvictionPriority;

BlockHash name(uint64_t number) {
  return {base::mix64(number + 1), base::mix64(number + 1000)};
}

TEST(BlockPool, a_cached_block_is_found_until_it_is_evicted) {
  BlockPool pool({.block_count = 3, .block_tokens = 4});
  std::vector<BlockId> taken;
  ASSERT_TRUE(pool.take(2, taken));
  pool.cache(taken[0], name(1), EvictionPriority::kLast);
  pool.cache(taken[1], name(2), EvictionPriority::kLast);
  pool.give_back(taken);
  EXPECT_EQ(pool.free_count(), 3);
  EXPECT_EQ(pool.unreferenced_count(), 2);
  EXPECT_EQ(pool.find(name(1)), 0);

  std::vector<BlockId> others;
  ASSERT_TRUE(pool.take(1, others));
  EXPECT_THAT(others, ElementsAre(2));  // the one that remembers nothing
  ASSERT_TRUE(pool.take(1, others));
  EXPECT_EQ(pool.find(name(2)), kNoBlock) << "the last of a sequence goes first";
  EXPECT_EQ(pool.find(name(1)), 0);
  pool.share(0);
  EXPECT_FALSE(pool.take(1, others)) << "a block that somebody holds is never taken";
  pool.check_integrity();
}

TEST(BlockPool, passing_blocks_go_before_lasting_ones_then_the_longest_left) {
  BlockPool pool({.block_count = 4, .block_tokens = 4});
  std::vector<BlockId> taken;
  ASSERT_TRUE(pool.take(4, taken));
  for (uint64_t i = 0; i < 4; ++i) {
    pool.cache(taken[i], name(i), i < 2 ? EvictionPriority::kLast : EvictionPriority::kFirst);
  }
  for (const size_t i : {0, 1, 3, 2}) pool.give_back({&taken[i], 1});
  std::vector<BlockId> again;
  ASSERT_TRUE(pool.take(4, again));
  EXPECT_THAT(again, ElementsAre(3, 2, 0, 1));
  EXPECT_EQ(pool.cached_count(), 0);
}

TEST(BlockPool, one_name_leads_to_one_block) {
  BlockPool pool({.block_count = 2, .block_tokens = 4});
  std::vector<BlockId> taken;
  ASSERT_TRUE(pool.take(2, taken));
  pool.cache(taken[0], name(1), EvictionPriority::kLast);
  pool.cache(taken[1], name(1), EvictionPriority::kLast);
  EXPECT_EQ(pool.find(name(1)), 0);
  EXPECT_FALSE(pool.cached(taken[1]));
  pool.evict_all();
  EXPECT_EQ(pool.find(name(1)), kNoBlock);
  EXPECT_EQ(pool.used_count(), 2);
  pool.check_integrity();
}

TEST(EventLog, tells_in_order_and_counts_what_it_forgot) {
  EventLog log(4);
  BlockPool pool({.block_count = 1, .block_tokens = 4, .events = &log, .group = 1});
  for (uint64_t i = 0; i < 3; ++i) {
    std::vector<BlockId> taken;
    ASSERT_TRUE(pool.take(1, taken));
    pool.cache(taken[0], name(i), EvictionPriority::kFirst);
    pool.give_back(taken);
  }
  const EventLog::Reading all = log.read({.from = 0, .events_max = 100});
  EXPECT_EQ(all.missed, 1);
  ASSERT_EQ(all.events.size(), 4u);
  EXPECT_EQ(all.events[0].number, 1);
  EXPECT_EQ(all.events[0].kind, Event::Kind::kRemoved);
  EXPECT_EQ(all.events[0].block, name(0));
  EXPECT_EQ(all.events[1].kind, Event::Kind::kStored);
  EXPECT_EQ(all.events[1].group, 1);
  EXPECT_EQ(all.next, 5);
  EXPECT_EQ(log.dropped_count(), 1);
  const EventLog::Reading part = log.read({.from = 3, .events_max = 1});
  EXPECT_EQ(part.missed, 0);
  EXPECT_EQ(part.next, 4);
  EXPECT_TRUE(log.read({.from = 5, .events_max = 1}).events.empty());
}

TEST(BlockIndex, keeps_what_a_map_keeps) {
  constexpr uint64_t kSeed = 5;
  BlockIndex index(40);
  std::map<uint64_t, BlockId> known;
  for (uint64_t turn = 0; turn < 50'000; ++turn) {
    const uint64_t key = base::random_bits(kSeed, turn) % 60;
    const BlockHash hash{key % 7, key};  // few homes: long runs
    if (known.count(key)) {
      ASSERT_EQ(index.find(hash), known[key]);
      index.erase(hash);
      known.erase(key);
    } else {
      ASSERT_EQ(index.find(hash), kNoBlock);
      if (known.size() == 40) continue;
      index.insert(hash, static_cast<BlockId>(key));
      known[key] = static_cast<BlockId>(key);
    }
    ASSERT_EQ(index.size(), static_cast<int>(known.size()));
  }
}

// Groups of any number and kind: none that keeps every token, or several of one window.
PerGroup<GroupCapacity> random_groups(const std::function<int(int)>& random) {
  PerGroup<GroupCapacity> groups;
  const int count = 1 + random(4);
  for (int group = 0; group < count; ++group) {
    const int window = random(2) == 0 ? 0 : 1 + random(20);
    groups.push_back({{.name = std::to_string(group), .sliding_window = window}, {16, 16}});
  }
  return groups;
}

// A hit is the longest n such that in every group all blocks up to n, or those seen by the query at
// n, are there: compared with trying every n.
TEST(PrefixMatch, is_the_longest_hit_that_every_group_can_serve) {
  constexpr uint64_t kSeed = 20260102;
  uint64_t draw = 0;
  const auto random = [&](int below) {
    return static_cast<int>(base::random_bits(kSeed, draw++) % static_cast<uint64_t>(below));
  };
  std::map<std::pair<int, int>, int> reached;  // by full and sliding groups: hits of some, not all
  for (int round = 0; round < 20'000; ++round) {
    const int block_tokens = 1 + random(6);
    const int count = random(14);
    const PerGroup<GroupCapacity> groups = random_groups(random);
    BlockPools pools({.groups = groups, .block_tokens = block_tokens});
    std::vector<BlockHash> hashes;
    for (int i = 0; i < count; ++i) hashes.push_back(name(static_cast<uint64_t>(i)));
    int full = 0;
    for (int group = 0; group < groups.size(); ++group) {
      full += groups[group].spec.slides() ? 0 : 1;
      const int missing = 1 + random(groups[group].spec.slides() ? 6 : 12);
      for (const BlockHash& hash : hashes) {
        if (random(missing) == 0 && missing != 1) continue;
        BlockPool& pool = pools.pool(group, random(4) == 0 ? kHost : kDevice);
        std::vector<BlockId> taken;
        ASSERT_TRUE(pool.take(1, taken));
        pool.cache(taken[0], hash, EvictionPriority::kLast);
      }
    }
    for (const Tier furthest : {kDevice, kHost}) {
      int expected = 0;
      int kept = 0;  // served by the groups without a window
      for (int hit = 1; hit <= count; ++hit) {
        bool served = true;
        bool in_full = full > 0;
        for (int group = 0; group < groups.size(); ++group) {
          const int window = groups[group].spec.sliding_window;
          for (int i = 0; i < hit; ++i) {
            const bool seen =
                window == 0 || (i + 1) * block_tokens > hit * block_tokens - window + 1;
            const BlockHash& hash = hashes[static_cast<size_t>(i)];
            const bool there = pools.find(group, hash, furthest).block != kNoBlock;
            served = served && (!seen || there);
            in_full = in_full && (window != 0 || there);
          }
        }
        if (served) expected = hit;
        if (in_full) kept = hit;
      }
      const PrefixHit found = longest_hit({.hashes = hashes, .furthest = furthest}, pools);
      ASSERT_EQ(found.blocks, expected) << "round " << round;
      ASSERT_EQ(found.parts_at, full > 0 ? kept : expected) << "round " << round;
      if (expected > 0 && expected < count) ++reached[{full, groups.size() - full}];
    }
  }
  for (const auto& groups : {std::pair(1, 0), {0, 1}, {1, 1}, {0, 2}, {1, 2}, {2, 1}, {0, 3}}) {
    EXPECT_GT(reached[groups], 50) << groups.first << " full, " << groups.second << " sliding";
  }
}

TEST(GroupSpec, says_what_a_query_sees_and_how_many_blocks_that_takes) {
  const GroupSpec full{.name = "full"};
  EXPECT_EQ(full.first_seen(1000), 0);
  EXPECT_EQ(full.blocks_at_once(17, 4), 5);
  const GroupSpec window{.name = "window", .sliding_window = 5};
  EXPECT_EQ(window.first_seen(3), 0);
  EXPECT_EQ(window.first_seen(8), 4);
  // Whatever the query, its window lies in so many blocks at most, and for some query in as many.
  for (int tokens = 1; tokens < 40; ++tokens) {
    int most = 0;
    for (int query = 0; query < tokens; ++query) {
      most = std::max(most, query / 4 - window.first_seen(query) / 4 + 1);
    }
    EXPECT_EQ(window.blocks_at_once(tokens, 4), most) << tokens;
  }
  EXPECT_EQ(pool_name(window, kDevice), "window");
  EXPECT_EQ(pool_name(window, kHost), "host_window");
}

TEST(GroupSpec, the_widest_group_keeps_every_token_if_any_does) {
  const auto widest = [](std::initializer_list<int> windows) {
    PerGroup<GroupCapacity> groups;
    for (const int window : windows) groups.push_back({.spec = {.sliding_window = window}});
    return widest_group(groups);
  };
  EXPECT_EQ(widest({128}), 0);
  EXPECT_EQ(widest({0, 128}), 0);
  EXPECT_EQ(widest({128, 0}), 1);
  EXPECT_EQ(widest({128, 512, 256}), 1);
  EXPECT_EQ(widest({128, 512, 0, 0}), 2);
}

// Tables over a pool that caches: whoever references or finds what, nothing is lost.
TEST(BlockTable, random_use_with_caching_loses_nothing) {
  constexpr uint64_t kSeed = 20260103;
  uint64_t draw = 0;
  const auto random = [&](int below) {
    return static_cast<int>(base::random_bits(kSeed, draw++) % static_cast<uint64_t>(below));
  };
  BlockPool pool({.block_count = 24, .block_tokens = 4});
  std::vector<std::unique_ptr<BlockTable>> tables;
  for (int i = 0; i < 5; ++i) tables.push_back(std::make_unique<BlockTable>(pool));
  for (int turn = 0; turn < 20'000; ++turn) {
    BlockTable& table = *tables[static_cast<size_t>(random(5))];
    const int length = static_cast<int>(table.blocks().size());
    switch (random(5)) {
      case 0:
        table.clear();
        break;
      case 1:
        table.drop_before(random(length * 4 + 1));
        break;
      case 2: {
        const BlockId found = pool.find(name(static_cast<uint64_t>(random(40))));
        if (found == kNoBlock) break;
        table.clear();
        table.adopt(random(3), {&found, 1});
        break;
      }
      default:
        if (!table.cover(length * 4 + 3)) break;
        pool.cache(table.blocks().back(), name(static_cast<uint64_t>(random(40))),
                   random(2) == 0 ? EvictionPriority::kFirst : EvictionPriority::kLast);
    }
    pool.check_integrity();
    std::vector<int> seen(24, 0);
    for (const std::unique_ptr<BlockTable>& held : tables) {
      for (const BlockId block : held->blocks()) {
        if (block != kNoBlock) ++seen[static_cast<size_t>(block)];
      }
    }
    for (BlockId block = 0; block < 24; ++block) {
      ASSERT_EQ(seen[static_cast<size_t>(block)], pool.ref_count(block));
    }
  }
}

}  // namespace
}  // namespace pelton::kv
