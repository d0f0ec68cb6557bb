// What the proposers without weights guess.
#include <gtest/gtest.h>

#include "base/random.h"
#include "speculative/lookahead.h"
#include "speculative/ngram.h"
#include "speculative/suffix.h"

namespace pelton::speculative {
namespace {

using Tokens = std::vector<TokenId>;

Tokens guesses(Proposer& proposer, const Tokens& tokens, int most, int slot = 0) {
  DraftRequest request{.slot = slot, .tokens = tokens, .tokens_max = most};
  EXPECT_TRUE(proposer.draft({&request, 1}).ok());
  return request.guesses;
}

// As it grows, a few tokens at a time.
void begin_and_append(Proposer& proposer, const Tokens& tokens, size_t at_first) {
  proposer.begin({.tokens = std::span(tokens).first(at_first)});
  for (size_t at = at_first; at < tokens.size(); ++at) {
    proposer.append(0, std::span(tokens).first(at + 1), at);
  }
}

TEST(SuffixProposer, goes_on_as_the_longest_match_did) {
  Suffix suffix({.slot_count = 1, .tokens_max = 100, .guesses_per_matched_token = 1.0});
  const Tokens tokens = {5, 1, 2, 3, 7, 8, 9, 6, 1, 2, 3};
  begin_and_append(suffix, tokens, 4);
  EXPECT_EQ(guesses(suffix, tokens, 10), (Tokens{7, 8, 9}));  // three matched
  EXPECT_EQ(guesses(suffix, tokens, 2), (Tokens{7, 8}));
}

TEST(SuffixProposer, repeats_what_repeats) {
  Suffix suffix({.slot_count = 1, .tokens_max = 100, .guesses_per_matched_token = 2.0});
  const Tokens tokens = {4, 1, 2, 3, 1, 2, 3};
  begin_and_append(suffix, tokens, 1);
  EXPECT_EQ(guesses(suffix, tokens, 6), (Tokens{1, 2, 3, 1, 2, 3}));
}

TEST(SuffixProposer, guesses_nothing_behind_what_is_new) {
  Suffix suffix({.slot_count = 1, .tokens_max = 100, .guesses_per_matched_token = 1.0});
  const Tokens tokens = {1, 2, 3, 4, 2};
  begin_and_append(suffix, tokens, 5);
  EXPECT_EQ(guesses(suffix, tokens, 6), Tokens{});
}

TEST(SuffixProposer, follows_a_predicted_output) {
  Suffix suffix({.slot_count = 1, .tokens_max = 100, .guesses_per_matched_token = 1.0});
  const Tokens prediction = {10, 11, 12, 13, 14};
  Tokens tokens = {1, 2, 3, 10, 11};
  suffix.begin({.tokens = tokens, .prompt_count = 3, .prediction = prediction});
  DraftRequest request{.tokens = tokens, .tokens_max = 4};
  ASSERT_TRUE(suffix.draft({&request, 1}).ok());
  EXPECT_EQ(request.guesses, (Tokens{12, 13, 14}));  // both begin so: that is a match, too
  EXPECT_TRUE(request.is_predicted);
  // Once it is in the answer too, the later place counts: no prediction any more.
  tokens.insert(tokens.end(), {12, 50, 10, 11});
  for (size_t at = 5; at < tokens.size(); ++at) {
    suffix.append(0, std::span(tokens).first(at + 1), at);
  }
  request = {.tokens = tokens, .tokens_max = 4};
  ASSERT_TRUE(suffix.draft({&request, 1}).ok());
  EXPECT_EQ(request.guesses, (Tokens{12, 50}));
  EXPECT_FALSE(request.is_predicted);
}

// Longer than there is room for: what it guesses stood in the text, behind the same tokens.
TEST(SuffixProposer, keeps_the_latest_part_of_a_long_sequence) {
  Suffix suffix({.slot_count = 1, .tokens_max = 64, .guesses_per_matched_token = 1.0});
  const int64_t bytes = suffix.bytes();
  Tokens tokens;
  int guessed = 0;
  suffix.begin({.tokens = tokens});
  for (uint64_t i = 0; i < 5000; ++i) {
    tokens.push_back(static_cast<TokenId>(base::random_bits(9, i) % 3));
    suffix.append(0, tokens, tokens.size() - 1);
    for (const TokenId guess : guesses(suffix, tokens, 8)) {
      ASSERT_TRUE(guess >= 0 && guess < 3);
      ++guessed;
    }
  }
  EXPECT_GT(guessed, 5000);
  EXPECT_EQ(suffix.bytes(), bytes);
}

TEST(SuffixProposer, forgets_the_sequence_before) {
  Suffix suffix({.slot_count = 2, .tokens_max = 64, .guesses_per_matched_token = 1.0});
  const Tokens tokens = {1, 2, 3, 1, 2};
  suffix.begin({.slot = 1, .tokens = tokens});
  EXPECT_EQ(guesses(suffix, tokens, 4, 1), (Tokens{3, 1}));
  suffix.begin({.slot = 1, .tokens = Tokens{1, 2}});
  EXPECT_EQ(guesses(suffix, {1, 2}, 4, 1), Tokens{});
}

TEST(NGramProposer, takes_the_longest_and_of_these_the_latest) {
  NGram ngram({.slot_count = 1, .shortest = 1, .longest = 3});
  const Tokens tokens = {1, 2, 3, 4, 9, 2, 3, 5, 8, 1, 2, 3};
  begin_and_append(ngram, tokens, 2);
  EXPECT_EQ(guesses(ngram, tokens, 3), (Tokens{4, 9, 2}));  // 1 2 3
  const Tokens other = {1, 2, 3, 4, 9, 2, 3, 5, 8, 2, 3};
  begin_and_append(ngram, other, 2);
  EXPECT_EQ(guesses(ngram, other, 1), (Tokens{5}));  // 2 3, the later one
}

// The guesses 7 8 9 behind 1 2: drawn were 4, and behind 7, 8 and 9 then 5 6 3.
TEST(LookaheadProposer, guesses_what_was_drawn_behind_wrong_guesses) {
  Lookahead lookahead(2);
  Tokens tokens = {1, 2};
  lookahead.begin({.slot = 1, .tokens = tokens});
  EXPECT_EQ(guesses(lookahead, tokens, 4, 1), Tokens{});
  tokens.push_back(4);
  lookahead.append(1, tokens, 2);
  lookahead.see_rejected(
      {.slot = 1, .position = 3, .guesses = Tokens{7, 8, 9}, .drawn = Tokens{5, 6, 3}});
  EXPECT_EQ(guesses(lookahead, tokens, 2, 1), (Tokens{5, 6}));
  EXPECT_EQ(guesses(lookahead, tokens, 9, 1), (Tokens{5, 6, 3}));
  // One position on, the iterate's first token is behind; a step on, none is left, but n-grams are.
  tokens.push_back(8);
  lookahead.append(1, tokens, 3);
  EXPECT_EQ(guesses(lookahead, tokens, 9, 1), (Tokens{6, 3}));
  tokens.insert(tokens.end(), {11, 12, 13, 7, 8});
  lookahead.append(1, tokens, 4);
  EXPECT_EQ(guesses(lookahead, tokens, 1, 1), (Tokens{6}));
  // The other slot knows nothing of it, nor does the next sequence.
  EXPECT_EQ(guesses(lookahead, tokens, 9, 0), Tokens{});
  lookahead.begin({.slot = 1, .tokens = Tokens{7, 8}});
  EXPECT_EQ(guesses(lookahead, {7, 8}, 9, 1), Tokens{});
}

TEST(LookaheadProposer, keeps_the_text_before_what_was_drawn_in_vain) {
  Lookahead lookahead(1);
  const Tokens tokens = {7, 8, 5, 9, 7};
  begin_and_append(lookahead, tokens, 2);
  lookahead.see_rejected({.position = 99, .guesses = Tokens{7, 8}, .drawn = Tokens{6, 6}});
  EXPECT_EQ(guesses(lookahead, tokens, 3), (Tokens{8, 5, 9}));
}

TEST(NGramProposer, needs_as_many_as_are_asked_for) {
  NGram ngram({.slot_count = 1, .shortest = 3, .longest = 4});
  const Tokens tokens = {1, 2, 3, 9, 2, 3};
  begin_and_append(ngram, tokens, 3);
  EXPECT_EQ(guesses(ngram, tokens, 4), Tokens{});
}

}  // namespace
}  // namespace pelton::speculative
