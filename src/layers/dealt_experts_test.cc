#include "layers/dealt_experts.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/weight_row.h"

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

TEST(DealtExperts, NeighboursAreTogether) {
  EXPECT_EQ(*deal_experts(config_of(8), 3), (ExpertTable{{}, {0, 0, 0, 1, 1, 1, 2, 2}}));
  EXPECT_EQ(*deal_experts(config_of(2), 2), (ExpertTable{{}, {0, 1}}));
}

TEST(DealtExperts, WhatCannotBeDealtOutIsNamed) {
  const auto dense = deal_experts(config_of(0), 2);
  ASSERT_FALSE(dense.ok());
  EXPECT_THAT(dense.error().message, HasSubstr("--enable-expert-parallel: this model has no"));
  const auto few = deal_experts(config_of(4), 5);
  ASSERT_FALSE(few.ok());
  EXPECT_THAT(few.error().message, HasSubstr("4 experts, fewer than --tensor-parallel-size 5"));
}

TEST(DealtExperts, AnothersTableIsChecked) {
  const families::ModelConfig config = config_of(3);
  EXPECT_TRUE(check_experts({{}, {1, 1, 1}}, config, 2).ok());
  for (const ExpertTable& wrong :
       {ExpertTable{{1, 1, 1}}, ExpertTable{{}, {0, 1}}, ExpertTable{{0, 1, 1}, {0, 1, 1}},
        ExpertTable{{}, {0, 1, 2}}, ExpertTable{{}, {0, 1, -1}}}) {
    EXPECT_FALSE(check_experts(wrong, config, 2).ok());
  }
}

// Rank 1 has the experts 0 and 3 of four: it keeps where they lie, and their biases, of no other.
TEST(DealtExperts, ARankHoldsItsOwnAlone) {
  const DealtExperts dealt({1, 0, 2, 1}, 1);
  EXPECT_EQ(dealt.own(), (std::vector<int>{0, 3}));
  EXPECT_EQ(dealt.places(), (std::vector<int32_t>{0, -1, -1, 1}));
  const std::vector<uint8_t> bytes(size_t{4} * 32 * 16);
  const std::vector<uint8_t> scales(size_t{4} * 32);
  std::vector<float> bias(size_t{4} * 32);
  for (size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i);
  const kernels::Experts gate{.data = bytes.data(),
                              .scales = scales.data(),
                              .bias = bias.data(),
                              .experts = 4,
                              .rows = 32,
                              .cols = 32,
                              .expert_rows = 32};
  FloatVectors keep;
  const auto own = own_experts({.gate = gate, .down = gate}, dealt, "experts", keep);
  ASSERT_TRUE(own.ok()) << own.error().message;
  for (const kernels::Experts& part : {own->gate, own->down}) {
    EXPECT_EQ(part.experts, 2);
    EXPECT_EQ(expert_matrix(part, 1).data, bytes.data() + 3 * 32 * 16);
    EXPECT_EQ(expert_matrix(part, 1).scales, scales.data() + 3 * 32);
    EXPECT_EQ(std::vector<float>(part.bias, part.bias + 32),
              std::vector<float>(bias.begin(), bias.begin() + 32));
    EXPECT_EQ(std::vector<float>(part.bias + 32, part.bias + 64),
              std::vector<float>(bias.begin() + 3 * 32, bias.end()));
  }
  EXPECT_EQ(keep.bytes(), 2 * 2 * (32 * int64_t{sizeof(float)} + sizeof(kernels::ExpertMatrix)));
}

}  // namespace
}  // namespace pelton::layers
