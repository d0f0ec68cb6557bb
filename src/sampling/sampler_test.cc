#include "sampling/sampler.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>

#include <gtest/gtest.h>

namespace pelton::sampling {
namespace {

using request::SamplingParams;

SampledChoice sample(std::vector<float> logits, const SamplingParams& params, int position,
                     const TokenHistory* history = nullptr, std::vector<TokenId> banned = {}) {
  Sampler sampler;
  return sampler.sample({.logits = logits,
                         .params = params,
                         .history = history,
                         .banned = banned,
                         .position = position});
}

// How often each token comes up over many positions.
std::map<TokenId, double> frequencies(const std::vector<float>& logits,
                                      const SamplingParams& params, int draws = 40000) {
  std::map<TokenId, double> counts;
  for (int i = 0; i < draws; ++i) counts[sample(logits, params, i).token] += 1.0 / draws;
  return counts;
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) {
  EXPECT_EQ(sample({1, 3, 3, 2}, {.temperature = 0}, 0).token, 1);
}

TEST(Sampler, ARowThatIsNoNumbersGivesNoToken) {
  const float nan = std::nanf("");
  const float infinity = HUGE_VALF;
  for (const float temperature : {0.0f, 1.0f}) {
    for (const std::vector<float>& row :
         {std::vector<float>{1, nan, 2}, {1, -nan}, {1, infinity}, {-infinity, -infinity}}) {
      EXPECT_FALSE(sample(row, {.temperature = temperature}, 0).usable);
    }
    EXPECT_TRUE(sample({-infinity, 0}, {.temperature = temperature}, 0).usable);
  }
}

TEST(Sampler, DrawsFollowTheSoftmax) {
  const std::vector<float> logits = {0.0f, std::log(2.0f), std::log(5.0f)};
  const auto seen = frequencies(logits, {.seed = 11});
  EXPECT_NEAR(seen.at(0), 1.0 / 8, 0.01);
  EXPECT_NEAR(seen.at(1), 2.0 / 8, 0.01);
  EXPECT_NEAR(seen.at(2), 5.0 / 8, 0.01);
}

TEST(Sampler, TemperatureSharpens) {
  const std::vector<float> logits = {0.0f, std::log(2.0f)};
  EXPECT_NEAR(frequencies(logits, {.temperature = 0.5f, .seed = 3}).at(1), 4.0 / 5, 0.01);
}

TEST(Sampler, TheDrawIsAFunctionOfSeedAndPosition) {
  const std::vector<float> logits(50, 0.0f);
  EXPECT_EQ(sample(logits, {.seed = 5}, 7).token, sample(logits, {.seed = 5}, 7).token);
  int differ = 0;
  for (int i = 0; i < 50; ++i) {
    differ += sample(logits, {.seed = 5}, i).token != sample(logits, {.seed = 6}, i).token ? 1 : 0;
  }
  EXPECT_GT(differ, 35);
}

TEST(Sampler, TopKTopPAndMinPCut) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f),
                                     std::log(0.05f)};
  EXPECT_EQ(frequencies(logits, {.top_k = 2, .seed = 1}).size(), 2u);
  EXPECT_NEAR(frequencies(logits, {.top_k = 2, .seed = 1}).at(0), 0.625, 0.01);
  EXPECT_EQ(frequencies(logits, {.top_p = 0.5f, .seed = 1}).size(), 1u);
  EXPECT_EQ(frequencies(logits, {.top_p = 0.79f, .seed = 1}).size(), 2u);
  EXPECT_EQ(frequencies(logits, {.top_p = 0.81f, .seed = 1}).size(), 3u);
  EXPECT_EQ(frequencies(logits, {.min_p = 0.2f, .seed = 1}).size(), 3u);
  // top_p counts the mass that top_k left.
  EXPECT_EQ(frequencies(logits, {.top_k = 2, .top_p = 0.6f, .seed = 1}).size(), 1u);
}

