#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <random>

#include <gtest/gtest.h>

#include "base/random.h"

namespace pelton::sampling {
namespace {

using request::SamplingParams;

SampledChoice sample(std::vector<float> logits, const SamplingParams& params, int position,
                     const TokenHistory* history = nullptr, std::vector<TokenId> banned = {}) {
  Sampler sampler;
  return sampler.sample(
      logits, {.params = params, .history = history, .banned = banned, .position = position});
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

TEST(Sampler, ATopPOfNothingLeavesTheBestToken) {
  for (const int vocab : {3, 20000}) {  // the latter are too many to be sorted
    const std::vector<float> logits(static_cast<size_t>(vocab), 0.5f);
    for (int position = 0; position < 20; ++position) {
      EXPECT_EQ(sample(logits, {.top_p = 0.0f, .seed = 3}, position).token, 0);
    }
  }
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

TEST(Sampler, LogprobsOfNamedTokensStandBehindTheLikeliest) {
  request::SamplingParams params{.temperature = 0.0f, .logprobs = 1, .logprob_tokens = {3, 0, 9}};
  std::vector<float> logits = {4, 1, 2, 3};
  const std::vector<float> raw = logits;
  Sampler sampler;
  const SampledChoice choice =
      sampler.sample(logits, {.params = params, .banned = {}, .allowed = {}});
  ASSERT_EQ(choice.top.size(), 3U);
  EXPECT_EQ(choice.top[0].first, 0);
  EXPECT_EQ(choice.top[1].first, 3);
  EXPECT_NEAR(choice.top[1].second, choice.logprob - 1.0f, 1e-5);
  EXPECT_EQ(choice.top[2].first, 9);
  EXPECT_LE(choice.top[2].second, -9000.0f);
}

// The definition, in the plainest words, beside the sampler: cuts, surprises, and where the bound
// goes.
TEST(Sampler, MirostatSteersTheSurprise) {
  const request::Mirostat mirostat{.target = 2.0f, .rate = 0.3f};
  request::SamplingParams params{.temperature = 1.0f, .mirostat = mirostat, .seed = 11};
  Sampler sampler;
  float bound = mirostat.first_bound();
  double sum = 0;
  constexpr int kTokens = 4000;
  for (int position = 0; position < kTokens; ++position) {
    std::vector<float> logits(64);
    for (size_t i = 0; i < logits.size(); ++i) logits[i] = -0.1f * static_cast<float>(i);
    std::vector<double> p;
    double all = 0;
    for (const float logit : logits) all += std::exp(logit);
    for (const float logit : logits) p.push_back(std::exp(logit) / all);
    const SampledChoice choice = sampler.sample(logits, {.params = params,
                                                         .banned = {},
                                                         .allowed = {},
                                                         .position = position,
                                                         .mirostat_bound = bound});
    double left = 0;
    size_t count = 0;
    for (; count < p.size() && (count == 0 || -std::log2(p[count]) <= bound); ++count) {
      left += p[count];
    }
    ASSERT_LT(static_cast<size_t>(choice.token), count) << position;
    ASSERT_NEAR(choice.surprise, -std::log2(p[static_cast<size_t>(choice.token)] / left), 1e-3);
    sum += choice.surprise;
    bound = mirostat.next_bound(bound, choice.surprise);
  }
  EXPECT_NEAR(sum / kTokens, 2.0, 0.05);
  EXPECT_EQ(mirostat.next_bound(3.0f, -1.0f), 3.0f) << "a token that was not drawn";
}

TEST(Sampler, PenaltiesLookAtTheLastTokensWhereAskedTo) {
  TokenHistory history;
  history.add_prompt(std::vector<TokenId>{0, 1});
  for (const TokenId token : {2, 2, 3}) history.add_output(token);
  const auto best = [&](int last_n) {
    request::SamplingParams params{
        .temperature = 0.0f, .repetition_penalty = 100.0f, .penalty_last_n = last_n};
    std::vector<float> logits = {5, 4, 3, 2, 1};
    Sampler sampler;
    return sampler
        .sample(logits, {.params = params, .history = &history, .banned = {}, .allowed = {}})
        .token;
  };
  EXPECT_EQ(best(-1), 4);
  EXPECT_EQ(best(5), 4);
  EXPECT_EQ(best(4), 0);
  request::SamplingParams params{
      .temperature = 0.0f, .frequency_penalty = 1.0f, .penalty_last_n = 2};
  std::vector<float> logits = {0, 0, 5, 0, 3.5f};  // 2 stands once among the last two
  Sampler sampler;
  const SampledChoice choice =
      sampler.sample(logits, {.params = params, .history = &history, .banned = {}, .allowed = {}});
  EXPECT_EQ(choice.token, 2);
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

TEST(Sampler, NothingAllowedOrAllBannedGivesNoToken) {
  EXPECT_FALSE(sample({1, 2}, {}, 0, nullptr, {0, 1}).usable);
  std::vector<float> row = {1, 2, 3};
  const std::vector<uint64_t> allowed = {0};
  Sampler sampler;
  EXPECT_FALSE(sampler.sample(row, {.params = {}, .allowed = allowed}).usable);
}

TEST(Sampler, ABanDoesNotHideANaN) {
  EXPECT_FALSE(sample({1, std::nanf("")}, {}, 0, nullptr, {1}).usable);
}

// What a draw should be, slowly: double precision, a sort of everything.
struct Oracle {
  std::vector<int> kept;  // by rank
  std::vector<double> weights;
  double kept_mass = 0;
  bool close = false;  // rounding could decide who is the last one kept

  Oracle(const std::vector<float>& logits, const SamplingParams& params) {
    std::vector<int> order;
    for (int i = 0; i < static_cast<int>(logits.size()); ++i) {
      if (logits[i] != -HUGE_VALF) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return logits[a] > logits[b]; });
    if (params.top_k > 0 && order.size() > static_cast<size_t>(params.top_k)) {
      order.resize(static_cast<size_t>(params.top_k));
    }
    double total = 0;
    for (const int id : order) {
      weights.push_back(std::exp((double{logits[id]} - logits[order[0]]) / params.temperature));
      total += weights.back();
    }
    const auto near = [](double a, double b) { return std::abs(a - b) <= 1e-5 * (a + b); };
    for (size_t i = 0; i < order.size(); ++i) {
      const bool cut_by_p = params.top_p < 1.0f && kept_mass >= params.top_p * total;
      close |= params.top_p < 1.0f && near(kept_mass, params.top_p * total);
      close |= near(weights[i], params.min_p);
      if (i > 0 && (cut_by_p || weights[i] < params.min_p)) break;
      kept.push_back(order[i]);
      kept_mass += weights[i];
    }
    weights.resize(kept.size());
  }

  // The part of the unit interval that draws `token`, tokens standing in order of id.
  std::optional<std::pair<double, double>> interval(TokenId token) const {
    double before = 0;
    std::optional<double> own;
    for (size_t i = 0; i < kept.size(); ++i) {
      if (kept[i] < token) before += weights[i];
      if (kept[i] == token) own = weights[i];
    }
    if (!own) return std::nullopt;
    return std::pair(before / kept_mass, (before + *own) / kept_mass);
  }
};

std::vector<float> random_row(std::mt19937_64& random) {
  static constexpr uint64_t kVocabMax[] = {40, 9000, 9000, 9000, 9000, 60000};
  const size_t vocab = 1 + random() % kVocabMax[random() % std::size(kVocabMax)];
  std::vector<float> row(vocab);
  const float width = std::exp2(static_cast<float>(random() % 7) - 3.0f);
  std::normal_distribution<float> bell(static_cast<float>(random() % 30) - 15.0f, width);
  // Coarse rows have many equal logits, down to rows of one number.
  const float coarse = random() % 2 == 0 ? 0.0f : std::exp2(static_cast<float>(random() % 6) - 1);
  for (float& logit : row) {
    logit = bell(random);
    if (coarse > 0) logit = std::round(logit / coarse) * coarse;
  }
  for (uint64_t i = random() % 5; i > 0; --i) {
    row[random() % vocab] += static_cast<float>(random() % 20);
  }
  for (uint64_t i = random() % 3; i > 0 && vocab > 3; --i) row[random() % vocab] = -HUGE_VALF;
  if (*std::max_element(row.begin(), row.end()) == -HUGE_VALF) row[0] = 0;
  return row;
}

SamplingParams random_params(std::mt19937_64& random) {
  SamplingParams params{.seed = random()};
  params.temperature = std::exp2(static_cast<float>(random() % 70) / 10.0f - 4.0f);
  if (random() % 2 == 0) params.top_k = 1 + static_cast<int>(random() % (random() % 2 ? 50 : 5000));
  if (random() % 2 == 0) params.top_p = static_cast<float>(random() % 1000) / 1000.0f;
  if (random() % 3 == 0) params.min_p = static_cast<float>(random() % 100) / 400.0f;
  return params;
}

// The token drawn is the one that the random number points at when the kept tokens stand in a row,
// and it is the same in every form of the kernels.
TEST(Sampler, DrawsAreTheOraclesOnEveryProcessor) {
  std::vector<Sampler> samplers;
  for (const auto choice : {kernels::KernelChoice::kReference, kernels::KernelChoice::kAvx2,
                            kernels::KernelChoice::kAvx512, kernels::KernelChoice::kNeon}) {
    if (kernels::make_logit_rows(choice).ok()) samplers.emplace_back(choice);
  }
  const char* given = std::getenv("PELTON_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("PELTON_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  int checked = 0;
  for (int round = 0; round < 600; ++round) {
    const std::vector<float> row = random_row(random);
    const SamplingParams params = random_params(random);
    const int position = static_cast<int>(random() % 100000);

    std::vector<uint64_t> allowed;
    std::vector<float> masked = row;
    if (random() % 2 == 0) {
      allowed.resize((row.size() + 63) / 64);
      for (uint64_t& word : allowed) word = random() | random();
      for (size_t i = 0; i < row.size(); ++i) {
        if ((allowed[i / 64] >> (i % 64) & 1) == 0) masked[i] = -HUGE_VALF;
      }
    }
    std::optional<SampledChoice> first;
    for (Sampler& sampler : samplers) {
      std::vector<float> scratch = row;
      const SampledChoice choice =
          sampler.sample(scratch, {.params = params, .allowed = allowed, .position = position});
      if (!first) first = choice;
      ASSERT_EQ(choice.token, first->token) << "round " << round;
      ASSERT_EQ(choice.usable, first->usable) << "round " << round;
    }
    const bool something = *std::max_element(masked.begin(), masked.end()) != -HUGE_VALF;
    ASSERT_EQ(first->usable, something);
    if (!something) continue;
    const Oracle oracle(masked, params);
    if (oracle.close) continue;
    ++checked;
    const auto interval = oracle.interval(first->token);
    ASSERT_TRUE(interval) << "round " << round << ": a token that was cut";
    const double unit = base::random_unit(params.seed, static_cast<uint64_t>(position));
    ASSERT_GE(unit, interval->first - 3e-5) << "round " << round;
    ASSERT_LE(unit, interval->second + 3e-5) << "round " << round;
  }
  EXPECT_GT(checked, 300);
}

// A penalty that a float rounds to nothing, or that carries logits beyond the floats: the repeated
// tokens are above (or below) all others, and among themselves as they were.
TEST(Sampler, E1_TheSmallestAndTheLargestRepetitionPenalty) {
  TokenHistory history;
  history.add_prompt(std::vector<TokenId>{1, 2, 3});
  Sampler sampler;
  const auto best = [&](std::vector<float> row, float penalty) {
    const SamplingParams params{.temperature = 0, .repetition_penalty = penalty};
    const SampledChoice choice = sampler.sample(row, {.params = params, .history = &history});
    EXPECT_TRUE(choice.usable) << penalty;
    return choice.token;
  };
  for (const float penalty : {0.0f, std::numeric_limits<float>::denorm_min(), 1e-38f, 1e-30f}) {
    EXPECT_EQ(best({5, 1, 3, 2}, penalty), 2) << penalty;
    EXPECT_EQ(best({-5, -1, -3, -2}, penalty), 1) << penalty;
    EXPECT_EQ(best({9, 3e38f, -3e38f, 0}, penalty), 1) << penalty;
  }
  EXPECT_EQ(best({-9, -3e38f, -2e38f, -3e38f}, 100), 0);
  EXPECT_EQ(best({3e38f, 3e38f, 0, 0}, 100), 0);
  EXPECT_EQ(best({-3.4e38f, -1e37f, -3e38f, -3e38f}, 100), 0);
}

TEST(Sampler, GreedyObeysTheMask) {
  Sampler sampler;
  std::vector<float> row(300);
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(i);
  std::vector<uint64_t> allowed = {~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}, uint64_t{1} << 5, 0};
  EXPECT_EQ(sampler.sample(row, {.params = {.temperature = 0}, .allowed = allowed}).token,
            3 * 64 + 5);
}

TEST(Sampler, LogprobsDoNotKnowTheMask) {
  Sampler sampler;
  std::vector<float> row = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  const std::vector<uint64_t> allowed = {0b100};
  const SampledChoice choice = sampler.sample(row, {.params = {.logprobs = 3}, .allowed = allowed});
  EXPECT_EQ(choice.token, 2);
  EXPECT_NEAR(choice.logprob, std::log(0.2), 1e-5);
  ASSERT_EQ(choice.top.size(), 3u);
  EXPECT_EQ(choice.top[0].first, 0);
  EXPECT_EQ(choice.top[2].first, 2);
}

TEST(Sampler, TopLogprobsAreThoseOfASort) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  Sampler sampler;
  for (int round = 0; round < 100; ++round) {
    std::vector<float> row = random_row(random);
    std::vector<std::pair<float, TokenId>> order;
    double total = 0;
    const float highest = *std::max_element(row.begin(), row.end());
    for (size_t i = 0; i < row.size(); ++i) {
      if (row[i] != -HUGE_VALF) order.emplace_back(-row[i], static_cast<TokenId>(i));
      total += std::exp(double{row[i]} - highest);
    }
    std::sort(order.begin(), order.end());
    const SampledChoice choice = sampler.sample(row, {.params = {.logprobs = 20}});
    ASSERT_EQ(choice.top.size(), std::min<size_t>(20, order.size()));
    for (size_t i = 0; i < choice.top.size(); ++i) {
      ASSERT_EQ(choice.top[i].first, order[i].second);
      ASSERT_NEAR(choice.top[i].second, -order[i].first - highest - std::log(total), 2e-5);
    }
  }
}

TEST(Sampler, ASampleTakesNoMoreThanItReserved) {
  Sampler sampler;
  sampler.reserve(5000);
  EXPECT_EQ(sampler.bytes(), Sampler::bytes_for(5000));
  std::vector<float> row(5000, 1.0f);
  for (const SamplingParams& params :
       {SamplingParams{.top_p = 0.9f, .logit_bias = {{1, 2.0f}}, .logprobs = 20},
        SamplingParams{.top_k = 4999}, SamplingParams{}}) {
    sampler.sample(row, {.params = params});
    EXPECT_EQ(sampler.bytes(), Sampler::bytes_for(5000));
  }
}

}  // namespace
}  // namespace pelton::sampling
