// Each cut against a plain twin: the definition, in doubles, over all tokens.
#include "sampling/distribution_cuts.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <random>
#include <set>

#include <gmock/gmock.h>

#include "sampling/sampler.h"

namespace pelton::sampling {
namespace {

using request::SamplingParams;

constexpr kernels::Mass kUnit = kernels::kWholeMass;

// Ranked, with these shares of the best one's weight.
std::vector<Weighted> ranked(const std::vector<double>& shares) {
  std::vector<Weighted> tokens;
  for (size_t i = 0; i < shares.size(); ++i) {
    tokens.push_back(
        {.token = static_cast<TokenId>(i),
         .logit = static_cast<float>(std::log(shares[i])),
         .weight = static_cast<kernels::Mass>(shares[i] * static_cast<double>(kUnit))});
  }
  return tokens;
}

std::vector<TokenId> ids(const std::vector<Weighted>& tokens) {
  std::vector<TokenId> all;
  for (const Weighted& token : tokens) all.push_back(token.token);
  return all;
}

using testing::ElementsAre;

TEST(DistributionCuts, TypicalKeepsWhatSurprisesAsMuchAsTheWhole) {
  // The header's example.
  for (const auto& [share, kept] : std::map<double, std::vector<TokenId>>{
           {0.2, {1}}, {0.25, {1}}, {0.7, {0, 1}}, {0.8, {0, 1, 2}}, {1.0, {0, 1, 2, 3}}}) {
    std::vector<Weighted> tokens = ranked({.5, .25, .125, .125});
    keep_typical(tokens, share);
    EXPECT_EQ(ids(tokens), kept) << share;
  }
}

TEST(DistributionCuts, XtcLeavesTheLastOfTheTopChoices) {
  std::vector<Weighted> tokens = ranked({.4, .3, .2, .1});
  exclude_top_choices(tokens, 0.15f);
  EXPECT_THAT(ids(tokens), ElementsAre(2, 3));
  tokens = ranked({.4, .3, .2, .1});
  exclude_top_choices(tokens, 0.35f);  // one choice is no choice
  EXPECT_THAT(ids(tokens), ElementsAre(0, 1, 2, 3));
  exclude_top_choices(tokens, 0.5f);
  EXPECT_THAT(ids(tokens), ElementsAre(0, 1, 2, 3));
  exclude_top_choices(tokens, 0.0f);
  EXPECT_THAT(ids(tokens), ElementsAre(3));
}

TEST(DistributionCuts, SigmaIsOfTheWholeRowWithoutWhatIsMasked) {
  const float infinity = HUGE_VALF;
  const float lowest = std::numeric_limits<float>::lowest();
  // Mean 2, deviation sqrt(2).
  const std::vector<float> row = {0, 1, -infinity, 2, 3, lowest, 4};
  EXPECT_NEAR(sigma_floor(row, 4, 1), 4 - std::sqrt(2.0), 1e-5);
  EXPECT_NEAR(sigma_floor(row, 4, 2), 4 - 2 * std::sqrt(2.0), 1e-5);
}

TEST(DistributionCuts, DynamicTemperatureFollowsTheEntropy) {
  const SamplingParams params{.temperature = 1.0f, .dynatemp_range = 0.5f};
  EXPECT_NEAR(dynamic_temperature(ranked({1, 1, 1, 1}), 4, params), 1.5, 1e-9);
  EXPECT_NEAR(dynamic_temperature(ranked({1}), 4, params), 0.5, 1e-9);
  EXPECT_NEAR(dynamic_temperature(ranked({1, 1}), 4, params), 1.0, 1e-9);
  SamplingParams square = params;
  square.dynatemp_exponent = 2.0f;
  EXPECT_NEAR(dynamic_temperature(ranked({1, 1}), 4, square), 0.75, 1e-9);
  SamplingParams wide = params;
  wide.dynatemp_range = 3.0f;  // not below 0
  EXPECT_NEAR(dynamic_temperature(ranked({1}), 4, wide), 0.0, 1e-9);
}

// ---- the whole chain against a plain one

struct Plain {
  TokenId token;
  double weight;
};

double total_of(const std::vector<Plain>& tokens) {
  double sum = 0;
  for (const Plain& token : tokens) sum += token.weight;
  return sum;
}

void plain_typical(std::vector<Plain>& tokens, double share) {
  const double total = total_of(tokens);
  double entropy = 0;
  for (const Plain& t : tokens) entropy -= t.weight / total * std::log(t.weight / total);
  const auto far = [&](const Plain& t) { return std::abs(-std::log(t.weight / total) - entropy); };
  std::vector<Plain> order = tokens;
  std::ranges::stable_sort(order, [&](const Plain& a, const Plain& b) { return far(a) < far(b); });
  std::set<TokenId> kept;
  double sum = 0;
  for (size_t i = 0; i < order.size() && (i == 0 || sum < share * total); ++i) {
    kept.insert(order[i].token);
    sum += order[i].weight;
  }
  std::erase_if(tokens, [&](const Plain& t) { return !kept.contains(t.token); });
}

// What may be drawn. XTC acts if its probability is 1.
std::set<TokenId> plain_choices(const std::vector<float>& row, const SamplingParams& params) {
  std::vector<int> order(row.size());
  for (size_t i = 0; i < row.size(); ++i) order[i] = static_cast<int>(i);
  std::ranges::stable_sort(order, [&](int a, int b) { return row[a] > row[b]; });
  if (params.top_n_sigma > 0) {
    double mean = 0;
    double squares = 0;
    for (const float x : row) mean += x / static_cast<double>(row.size());
    for (const float x : row) squares += (x - mean) * (x - mean) / static_cast<double>(row.size());
    const double least = row[order[0]] - params.top_n_sigma * std::sqrt(squares);
    std::erase_if(order, [&](int i) { return row[i] < least; });
  }
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < order.size()) {
    order.resize(static_cast<size_t>(params.top_k));
  }
  double temperature = params.temperature;
  if (params.dynatemp_range > 0) {
    double sum = 0;
    double entropy = 0;
    for (const int i : order) sum += std::exp(double{row[i]});
    for (const int i : order) {
      entropy -= std::exp(double{row[i]}) / sum * (row[i] - std::log(sum));
    }
    const double share =
        order.size() < 2 ? 1.0 : entropy / std::log(static_cast<double>(order.size()));
    const double low = std::max(0.0, temperature - params.dynatemp_range);
    const double high = temperature + params.dynatemp_range;
    if (order.size() > 1) {
      temperature = low + (high - low) * std::pow(share, double{params.dynatemp_exponent});
    }
  }
  std::vector<Plain> tokens;
  for (const int i : order) {
    tokens.push_back({i, std::exp((double{row[i]} - row[order[0]]) / temperature)});
  }
  if (params.typical_p < 1) plain_typical(tokens, params.typical_p);
  if (params.top_p < 1) {
    const double needed = params.top_p * total_of(tokens);
    double sum = 0;
    size_t count = 0;
    while (count < tokens.size() && sum < needed) sum += tokens[count++].weight;
    tokens.resize(std::max<size_t>(count, 1));
  }
  const double best = tokens[0].weight;
  std::erase_if(tokens, [&](const Plain& t) { return t.weight < params.min_p * best; });
  if (params.xtc_probability >= 1) {
    const double least = params.xtc_threshold * total_of(tokens);
    size_t viable = 0;
    while (viable < tokens.size() && tokens[viable].weight >= least) ++viable;
    if (viable > 1) tokens.erase(tokens.begin(), tokens.begin() + static_cast<int64_t>(viable) - 1);
  }
  std::set<TokenId> left;
  for (const Plain& token : tokens) left.insert(token.token);
  return left;
}

TEST(DistributionCuts, AllTogetherAgreeWithThePlainChain) {
  const char* given = std::getenv("PELTON_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("PELTON_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const auto one_in = [&](int n) { return random() % static_cast<uint64_t>(n) == 0; };
  const auto unit = [&] { return static_cast<float>(random() % 1000) / 1000.0f; };
  Sampler sampler;
  int odd = 0;  // rounding decides whether a token at a cut's edge stays
  constexpr int kRounds = 2000;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<float> row(2 + random() % 300);
    std::normal_distribution<float> logits(0.0f, 2.5f);
    for (float& logit : row) logit = logits(random);
    SamplingParams params{.temperature = 0.3f + unit() * 1.5f, .seed = random()};
    if (one_in(2)) params.top_k = 1 + static_cast<int>(random() % 60);
    if (one_in(2)) params.top_p = 0.1f + 0.9f * unit();
    if (one_in(2)) params.min_p = 0.5f * unit();
    if (one_in(2)) params.typical_p = 0.1f + 0.9f * unit();
    if (one_in(2)) params.top_n_sigma = 0.2f + 2 * unit();
    if (one_in(2)) params.dynatemp_range = unit();
    if (one_in(2)) params.dynatemp_exponent = 0.5f + unit();
    if (one_in(2)) params.xtc_probability = 1.0f;
    params.xtc_threshold = 0.5f * unit();
    if (!params.has_distribution_cuts()) continue;
    std::vector<float> changed = row;
    const SampledChoice choice = sampler.sample(changed, {.params = params, .position = round});
    ASSERT_TRUE(choice.usable);
    odd += plain_choices(row, params).contains(choice.token) ? 0 : 1;
  }
  EXPECT_LE(odd, 4) << "of " << kRounds;
}

TEST(DistributionCuts, XtcActsAsOftenAsItIsAsked) {
  const std::vector<float> row = {std::log(0.6f), std::log(0.4f)};
  Sampler sampler;
  int first = 0;
  constexpr int kDraws = 20000;
  for (int position = 0; position < kDraws; ++position) {
    std::vector<float> changed = row;
    const SamplingParams params{.xtc_probability = 0.5f, .seed = 3};
    first += sampler.sample(changed, {.params = params, .position = position}).token == 0 ? 1 : 0;
  }
  EXPECT_NEAR(first / double{kDraws}, 0.3, 0.015);  // half of .6, as the other half has it excluded
}

TEST(DistributionCuts, ADrawIsAFunctionOfSeedAndPosition) {
  std::mt19937 random(1);
  std::vector<float> row(500);
  for (float& logit : row) logit = static_cast<float>(random() % 1000) / 200.0f;
  const SamplingParams params{.typical_p = 0.9f,
                              .top_n_sigma = 2.0f,
                              .xtc_probability = 0.5f,
                              .dynatemp_range = 0.4f,
                              .seed = 8};
  Sampler one;
  Sampler other(kernels::KernelChoice::kReference);
  for (int position = 0; position < 200; ++position) {
    std::vector<float> a = row;
    std::vector<float> b = row;
    EXPECT_EQ(one.sample(a, {.params = params, .position = position}).token,
              other.sample(b, {.params = params, .position = position}).token);
  }
}

TEST(DistributionCuts, WhatIsMaskedIsNeverDrawn) {
  const std::vector<uint64_t> allowed = {0b1010};
  const SamplingParams params{.typical_p = 0.5f, .top_n_sigma = 3.0f, .seed = 8};
  Sampler sampler;
  for (int position = 0; position < 100; ++position) {
    std::vector<float> row = {5, 1, 6, 1};
    const TokenId token =
        sampler.sample(row, {.params = params, .allowed = allowed, .position = position}).token;
    EXPECT_TRUE(token == 1 || token == 3);
  }
}

}  // namespace
}  // namespace pelton::sampling
