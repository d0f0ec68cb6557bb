#include "server/token_sets.h"

#include <string>

#include <gtest/gtest.h>

#include "chat/tiny_tokenizer.h"

namespace pelton::server {
namespace {

bool has(const TokenSets::Set& set, TokenId token) {
  return ((*set)[static_cast<size_t>(token) / 64] >> (token % 64) & 1) != 0;
}

TEST(TokenSets, AgreeWithASearchInEachTokensText) {
  const tokenizer::Tokenizer tokenizer = chat::tiny_tokenizer();
  TokenSets sets;
  for (const std::vector<std::string>& texts :
       {std::vector<std::string>{"\n", ":"}, {"s"}, {"an"}, {"nal"}, {"functions"}, {"sa"}, {}}) {
    const TokenSets::Set set = sets.containing(texts, tokenizer);
    EXPECT_EQ(set, sets.containing(texts, tokenizer)) << "kept";
    for (TokenId token = 0; token < tokenizer.vocab_size(); ++token) {
      bool wanted = false;
      const std::string text(tokenizer.is_special(token) ? "" : tokenizer.bytes(token));
      for (const std::string& one : texts) wanted |= text.find(one) != std::string::npos;
      ASSERT_EQ(has(set, token), wanted) << text;
    }
  }
}

TEST(TokenSets, FewAreKept) {
  const tokenizer::Tokenizer tokenizer = chat::tiny_tokenizer();
  TokenSets sets;
  for (int i = 0; i < 100; ++i) {
    const TokenSets::Set set = sets.containing(
        {std::string(1, static_cast<char>('a' + i % 26)), std::to_string(i)}, tokenizer);
    EXPECT_TRUE(has(set, 'a' + i % 26));
  }
}

}  // namespace
}  // namespace pelton::server
