// Transfers that share links, by hand.
#include "simulator/shared_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::simulator {
namespace {

using testing::ElementsAre;

constexpr int64_t kMs = 1'000'000;

TEST(SharedLinks, OneTransferHasTheWholeLink) {
  SharedLinks links(2, 1e6);
  EXPECT_EQ(links.next_ns(), std::nullopt);
  const int64_t one = links.begin(5 * kMs, 0, 1, 1000);
  EXPECT_EQ(links.next_ns(), 6 * kMs);
  EXPECT_THAT(links.advance(5 * kMs + kMs / 2), ElementsAre());
  EXPECT_THAT(links.advance(6 * kMs), ElementsAre(one));
  EXPECT_EQ(links.next_ns(), std::nullopt);
}

// Two leave replica 0: each has half. When the short one is over the other has all of it: 1000 +
// 1000 bytes at a byte a microsecond, and then the other 1000.
TEST(SharedLinks, WhatLeavesOneReplicaSharesItsLink) {
  SharedLinks links(3, 1e6);
  const int64_t one = links.begin(0, 0, 1, 1000);
  const int64_t two = links.begin(0, 0, 2, 2000);
  EXPECT_EQ(links.next_ns(), 2 * kMs);
  EXPECT_THAT(links.advance(2 * kMs), ElementsAre(one));
  EXPECT_EQ(links.next_ns(), 3 * kMs);
  EXPECT_THAT(links.advance(3 * kMs), ElementsAre(two));
}

// What reaches one replica does too; transfers of other replicas do not slow it down, and the two
// directions of a link are apart.
TEST(SharedLinks, DirectionsAndOtherReplicasAreApart) {
  SharedLinks links(4, 1e6);
  links.begin(0, 0, 2, 1000);
  links.begin(0, 1, 2, 1000);
  const int64_t back = links.begin(0, 2, 3, 1000);
  EXPECT_THAT(links.advance(*links.next_ns()), ElementsAre(back));
  EXPECT_EQ(links.next_ns(), 2 * kMs);
}

TEST(SharedLinks, ACancelledOneGivesItsShareBack) {
  SharedLinks links(3, 1e6);
  const int64_t one = links.begin(0, 0, 1, 1000);
  const int64_t two = links.begin(0, 0, 2, 1000);
  links.cancel(kMs, two);  // each has moved 500
  links.cancel(kMs, two);
  EXPECT_EQ(links.next_ns(), kMs + kMs / 2);
  EXPECT_THAT(links.advance(kMs + kMs / 2), ElementsAre(one));
}

}  // namespace
}  // namespace pelton::simulator
