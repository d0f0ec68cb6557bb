#include "speech/audio_tokens.h"

#include <algorithm>

#include <gmock/gmock.h>

#include "speech/test_tokenizer.h"

namespace pelton::speech {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class OrpheusTokens : public testing::Test {
 protected:
  const tokenizer::Tokenizer tokenizer_ = test_tokenizer();
  const AudioTokens tokens_ = AudioTokens::of(tokenizer_, kTestBookSize, kTestVocabulary).value();

  static TokenId token(int code, int slot) { return kTestBase + 10 + kTestBookSize * slot + code; }
};

TEST_F(OrpheusTokens, PromptStandsBetweenItsMarks) {
  const std::vector<TokenId> prompt = tokens_.prompt(tokenizer_, "tara", "Hi <custom_token_9>");
  EXPECT_EQ(prompt.front(), kTestBase + 3);
  const std::vector<TokenId> end(prompt.end() - 4, prompt.end());
  EXPECT_THAT(end, ElementsAre(kTestEndOfText, kTestBase + 4, kTestBase + 5, kTestBase + 1));
  const std::vector<TokenId> text(prompt.begin() + 1, prompt.end() - 4);
  EXPECT_EQ(text, tokenizer_.encode_prompt("tara: Hi <custom_token_9>"));
  // A user's text is no control token.
  EXPECT_TRUE(std::ranges::none_of(text, [](TokenId one) { return one >= kTestEndOfText; }));
}

TEST_F(OrpheusTokens, ACodeBelongsToItsSlot) {
  for (int slot = 0; slot < 7; ++slot) {
    const auto index = static_cast<size_t>(14 + slot);
    EXPECT_EQ(tokens_.code(token(0, slot), index), 0);
    EXPECT_EQ(tokens_.code(token(63, slot), index), 63);
    EXPECT_EQ(tokens_.code(token(63, slot), index + 1), std::nullopt);
    EXPECT_EQ(tokens_.code(token(-1, slot), index), std::nullopt);
    EXPECT_EQ(tokens_.code(token(64, slot), index), std::nullopt);
  }
  EXPECT_EQ(tokens_.code(0, 0), std::nullopt);
  EXPECT_TRUE(tokens_.is_stop(kTestBase + 2));
  EXPECT_TRUE(tokens_.is_stop(kTestEndOfText));
  EXPECT_FALSE(tokens_.is_stop(token(0, 0)));
}

TEST_F(OrpheusTokens, TheGrammarAllowsTheSlotsCodesAndStopsAndNothingElse) {
  grammar::GrammarState state(tokens_.grammar());
  std::vector<uint64_t> room;
  for (size_t i = 0; i < 15; ++i) {
    const std::span<const uint64_t> mask = state.mask(room);
    for (TokenId token = -1; token < kTestVocabulary + 70; ++token) {
      const bool expected = token >= 0 && (tokens_.is_stop(token) || tokens_.code(token, i));
      ASSERT_EQ(grammar::may_be(mask, token), expected) << i << " " << token;
    }
    EXPECT_FALSE(state.accept(token(0, static_cast<int>((i + 1) % 7))));
    ASSERT_TRUE(state.accept(token(static_cast<int>(i), static_cast<int>(i % 7))));
  }
  EXPECT_TRUE(state.accept(tokens_.stop_tokens().front()));
  EXPECT_TRUE(state.over());
}

TEST_F(OrpheusTokens, AnotherVocabularyIsNamed) {
  const auto plain = tokenizer::Tokenizer::from_json(
      tokenizer::synthetic_tokenizer_for("qwen3", 300).value().json, "plain");
  const auto refused = AudioTokens::of(*plain, kTestBookSize, 300);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("<custom_token_0>"));
  // Larger books than there are tokens, and a model that cannot say the last ones.
  const auto larger = AudioTokens::of(tokenizer_, kTestBookSize + 1, kTestVocabulary);
  ASSERT_FALSE(larger.ok());
  EXPECT_THAT(larger.error().message, HasSubstr("<custom_token_464>"));
  EXPECT_FALSE(AudioTokens::of(tokenizer_, kTestBookSize, kTestVocabulary - 1).ok());
}

}  // namespace
}  // namespace pelton::speech
