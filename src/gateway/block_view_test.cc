#include "gateway/block_view.h"

#include <numeric>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace pelton::gateway {
namespace {

using Group = BlockView::Group;

std::vector<kv::BlockHash> names_of(int count, uint64_t seed = 1) {
  std::vector<kv::BlockHash> names;
  for (int i = 0; i < count; ++i) {
    names.push_back({.low = seed << 32 | static_cast<uint64_t>(i + 1), .high = 0});
  }
  return names;
}

class View : public testing::Test {
 protected:
  std::vector<int> find(std::span<const kv::BlockHash> names, int tail_blocks = 0,
                        int64_t now_ns = 0) {
    std::vector<int> hits(3);
    view_.find(names, tail_blocks, now_ns, hits);
    return hits;
  }

  BlockView view_{size_t{1} << 20};
};

TEST_F(View, AHitIsAsLongAsEveryBlockOfThePrefixIsHeld) {
  const auto names = names_of(6);
  for (const int i : {0, 1, 2, 4}) view_.note_stored(1, Group::kWidest, names[i]);
  view_.note_stored(2, Group::kWidest, names[0]);
  EXPECT_EQ(find(names), (std::vector<int>{0, 3, 1}));
  view_.note_removed(1, Group::kWidest, names[1]);
  EXPECT_EQ(find(names), (std::vector<int>{0, 1, 1}));
  view_.forget(2);
  EXPECT_EQ(find(names), (std::vector<int>{0, 1, 0}));
}

TEST_F(View, AndAsFarAsAWindowIsHeldBeforeItsEnd) {
  const auto names = names_of(10);
  for (const auto& name : names) view_.note_stored(0, Group::kWidest, name);
  EXPECT_EQ(find(names, 2)[0], 0);
  for (const int i : {3, 4, 5, 8}) view_.note_stored(0, Group::kTail, names[i]);
  EXPECT_EQ(find(names, 2)[0], 6);
  EXPECT_EQ(find(names, 3)[0], 6);
  EXPECT_EQ(find(names, 4)[0], 0);
  view_.note_stored(0, Group::kTail, names[9]);
  EXPECT_EQ(find(names, 2)[0], 10);
  // A prefix that is shorter than the window needs all of its blocks.
  view_.note_stored(0, Group::kTail, names[0]);
  EXPECT_EQ(find(std::span(names).first(1), 4)[0], 1);
}

TEST_F(View, WhatIsOnItsWayCountsForAWhile) {
  const auto names = names_of(4);
  view_.note_stored(1, Group::kWidest, names[0]);
  view_.expect(names, {.worker = 1, .tail_blocks = 2, .now_ns = 10, .until_ns = 100});
  EXPECT_EQ(find(names, 2, 50), (std::vector<int>{0, 4, 0}));
  EXPECT_EQ(find(std::span(names).first(3), 2, 50)[1], 0) << "no window is kept amid a prompt";
  EXPECT_EQ(find(std::span(names).first(3), 0, 50)[1], 3);
  view_.note_stored(1, Group::kWidest, names[1]);
  EXPECT_EQ(find(names, 0, 100), (std::vector<int>{0, 2, 0})) << "what has come stays";
}

// Against the definition, with blocks that come and go.
// Of two prompts on their way that begin alike, the end of the first takes only what is its own.
TEST_F(View, WhatALaterOneHasTooIsStillOnItsWay) {
  const auto names = names_of(6);
  auto branch = names_of(6, 2);
  std::copy(names.begin(), names.begin() + 4, branch.begin());
  view_.expect(names, {.worker = 1, .tail_blocks = 2, .now_ns = 10, .until_ns = 100});
  view_.expect(branch, {.worker = 1, .tail_blocks = 3, .now_ns = 50, .until_ns = 140});
  view_.expect(names, {.worker = 2, .tail_blocks = 2, .now_ns = 60, .until_ns = 150});
  EXPECT_EQ(find(names, 0, 99), (std::vector<int>{0, 6, 6}));
  EXPECT_EQ(find(names, 0, 110), (std::vector<int>{0, 4, 6}));
  EXPECT_EQ(find(branch, 3, 110), (std::vector<int>{0, 6, 0}));
  EXPECT_EQ(find(branch, 0, 145), (std::vector<int>{0, 0, 4}));
}

TEST_F(View, IsTheLongestPrefixThatBothGroupsHold) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const auto names = names_of(24);
  std::set<int> full;
  std::set<int> window;
  for (int round = 0; round < 3000; ++round) {
    const int i = static_cast<int>(random() % names.size());
    const bool is_widest = random() % 2 == 0;
    std::set<int>& held = is_widest ? full : window;
    const Group group = is_widest ? Group::kWidest : Group::kTail;
    if (random() % 8 != 0) {
      held.insert(i);
      view_.note_stored(2, group, names[static_cast<size_t>(i)]);
    } else {
      held.erase(i);
      view_.note_removed(2, group, names[static_cast<size_t>(i)]);
    }
    const int tail_blocks = static_cast<int>(random() % 5);
    int expected = 0;
    for (int n = 1; n <= std::ssize(names) && full.contains(n - 1); ++n) {
      bool fits = true;
      for (int b = std::max(n - tail_blocks, 0); b < n; ++b) fits = fits && window.contains(b);
      if (fits) expected = n;
    }
    ASSERT_EQ(find(names, tail_blocks)[2], expected) << "round " << round;
  }
}

}  // namespace
}  // namespace pelton::gateway
