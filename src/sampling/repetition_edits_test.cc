#include "sampling/repetition_edits.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>

#include <gmock/gmock.h>

#include "sampling/sampler.h"

namespace pelton::sampling {
namespace {

using request::DryPenalty;
using request::SamplingParams;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

std::shared_ptr<const std::vector<uint64_t>> tokens_of(std::vector<TokenId> tokens) {
  auto set = std::make_shared<std::vector<uint64_t>>(2, 0);
  for (const TokenId token : tokens) {
    (*set)[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
  }
  return set;
}

TEST(Dry, WhatWouldGoOnRepeatingCosts) {
  const DryPenalty dry{.multiplier = 0.5f, .base = 2.0f};
  EXPECT_THAT(dry_penalties(std::vector<TokenId>{1, 2, 3, 1, 2}, dry), ElementsAre(Pair(3, 0.5f)));
  // A longer match costs more, and of two matches the longer one counts.
  EXPECT_THAT(dry_penalties(std::vector<TokenId>{9, 1, 2, 3, 7, 1, 2, 3, 9, 1, 2}, dry),
              ElementsAre(Pair(3, 1.0f)));
  EXPECT_THAT(dry_penalties(std::vector<TokenId>{1, 2, 3, 1}, dry), IsEmpty());  // one is free
  EXPECT_THAT(dry_penalties(std::vector<TokenId>{}, dry), IsEmpty());
  // Only the last tokens are looked at.
  const DryPenalty near{.multiplier = 0.5f, .base = 2.0f, .last_n = 4};
  EXPECT_THAT(dry_penalties(std::vector<TokenId>{1, 2, 3, 1, 2}, near), IsEmpty());
}

TEST(Dry, NoMatchReachesOverABreaker) {
  const DryPenalty dry{.multiplier = 1.0f, .base = 2.0f, .breakers = tokens_of({5})};
  EXPECT_THAT(dry_penalties(std::vector<TokenId>{1, 2, 5, 3, 4, 1, 2, 5, 3}, dry), IsEmpty());
  EXPECT_THAT(dry_penalties(std::vector<TokenId>{5, 1, 2, 3, 5, 1, 2}, dry),
              ElementsAre(Pair(3, 1.0f)));
  EXPECT_THAT(dry_penalties(std::vector<TokenId>{1, 2, 5, 1, 2}, dry), IsEmpty());  // 5 is free
}

// For every earlier place the match is counted token by token.
std::map<TokenId, float> plain_dry(const std::vector<TokenId>& all, const DryPenalty& dry) {
  const size_t size =
      dry.last_n < 0 ? all.size() : std::min(all.size(), static_cast<size_t>(dry.last_n));
  const std::vector<TokenId> tokens(all.end() - static_cast<int64_t>(size), all.end());
  const auto breaks = [&](TokenId token) {
    return dry.breakers && ((*dry.breakers)[token / 64] >> (token % 64) & 1) != 0;
  };
  std::map<TokenId, float> penalties;
  for (size_t next = 1; next < size; ++next) {
    size_t length = 0;
    while (length < next && tokens[next - 1 - length] == tokens[size - 1 - length] &&
           !breaks(tokens[size - 1 - length])) {
      ++length;
    }
    const auto least = static_cast<size_t>(std::max(dry.allowed_length, 1));
    if (length < least || breaks(tokens[next])) continue;
    const double exponent = static_cast<double>(length) - dry.allowed_length;
    const auto penalty = static_cast<float>(dry.multiplier * std::pow(double{dry.base}, exponent));
    penalties[tokens[next]] = std::max(penalties[tokens[next]], penalty);
  }
  return penalties;
}

TEST(Dry, AgreesWithItsDefinition) {
  const char* given = std::getenv("PELTON_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("PELTON_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::vector<TokenId> tokens(random() % 60);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 4);
    DryPenalty dry{.multiplier = 0.8f, .allowed_length = static_cast<int>(random() % 5)};
    if (random() % 2 == 0) dry.last_n = static_cast<int>(random() % 40);
    if (random() % 2 == 0) dry.breakers = tokens_of({0});
    const auto found = dry_penalties(tokens, dry);
    const std::map<TokenId, float> as_map(found.begin(), found.end());
    EXPECT_EQ(as_map, plain_dry(tokens, dry)) << "round " << round;
  }
}

TEST(BadWords, TheLastTokenOfAWordIsTheBadOne) {
  const std::vector<std::vector<TokenId>> words = {{4}, {1, 2, 3}, {2, 9}};
  EXPECT_THAT(ends_of_bad_words(std::vector<TokenId>{}, words), ElementsAre(4));
  EXPECT_THAT(ends_of_bad_words(std::vector<TokenId>{7, 1, 2}, words), ElementsAre(4, 3, 9));
}

SampledChoice sample(std::vector<float> row, const SamplingParams& params,
                     const TokenHistory& history, std::vector<uint64_t> allowed = {}) {
  Sampler sampler;
  return sampler.sample(row, {.params = params, .history = &history, .allowed = allowed});
}

TEST(BadWords, AreSaidOnlyWhereNothingElseMayBe) {
  TokenHistory history;
  history.add_prompt(std::vector<TokenId>{1});
  const SamplingParams params{.temperature = 0, .bad_words = {{2}, {1, 0}}};
  EXPECT_EQ(sample({1, 0, 9, 0.5}, params, history).token, 0);  // the prompt is no output
  history.add_output(1);
  EXPECT_EQ(sample({1, 0, 9, 0.5}, params, history).token, 3);
  const SampledChoice forced = sample({1, 0, 9, 0.5}, params, history, {0b100});
  EXPECT_TRUE(forced.usable);
  EXPECT_EQ(forced.token, 2);
}

TEST(AllowedTokens, OthersComeOnlyWhereNothingElseMay) {
  const TokenHistory history;
  for (const float temperature : {0.0f, 1.0f}) {
    for (const float sigma : {0.0f, 1.0f}) {
      const SamplingParams params{
          .temperature = temperature, .top_n_sigma = sigma, .allowed_tokens = {0, 3, 77}};
      const TokenId token = sample({1, 5, 9, 0.5}, params, history).token;
      EXPECT_TRUE(token == 0 || token == 3);
      EXPECT_EQ(sample({1, 5, 9, 0.5}, params, history, {0b10}).token, 1);
    }
  }
}

TEST(Dry, TakesFromTheLogit) {
  TokenHistory history;
  history.add_prompt(std::vector<TokenId>{1, 2, 3, 1, 2});
  EXPECT_EQ(sample({0, 0, 0, 1, 0.5}, {.temperature = 0}, history).token, 3);
  EXPECT_EQ(
      sample({0, 0, 0, 1, 0.5}, {.temperature = 0, .dry = {.multiplier = 0.8f}}, history).token, 4);
}

}  // namespace
}  // namespace pelton::sampling
