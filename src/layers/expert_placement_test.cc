#include "layers/expert_placement.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::layers {
namespace {

using testing::HasSubstr;

families::ModelConfig config_of(int experts) {
  families::ModelConfig config;
  config.expert_count = experts;
  config.layers.resize(2);
  config.layers[1].has_experts = experts > 0;
  return config;
}

TEST(ExpertPlacement, NeighboursAreTogether) {
  EXPECT_EQ(*deal_experts(config_of(8), 3),
            (ExpertTable{{}, {{0}, {0}, {0}, {1}, {1}, {1}, {2}, {2}}}));
  EXPECT_EQ(*deal_experts(config_of(2), 2), (ExpertTable{{}, {{0}, {1}}}));
}

TEST(ExpertPlacement, WhatCannotBeDealtOutIsNamed) {
  const auto dense = deal_experts(config_of(0), 2);
  ASSERT_FALSE(dense.ok());
  EXPECT_THAT(dense.error().message, HasSubstr("--enable-expert-parallel: this model has no"));
  const auto few = deal_experts(config_of(4), 5);
  ASSERT_FALSE(few.ok());
  EXPECT_THAT(few.error().message, HasSubstr("4 experts, fewer than --tensor-parallel-size 5"));
}

TEST(ExpertPlacement, WhatOthersMadeIsChecked) {
  const families::ModelConfig config = config_of(3);
  EXPECT_TRUE(check_experts({{}, {{1}, {0, 1}, {1}}}, config, 2).ok());
  for (const ExpertTable& wrong :
       {ExpertTable{{{1}, {1}, {1}}}, ExpertTable{{}, {{0}, {1}}},
        ExpertTable{{{0}}, {{0}, {1}, {1}}}, ExpertTable{{}, {{0}, {1}, {2}}},
        ExpertTable{{}, {{0}, {1}, {-1}}}, ExpertTable{{}, {{0}, {1}, {}}},
        ExpertTable{{}, {{0}, {1}, {0, 0}}}}) {
    EXPECT_FALSE(check_experts(wrong, config, 2).ok());
  }
  EXPECT_TRUE(check_loads({{}, {5, 0, 7}}, config).ok());
  EXPECT_THAT(check_loads({{}, {5, 0}}, config).error().message,
              HasSubstr("the histogram of experts: 2 experts, where the model has 3"));
}

// 9 goes to rank 0, 8 to rank 1, 5 to rank 1, which has less, and 4 to rank 0.
TEST(ExpertPlacement, TheMostChosenGoFirstToWhoHasLeast) {
  EXPECT_EQ(place_experts({{}, {4, 9, 5, 8}}, 2, 0), (ExpertTable{{}, {{0}, {0}, {1}, {1}}}));
  // However little they were chosen, nobody has more of them than its share.
  EXPECT_EQ(place_experts({{100, 1, 1, 1}}, 2, 0), (ExpertTable{{{0}, {1}, {1}, {0}}}));
}

TEST(ExpertPlacement, CopiesAreOfTheMostChosenAndOnOtherRanks) {
  EXPECT_EQ(place_experts({{100, 1, 1, 1}}, 2, 1), (ExpertTable{{{0, 1}, {0}, {1}, {0}}}));
  // More than there are ranks nobody needs.
  EXPECT_EQ(place_experts({{3, 1}}, 2, 99), (ExpertTable{{{0, 1}, {0, 1}}}));
}

int64_t most(const std::vector<std::vector<int>>& layer, const std::vector<int64_t>& loads,
             int ranks) {
  std::vector<int64_t> busy(static_cast<size_t>(ranks));
  for (size_t e = 0; e < layer.size(); ++e) {
    for (const int rank : layer[e]) {
      busy[static_cast<size_t>(rank)] += loads[e] / static_cast<int64_t>(layer[e].size());
    }
  }
  return *std::ranges::max_element(busy);
}

// Any loads: all experts are there, ranks have equally many, and the busiest has no more to do than
// where neighbours are together, but for what an expert that is chosen most is.
TEST(ExpertPlacement, AnyLoads) {
  std::mt19937 random(7);
  for (int run = 0; run < 300; ++run) {
    const int ranks = 1 + static_cast<int>(random() % 8);
    const int experts = ranks + static_cast<int>(random() % 60);
    const int copies = static_cast<int>(random() % 10);
    families::ModelConfig config = config_of(experts);
    ExpertLoads loads(2);
    for (int e = 0; e < experts; ++e) loads[1].push_back(1 << (random() % 20));
    const ExpertTable table = place_experts(loads, ranks, copies);
    ASSERT_TRUE(check_experts(table, config, ranks).ok());
    std::vector<int> held(static_cast<size_t>(ranks));
    for (const std::vector<int>& owners : table[1]) {
      for (const int rank : owners) ++held[static_cast<size_t>(rank)];
    }
    EXPECT_LE(*std::ranges::max_element(held), (experts + copies + ranks - 1) / ranks);
    EXPECT_EQ(place_experts(loads, ranks, copies), table);
    const int64_t widest = *std::ranges::max_element(loads[1]);
    EXPECT_LE(most(table[1], loads[1], ranks),
              most((*deal_experts(config, ranks))[1], loads[1], ranks) + widest);
  }
}

}  // namespace
}  // namespace pelton::layers
