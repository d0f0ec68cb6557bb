#include "cluster/block_names.h"

#include <vector>

#include <gtest/gtest.h>

namespace pelton::cluster {
namespace {

FleetKey key_of(char digit) {
  return *FleetKey::parse(std::string(64, digit) + "\n", "f");
}

TEST(BlockNames, AreTheSameUnderOneKeyOnly) {
  EXPECT_EQ(block_seed(key_of('a')), block_seed(key_of('a')));
  EXPECT_NE(block_seed(key_of('a')), block_seed(key_of('b')));
  EXPECT_EQ(block_name_check(7, 16), block_name_check(7, 16));
  EXPECT_NE(block_name_check(7, 16), block_name_check(8, 16));
  EXPECT_NE(block_name_check(7, 16), block_name_check(7, 32));
}

TEST(BlockNames, ARouterLooksAtTheWidestGroupAndTheNext) {
  const std::vector<int> oss{128, 0};
  EXPECT_EQ(routed_groups(oss, 16).widest, 1);
  EXPECT_EQ(routed_groups(oss, 16).tail, 0);
  EXPECT_EQ(routed_groups(oss, 16).tail_blocks, 8);
  const std::vector<int> plain{0};
  EXPECT_EQ(routed_groups(plain, 16).widest, 0);
  EXPECT_FALSE(routed_groups(plain, 16).tail);
  const std::vector<int> three{64, 0, 512};
  EXPECT_EQ(routed_groups(three, 16).widest, 1);
  EXPECT_EQ(routed_groups(three, 16).tail, 2);
  const std::vector<int> sliding{512, 4096, 1};
  EXPECT_EQ(routed_groups(sliding, 16).widest, 1);
  EXPECT_EQ(routed_groups(sliding, 16).tail_blocks, 32);
  EXPECT_EQ(routed_groups({}, 16).widest, 0);
}

}  // namespace
}  // namespace pelton::cluster