TEST(Sampler, CutsAgreeWithTheirDefinition) {
  const char* given = std::getenv("PELTON_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("PELTON_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    const int vocab = 1 + static_cast<int>(random() % 3000);
    std::vector<float> logits(vocab);
    for (float& logit : logits) logit = static_cast<float>(random() % 2000) / 100.0f;
    SamplingParams params{.seed = random()};
    params.temperature = 0.1f + static_cast<float>(random() % 30) / 10.0f;
    params.top_k = random() % 2 == 0 ? 0 : 1 + static_cast<int>(random() % 100);
    params.top_p = static_cast<float>(1 + random() % 100) / 100.0f;
    params.min_p = random() % 2 == 0 ? 0.0f : static_cast<float>(random() % 100) / 100.0f;
    const TokenId token = sample(logits, params, round).token;

    std::vector<int> order(vocab);
    for (int i = 0; i < vocab; ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return logits[a] > logits[b]; });
    if (params.top_k > 0 && params.top_k < vocab) order.resize(params.top_k);
    const auto weight = [&](int id) {
      return std::exp((double{logits[id]} - logits[order[0]]) / params.temperature);
    };
    double total = 0;
    for (const int id : order) total += weight(id);
    double before = 0;
    bool allowed = false;
    for (const int id : order) {
      // A hair of slack where rounding decides whether a candidate is the first one cut.
      const bool kept = id == order[0] || (before < params.top_p * total * (1 + 1e-5) &&
                                           weight(id) >= params.min_p * (1 - 1e-5));
      if (id == token) allowed = kept;
      before += weight(id);
    }
    EXPECT_TRUE(allowed) << "round " << round;
  }
}

TEST(Sampler, PenaltiesCountWhatTheyShould) {
  TokenHistory history;
  const std::vector<TokenId> prompt = {0};
  history.add_prompt(prompt);
  history.add_output(1);
  history.add_output(1);
  // Only the output counts for presence and frequency: 3.0 - 2 * 0.4 - 0.3 < 2.0 < 3.1.
  EXPECT_EQ(
      sample({3.1f, 3.0f, 2.0f},
             {.temperature = 0, .frequency_penalty = 0.4f, .presence_penalty = 0.3f}, 0, &history)
          .token,
      0);
  // Repetition counts the prompt too, and pushes negative logits further down.
  EXPECT_EQ(
      sample({4.0f, 4.0f, 2.5f}, {.temperature = 0, .repetition_penalty = 2.0f}, 0, &history).token,
      2);
  EXPECT_EQ(
      sample({-1.0f, -1.0f, -1.5f}, {.temperature = 0, .repetition_penalty = 2.0f}, 0, &history)
          .token,
      2);
}

TEST(Sampler, BiasAndBanDecide) {
  EXPECT_EQ(sample({1, 2, 3}, {.temperature = 0, .logit_bias = {{0, 100.0f}, {99, 5.0f}}}, 0).token,
            0);
  EXPECT_EQ(sample({1, 2, 3}, {.temperature = 0}, 0, nullptr, {2, 99}).token, 1);
  EXPECT_EQ(frequencies({1, 2, 3}, {.logit_bias = {{2, -100.0f}}, .seed = 4}, 1000).count(2), 0u);
}

TEST(Sampler, LogprobsAreOfTheRowAsItCame) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  const SampledChoice choice =
      sample(logits, {.temperature = 0, .logit_bias = {{2, 100.0f}}, .logprobs = 2}, 0);
  EXPECT_EQ(choice.token, 2);
  EXPECT_NEAR(choice.logprob, std::log(0.2), 1e-5);
  ASSERT_EQ(choice.top.size(), 2u);
  EXPECT_EQ(choice.top[0].first, 0);
  EXPECT_NEAR(choice.top[1].second, std::log(0.3), 1e-5);
}

TEST(Sampler, ARowWithoutHopeStillAnswers) {
  const float never = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(sample({never, never}, {}, 0).token, 0);
  EXPECT_GE(sample({std::nanf(""), std::nanf("")}, {}, 0).token, 0);
}

}  // namespace
}  // namespace pelton::sampling
