#include "kv/block_pool.h"

#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "kv/block_table.h"

namespace pelton::kv {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(BlockPool, takes_all_or_nothing) {
  BlockPool pool({.block_count = 3, .block_tokens = 4});
  std::vector<BlockId> taken;
  EXPECT_FALSE(pool.take(4, taken));
  EXPECT_THAT(taken, IsEmpty());
  EXPECT_EQ(pool.free_count(), 3);
  EXPECT_TRUE(pool.take(2, taken));
  EXPECT_THAT(taken, ElementsAre(0, 1));
  EXPECT_FALSE(pool.take(2, taken));
  EXPECT_EQ(pool.used_count(), 2);
}

TEST(BlockPool, last_freed_is_first_taken_and_in_order) {
  BlockPool pool({.block_count = 4, .block_tokens = 4});
  std::vector<BlockId> taken;
  ASSERT_TRUE(pool.take(3, taken));
  pool.give_back(taken);
  std::vector<BlockId> again;
  ASSERT_TRUE(pool.take(2, again));
  EXPECT_THAT(again, ElementsAre(0, 1));
}

TEST(BlockPool, a_shared_block_is_freed_by_its_last_holder) {
  BlockPool pool({.block_count = 2, .block_tokens = 4});
  std::vector<BlockId> taken;
  ASSERT_TRUE(pool.take(1, taken));
  pool.share(taken[0]);
  EXPECT_EQ(pool.ref_count(taken[0]), 2);
  pool.give_back(taken);
  EXPECT_EQ(pool.free_count(), 1);
  pool.give_back(taken);
  EXPECT_EQ(pool.free_count(), 2);
}

TEST(BlockPoolDeathTest, giving_back_twice_is_a_bug) {
  BlockPool pool({.block_count = 2, .block_tokens = 4});
  std::vector<BlockId> taken;
  ASSERT_TRUE(pool.take(1, taken));
  pool.give_back(taken);
  EXPECT_DEATH(pool.give_back(taken), "given back twice");
  EXPECT_DEATH(pool.share(taken[0]), "sharing a free block");
}

TEST(BlockTable, covers_drops_and_clears) {
  BlockPool pool({.block_count = 4, .block_tokens = 4});
  BlockTable table(pool);
  EXPECT_EQ(table.reach(), 16);
  ASSERT_TRUE(table.cover(9));
  EXPECT_THAT(table.blocks(), ElementsAre(0, 1, 2));
  ASSERT_TRUE(table.cover(12));  // the third block has room
  EXPECT_EQ(pool.used_count(), 3);

  table.drop_before(7);  // position 7 is in block 1, which stays
  EXPECT_THAT(table.blocks(), ElementsAre(kNoBlock, 1, 2));
  EXPECT_EQ(table.held_count(), 2);
  EXPECT_EQ(table.reach(), 20);
  ASSERT_TRUE(table.cover(20));
  EXPECT_THAT(table.blocks(), ElementsAre(kNoBlock, 1, 2, 0, 3));
  EXPECT_FALSE(table.cover(21));

  table.clear();
  EXPECT_EQ(pool.free_count(), 4);
}

TEST(BlockTable, shrinks_to_what_so_many_tokens_need) {
  BlockPool pool({.block_count = 6, .block_tokens = 4});
  BlockTable table(pool);
  ASSERT_TRUE(table.cover(20));
  table.drop_before(4);
  table.shrink(17);
  EXPECT_EQ(table.blocks().size(), 5u);
  table.shrink(9);
  EXPECT_EQ(table.blocks().size(), 3u);
  EXPECT_EQ(pool.used_count(), 2);
  table.shrink(0);  // what has left the window keeps its entry
  EXPECT_EQ(table.blocks().size(), 1u);
  EXPECT_EQ(table.dropped_count(), 1);
  EXPECT_EQ(pool.used_count(), 0);
  EXPECT_TRUE(table.cover(8));
  EXPECT_EQ(table.held_count(), 1);
}

TEST(BlockTable, dropping_beyond_the_end_drops_what_there_is) {
  BlockPool pool({.block_count = 4, .block_tokens = 4});
  BlockTable table(pool);
  ASSERT_TRUE(table.cover(5));
  table.drop_before(-3);
  EXPECT_EQ(table.held_count(), 2);
  table.drop_before(100);
  EXPECT_EQ(table.held_count(), 0);
  EXPECT_EQ(pool.free_count(), 4);
}

// Many tables over one pool: never two owners of a block, and used blocks are the held ones.
TEST(BlockTable, random_use_keeps_every_block_in_one_place) {
  const uint64_t seed = 20260101;
  SCOPED_TRACE(seed);
  uint64_t draw = 0;
  const auto random = [&](int below) {
    return static_cast<int>(base::random_bits(seed, draw++) % static_cast<uint64_t>(below));
  };
  BlockPool pool({.block_count = 24, .block_tokens = 4});
  std::vector<std::unique_ptr<BlockTable>> tables;
  std::vector<int> lengths(6, 0);
  for (int i = 0; i < 6; ++i) tables.push_back(std::make_unique<BlockTable>(pool));
  for (int turn = 0; turn < 20000; ++turn) {
    const size_t i = static_cast<size_t>(random(6));
    switch (random(4)) {
      case 0:
        tables[i]->clear();
        lengths[i] = 0;
        break;
      case 1:
        tables[i]->drop_before(random(lengths[i] + 1));
        break;
      default:
        if (tables[i]->cover(lengths[i] + 3)) lengths[i] += 3;
    }
    std::vector<int> seen(24, 0);
    int held = 0;
    for (const std::unique_ptr<BlockTable>& table : tables) {
      held += table->held_count();
      for (const BlockId block : table->blocks()) {
        if (block == kNoBlock) continue;
        ASSERT_EQ(++seen[static_cast<size_t>(block)], 1);
      }
    }
    ASSERT_EQ(held, pool.used_count());
  }
}

TEST(BlockPool, says_what_it_evicts_in_order) {
  std::vector<BlockPool::Eviction> evictions;
  BlockPool pool({.block_count = 3, .block_tokens = 4, .group = 1, .evictions = &evictions});
  std::vector<BlockId> taken;
  ASSERT_TRUE(pool.take(3, taken));
  using Priority = BlockPool::EvictionPriority;
  pool.cache(taken[0], {.low = 10}, Priority::kLast);
  pool.cache(taken[1], {.low = 11}, Priority::kFirst);
  pool.set_owner(taken[0], 7);
  pool.give_back(taken);
  std::vector<BlockId> again;
  ASSERT_TRUE(pool.take(1, again));
  EXPECT_THAT(evictions, IsEmpty()) << "an empty one was left";
  ASSERT_TRUE(pool.take(2, again));
  ASSERT_EQ(evictions.size(), 2u);
  EXPECT_EQ(evictions[0].hash.low, 11u);
  EXPECT_EQ(evictions[0].priority, Priority::kFirst);
  EXPECT_EQ(evictions[1].block, taken[0]);
  EXPECT_EQ(evictions[1].owner, 7u);
  EXPECT_EQ(evictions[1].group, 1);
  pool.give_back(again);
  pool.evict_all();
  EXPECT_EQ(evictions.size(), 2u) << "nobody takes the room of what is forgotten";
}

TEST(BlockPool, what_was_of_use_is_evicted_later_and_what_is_wrong_at_once) {
  BlockPool pool({.block_count = 3, .block_tokens = 4});
  std::vector<BlockId> taken;
  ASSERT_TRUE(pool.take(3, taken));
  for (size_t i = 0; i < 3; ++i) {
    pool.cache(taken[i], {.low = i}, BlockPool::EvictionPriority::kLast);
  }
  pool.give_back(taken);  // the last first
  pool.touch(taken[2]);
  std::vector<BlockId> again;
  ASSERT_TRUE(pool.take(1, again));
  EXPECT_THAT(again, ElementsAre(taken[1]));
  pool.uncache(taken[0]);
  EXPECT_EQ(pool.find({.low = 0}), kNoBlock);
  EXPECT_EQ(pool.empty_count(), 1);
  pool.share(taken[2]);
  pool.uncache(taken[2]);  // whoever reads it still does
  EXPECT_EQ(pool.ref_count(taken[2]), 1);
  pool.check_integrity();
  pool.give_back({&taken[2], 1});
  EXPECT_EQ(pool.empty_count(), 2);
  pool.check_integrity();
}

}  // namespace
}  // namespace pelton::kv
