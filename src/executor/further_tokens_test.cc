#include "executor/further_tokens.h"

#include <gtest/gtest.h>

namespace pelton::executor {
namespace {

std::vector<TokenId> tokens_of(const engine::StepResult& result, size_t sequence) {
  std::vector<TokenId> tokens;
  for (const auto& token : result.sequences[sequence].tokens.of(result.tokens)) {
    tokens.push_back(token.token);
  }
  return tokens;
}

TEST(FurtherTokens, EachRowsTokensStandBehindItsOwn) {
  engine::StepResult result;
  result.sequences.resize(4);  // the second samples nothing
  result.sequences[0].tokens = {0, 1};
  result.sequences[2].tokens = {1, 1};
  result.sequences[3].tokens = {2, 1};
  for (const TokenId token : {10, 20, 30}) {
    result.tokens.push_back({.token = token, .logprob = -1.0f, .top = {{token, -1.0f}}});
  }
  const std::vector<size_t> sequences = {0, 2, 3};
  std::vector<std::vector<engine::SampledToken>> further = {
      {}, {{.token = 21}, {.token = 22}}, {{.token = 31}}};
  insert_further(sequences, further, result);
  EXPECT_EQ(tokens_of(result, 0), (std::vector<TokenId>{10}));
  EXPECT_EQ(tokens_of(result, 1), (std::vector<TokenId>{}));
  EXPECT_EQ(tokens_of(result, 2), (std::vector<TokenId>{20, 21, 22}));
  EXPECT_EQ(tokens_of(result, 3), (std::vector<TokenId>{30, 31}));
  EXPECT_EQ(result.tokens[1].top.size(), 1u);  // moved whole
}

TEST(FurtherTokens, ARowWithoutATokenKeepsNone) {
  engine::StepResult result;
  result.sequences.resize(2);
  result.sequences[0].tokens = {0, 0};  // deferred
  result.sequences[1].tokens = {1, 1};
  result.tokens.resize(2);
  result.tokens[1].token = 5;
  const std::vector<size_t> sequences = {0, 1};
  // Scratch may hold more rows than the step has.
  std::vector<std::vector<engine::SampledToken>> further = {{}, {{.token = 6}}, {{.token = 7}}};
  insert_further(sequences, further, result);
  EXPECT_EQ(tokens_of(result, 0), (std::vector<TokenId>{}));
  EXPECT_EQ(tokens_of(result, 1), (std::vector<TokenId>{5, 6}));
}

}  // namespace
}  // namespace pelton::executor
