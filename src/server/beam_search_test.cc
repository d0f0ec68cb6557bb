#include "server/beam_search.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/random.h"

namespace pelton::server {
namespace {

using Tokens = std::vector<TokenId>;
using Model = std::function<BeamSearch::Next(const Tokens&)>;

constexpr TokenId kStop = 0;

Tokens tokens_of(const Beam& beam) {
  Tokens tokens;
  for (const engine::SampledToken& token : beam.tokens) tokens.push_back(token.token);
  return tokens;
}

BeamSearch::Next ranked(BeamSearch::Next next) {
  std::ranges::stable_sort(next, std::ranges::greater(), &std::pair<TokenId, float>::second);
  return next;
}

// How many steps it took.
int run(BeamSearch& search, const Model& model) {
  int steps = 0;
  while (!search.live().empty()) {
    std::vector<BeamSearch::Next> next;
    for (const Beam& beam : search.live()) {
      next.push_back(ranked(model(tokens_of(beam))));
      const auto wanted = static_cast<size_t>(search.alternatives());
      if (next.back().size() > wanted) next.back().resize(wanted);
    }
    search.extend(next);
    ++steps;
  }
  return steps;
}

// The header's example.
TEST(BeamSearch, FindsWhatGreedyDecodingMisses) {
  const Model model = [](const Tokens& tokens) -> BeamSearch::Next {
    const auto next = [](float first, float second) {
      return BeamSearch::Next{{1, std::log(first)}, {2, std::log(second)}};
    };
    if (tokens.empty()) return next(.6F, .4F);
    return tokens[0] == 1 ? next(.5F, .5F) : next(.9F, .1F);
  };
  BeamSearch narrow({.width = 1, .tokens_max = 2});
  run(narrow, model);
  EXPECT_EQ(tokens_of(narrow.best(1)[0]), (Tokens{1, 1}));
  BeamSearch wide({.width = 2, .tokens_max = 2});
  run(wide, model);
  EXPECT_EQ(tokens_of(wide.best(2)[0]), (Tokens{2, 1}));
  EXPECT_EQ(tokens_of(wide.best(2)[1]), (Tokens{1, 1})) << "of equals the one found first";
  EXPECT_NEAR(wide.best(1)[0].logprob, std::log(.36), 1e-6);
}

TEST(BeamSearch, AStopTokenEndsABeamAndIsItsLast) {
  const Model model = [](const Tokens& tokens) -> BeamSearch::Next {
    if (tokens.empty()) return {{kStop, std::log(.2F)}, {1, std::log(.8F)}};
    return {{kStop, std::log(.5F)}, {1, std::log(.5F)}};
  };
  BeamSearch search({.width = 1, .tokens_max = 3, .length_penalty = 0.0, .stops = {kStop}});
  run(search, model);
  const Beam best = search.best(1)[0];
  EXPECT_EQ(tokens_of(best), (Tokens{1, kStop}));
  EXPECT_TRUE(best.stopped);
}

TEST(BeamSearch, LengthIsRewardedOrPunished) {
  const Model model = [](const Tokens&) -> BeamSearch::Next {
    return {{1, std::log(.6F)}, {kStop, std::log(.4F)}};
  };
  for (const auto& [penalty, length] : std::map<double, size_t>{{-1.0, 1}, {0.0, 1}, {2.0, 4}}) {
    BeamSearch search({.width = 2, .tokens_max = 4, .length_penalty = penalty, .stops = {kStop}});
    run(search, model);
    EXPECT_EQ(search.best(1)[0].tokens.size(), length) << penalty;
  }
}

TEST(BeamSearch, EndsEarlyWhereNothingBetterCanCome) {
  const Model model = [](const Tokens& tokens) -> BeamSearch::Next {
    if (tokens.empty()) return {{kStop, std::log(.99F)}, {1, std::log(.01F)}};
    return {{1, std::log(.5F)}, {2, std::log(.5F)}};
  };
  BeamSearch search({.width = 1, .tokens_max = 1000, .length_penalty = 0.0, .stops = {kStop}});
  EXPECT_EQ(run(search, model), 1);
}

// Asked to, it takes the first that stop: here a worse one.
TEST(BeamSearch, EarlyStoppingTakesTheFirst) {
  const Model model = [](const Tokens& tokens) -> BeamSearch::Next {
    if (tokens.empty()) return {{1, std::log(.7F)}, {kStop, std::log(.3F)}};
    return {{kStop, std::log(.99F)}, {2, std::log(.01F)}};
  };
  for (const bool early : {false, true}) {
    BeamSearch search({.width = 1,
                       .tokens_max = 9,
                       .length_penalty = 0.0,
                       .early_stopping = early,
                       .stops = {kStop}});
    run(search, model);
    EXPECT_EQ(tokens_of(search.best(1)[0]), early ? Tokens{kStop} : (Tokens{1, kStop}));
  }
}

// vLLM's length: the prompt counts, the stop token does not.
TEST(BeamSearch, ThePromptCountsAsLengthAndAStopTokenDoesNot) {
  BeamSearch short_prompt({.width = 1, .tokens_max = 9, .prompt_tokens = 1});
  BeamSearch long_prompt({.width = 1, .tokens_max = 9, .prompt_tokens = 10});
  const Beam stopped{.tokens = {{.token = 1}, {.token = kStop}}, .logprob = -1.0, .stopped = true};
  const Beam whole{.tokens = {{.token = 1}, {.token = 2}, {.token = 3}}, .logprob = -1.4};
  EXPECT_DOUBLE_EQ(short_prompt.score(stopped), -1.0 / 2);
  EXPECT_DOUBLE_EQ(short_prompt.score(whole), -1.4 / 4);
  EXPECT_DOUBLE_EQ(long_prompt.score(stopped), -1.0 / 11);
  EXPECT_DOUBLE_EQ(long_prompt.score(whole), -1.4 / 13);
}

// A search as wide as the tree finds what trying everything finds, whatever the model.
TEST(BeamSearch, AsWideAsTheTreeItIsExhaustive) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  for (uint64_t round = 0; round < 60; ++round) {
    const int vocab = 2 + static_cast<int>(base::random_bits(seed, round * 8) % 3);
    const int length = 1 + static_cast<int>(base::random_bits(seed, round * 8 + 1) % 4);
    const double penalty =
        static_cast<double>(base::random_bits(seed, round * 8 + 2) % 5) * 0.5 - 0.5;
    const Model model = [&](const Tokens& tokens) {
      uint64_t hash = seed + round;
      for (const TokenId token : tokens) hash = base::random_bits(hash, uint64_t(token) + 1);
      BeamSearch::Next next;
      double sum = 0;
      for (TokenId token = 0; token < vocab; ++token) {
        next.emplace_back(
            token, 1.0F + static_cast<float>(base::random_bits(hash, 99 + uint64_t(token)) % 1000));
        sum += next.back().second;
      }
      for (auto& [token, value] : next) value = static_cast<float>(std::log(value / sum));
      return next;
    };
    BeamSearch search({.width = 300,
                       .tokens_max = length,
                       .prompt_tokens = static_cast<int>(round % 7),
                       .length_penalty = penalty,
                       .stops = {kStop}});
    double best = -1e300;
    const std::function<void(Beam)> try_all = [&](const Beam& beam) {
      for (const auto& [token, logprob] : model(tokens_of(beam))) {
        Beam longer = beam;
        longer.tokens.push_back({.token = token});
        longer.logprob += double{logprob};
        longer.stopped = token == kStop;
        if (token == kStop || std::ssize(longer.tokens) == length) {
          best = std::max(best, search.score(longer));
        } else {
          try_all(longer);
        }
      }
    };
    try_all({});
    run(search, model);
    EXPECT_DOUBLE_EQ(search.score(search.best(1)[0]), best) << round;
  }
}

}  // namespace
}  // namespace pelton::server
