// Earlier answers: what is found in them beside a plain search, within bounded memory and one salt.
#include "speculative/suffix_shared.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

namespace pelton::speculative {
namespace {

using Tokens = std::vector<TokenId>;

constexpr kv::BlockHash kMine{.low = 1, .high = 2};
constexpr kv::BlockHash kTheirs{.low = 1, .high = 3};

// The longest ends of the text in answers, by comparing everything.
AnswerPool::Found plain_search(const std::vector<std::pair<Tokens, kv::BlockHash>>& answers,
                               const Tokens& text, const kv::BlockHash& origin) {
  AnswerPool::Found found;
  int64_t begin = 0;
  for (const auto& [answer, of] : answers) {
    for (size_t last = 0; of == origin && last < answer.size(); ++last) {
      int matched = 0;
      while (matched < AnswerPool::kMatchMax && static_cast<size_t>(matched) <= last &&
             static_cast<size_t>(matched) < text.size() &&
             answer[last - static_cast<size_t>(matched)] ==
                 text[text.size() - 1 - static_cast<size_t>(matched)]) {
        ++matched;
      }
      if (matched < AnswerPool::kMatchMin || matched < found.matched) continue;
      if (matched > found.matched) found.ends.clear();
      found.matched = matched;
      found.ends.insert(found.ends.begin(), begin + static_cast<int64_t>(last) + 1);
    }
    begin += static_cast<int64_t>(answer.size());
  }
  return found;
}

TEST(AnswerPool, finds_what_a_plain_search_finds) {
  std::mt19937 random(3);
  const auto text_of = [&](size_t least, size_t most, int letters) {
    Tokens text(least + random() % (most - least + 1));
    for (TokenId& token : text) token = static_cast<TokenId>(random()) % letters;
    for (TokenId& token : text) token = std::abs(token);
    return text;
  };
  for (int round = 0; round < 40; ++round) {
    const int letters = std::array{3, 5, 30}[static_cast<size_t>(round % 3)];
    AnswerPool pool({.tokens_max = 2000, .answers_max = 50});
    std::vector<std::pair<Tokens, kv::BlockHash>> answers;
    for (int i = 0; i < 12; ++i) {
      answers.emplace_back(text_of(4, 30, letters), random() % 3 == 0 ? kTheirs : kMine);
      pool.add(answers.back().first, answers.back().second);
    }
    for (int i = 0; i < 50; ++i) {
      const Tokens text = text_of(1, 12, letters);
      const AnswerPool::Found expected = plain_search(answers, text, kMine);
      AnswerPool::Found found;
      pool.find(text, kMine, found);
      EXPECT_EQ(found.matched, expected.matched);
      // Of very many places those that were looked at.
      const bool all = letters > 3;
      EXPECT_TRUE(!all || found.ends == expected.ends);
      for (const int64_t end : found.ends) {
        EXPECT_EQ(std::count(expected.ends.begin(), expected.ends.end(), end), 1);
      }
    }
  }
}

TEST(AnswerPool, the_oldest_fall_out_and_memory_stays) {
  AnswerPool pool({.tokens_max = 100, .answers_max = 1000});
  const int64_t bytes = pool.bytes();
  EXPECT_EQ(bytes, AnswerPool::bytes_for({.tokens_max = 100, .answers_max = 1000}));
  const auto answer = [](int number) {
    Tokens tokens(10);
    std::iota(tokens.begin(), tokens.end(), number * 10);
    return tokens;
  };
  for (int i = 0; i < 500; ++i) pool.add(answer(i), kMine);
  EXPECT_EQ(pool.bytes(), bytes);
  AnswerPool::Found found;
  for (int i = 0; i < 500; ++i) {
    const Tokens beginning(answer(i));
    pool.find(std::span(beginning).first(4), kMine, found);
    EXPECT_EQ(found.matched, i < 490 ? 0 : 4) << i;
    if (found.matched == 0) continue;
    EXPECT_EQ(pool.behind(found.ends[0], 5), answer(i)[9]);
    EXPECT_EQ(pool.behind(found.ends[0], 6), AnswerPool::kNone);  // not the next answer's
  }
  // As many answers as may be.
  AnswerPool few({.tokens_max = 1000, .answers_max = 3});
  for (int i = 0; i < 5; ++i) few.add(answer(i), kMine);
  for (int i = 0; i < 5; ++i) {
    const Tokens beginning(answer(i));
    few.find(std::span(beginning).first(4), kMine, found);
    EXPECT_EQ(found.matched, i < 2 ? 0 : 4) << i;
  }
  // One that is longer than all the room.
  Tokens longest(350);
  std::iota(longest.begin(), longest.end(), 10'000);
  pool.add(longest, kMine);
  pool.find(std::span(longest).subspan(220, 20), kMine, found);
  EXPECT_EQ(found.matched, 0);
  pool.find(std::span(longest).subspan(260, 20), kMine, found);
  EXPECT_EQ(found.matched, 20);
}

class SharedAnswers : public testing::Test {
 protected:
  // A sequence that is over as soon as the slot is taken again.
  void answer(int slot, const Tokens& tokens, const kv::BlockHash& origin = kMine) {
    begin(slot, origin);
    Tokens all = {7, 7};
    all.insert(all.end(), tokens.begin(), tokens.end());
    proposer_.append(slot, all, 2);
    begin(slot, origin);
  }
  void begin(int slot, const kv::BlockHash& origin = kMine) {
    const Tokens prompt = {7, 7};
    proposer_.begin({.slot = slot, .tokens = prompt, .prompt_count = 2, .origin = origin});
  }
  Tokens guesses(const Tokens& text, int most, int slot = 0) {
    DraftRequest request{.slot = slot, .tokens = text, .tokens_max = most};
    EXPECT_TRUE(proposer_.draft({&request, 1}).ok());
    return request.guesses;
  }

  SuffixShared proposer_{{.slot_count = 3, .pool = {.tokens_max = 5000, .answers_max = 100}}};
};

TEST_F(SharedAnswers, the_most_frequent_goes_first) {
  answer(0, {1, 2, 3, 4, 5, 6});
  answer(1, {1, 2, 3, 4, 9, 9});
  answer(2, {1, 2, 3, 4, 5, 8});
  begin(0);
  EXPECT_EQ(guesses({0, 1, 2, 3}, 8), (Tokens{4, 5, 8}));  // a guess for each token that matched
  EXPECT_EQ(guesses({0, 1, 2, 3}, 2), (Tokens{4, 5}));
  EXPECT_EQ(guesses({2, 3}, 8), Tokens{});  // too short an end
  EXPECT_EQ(guesses({5, 5, 5}, 8), Tokens{});
}

TEST_F(SharedAnswers, unlikely_guesses_are_left_out) {
  for (TokenId last = 0; last < 12; ++last) answer(0, {1, 2, 3, 4, 100 + last, 5});
  begin(0);
  EXPECT_EQ(guesses({1, 2, 3}, 8), (Tokens{4}));
}

// What stood in an answer that is not over is not there yet; what made room and came back is there
// once.
TEST_F(SharedAnswers, answers_enter_when_they_are_over) {
  begin(0);
  proposer_.append(0, Tokens{7, 7, 1, 2, 3, 4, 5}, 2);
  begin(1);
  EXPECT_EQ(guesses({1, 2, 3}, 4, 1), Tokens{});
  const Tokens all = {7, 7, 1, 2, 3, 4, 5};
  proposer_.begin({.slot = 0, .tokens = all, .prompt_count = 2, .origin = kMine});
  EXPECT_EQ(guesses({1, 2, 3}, 4, 1), (Tokens{4, 5}));
  begin(0);
  for (TokenId last = 0; last < 8; ++last) answer(2, {1, 2, 3, 50 + last});
  EXPECT_EQ(guesses({1, 2, 3}, 4, 1), (Tokens{57}));  // 1 of 9 each: the latest
}

TEST_F(SharedAnswers, TN_07_nothing_is_found_of_who_has_another_salt) {
  answer(0, {1, 2, 3, 4, 5, 6}, kTheirs);
  answer(1, {1, 2, 3, 4, 5, 6}, {});  // who shares nothing
  begin(0, kMine);
  EXPECT_EQ(guesses({1, 2, 3}, 4), Tokens{});
  begin(0, {});
  EXPECT_EQ(guesses({1, 2, 3}, 4), Tokens{});
  begin(0, kTheirs);
  EXPECT_EQ(guesses({1, 2, 3}, 4), (Tokens{4, 5, 6}));
}

TEST_F(SharedAnswers, memory_is_taken_at_once) {
  const int64_t bytes = proposer_.bytes();
  EXPECT_EQ(bytes, SuffixShared::bytes_for(
                       {.slot_count = 3, .pool = {.tokens_max = 5000, .answers_max = 100}}));
  Tokens longest(20'000);
  std::iota(longest.begin(), longest.end(), 0);
  answer(0, longest);
  EXPECT_EQ(proposer_.bytes(), bytes);
  begin(0);
  EXPECT_EQ(guesses({19'000, 19'001, 19'002}, 2), (Tokens{19'003, 19'004}));
  EXPECT_EQ(guesses({100, 101, 102}, 2), Tokens{});
}

}  // namespace
}  // namespace pelton::speculative
