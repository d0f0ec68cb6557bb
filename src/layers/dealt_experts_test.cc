#include "layers/dealt_experts.h"

#include <vector>

#include <gtest/gtest.h>

#include "kernels/weight_row.h"

namespace pelton::layers {
namespace {

// Rank 1 has the experts 0 and 3 of four: it keeps where they lie, and their biases, of no other.
TEST(DealtExperts, ARankHoldsItsOwnAlone) {
  const DealtExperts dealt({{1}, {0}, {0, 2}, {0, 1}}, 1);
  EXPECT_EQ(dealt.own(), (std::vector<int>{0, 3}));
  EXPECT_EQ(dealt.place(3), 1);
  EXPECT_EQ(dealt.place(1), -1);
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

std::vector<kernels::ExpertChoice> choices_of(const std::vector<int>& experts) {
  std::vector<kernels::ExpertChoice> choices;
  for (const int expert : experts) choices.push_back({.expert = expert, .weight = 1});
  return choices;
}

// Expert 0 is rank 0's, 1 is rank 1's, 2 both have: it goes to whoever has less, which rank 1 has.
TEST(ChoiceShare, WhoHasLeastToDoTakesWhatSeveralHave) {
  const std::vector<kernels::ExpertChoice> choices = choices_of({0, 2, 0, 2});
  for (const int own : {0, 1}) {
    const DealtExperts dealt({{0}, {1}, {0, 1}}, own);
    ChoiceShare share;
    share.share_out(dealt, 2, choices.data(), 4);
    std::vector<int> ranks;
    for (int i = 0; i < 4; ++i) ranks.push_back(share.rank_of(i));
    EXPECT_EQ(ranks, (std::vector<int>{0, 1, 0, 1}));
    EXPECT_EQ(
        std::vector<int32_t>(share.places(), share.places() + 4),
        own == 0 ? (std::vector<int32_t>{0, -1, 0, -1}) : (std::vector<int32_t>{-1, 1, -1, 1}));
    EXPECT_EQ(dealt.chosen(), (std::vector<int64_t>{2, 0, 2}));
    share.share_out(dealt, 2, choices.data(), 1);
    EXPECT_EQ(dealt.chosen(), (std::vector<int64_t>{3, 0, 2}));
  }
}

// Of many tokens for one expert each rank that has it gets runs of them.
TEST(ChoiceShare, ManyTokensOfOneExpertAreSharedOut) {
  const std::vector<kernels::ExpertChoice> choices = choices_of(std::vector<int>(100, 0));
  const DealtExperts dealt({{0, 1, 2}}, 1);
  ChoiceShare share;
  share.share_out(dealt, 3, choices.data(), 100);
  std::vector<int> counts(3);
  for (int i = 0; i < 100; ++i) ++counts[static_cast<size_t>(share.rank_of(i))];
  EXPECT_EQ(counts, (std::vector<int>{36, 32, 32}));
}

}  // namespace
}  // namespace pelton::layers
