#include "engine/draft_controller.h"

#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "base/random.h"

namespace pelton::engine {
namespace {

using Candidate = DraftController::Candidate;

// A machine and a text: what a step of so many rows takes, and how likely a guess is right.
struct World {
  std::function<double(int rows)> step_ms;
  double acceptance = 0.5;
  uint64_t draws = 0;

  int accepted_of(int guesses) {
    int accepted = 0;
    while (accepted < guesses && base::random_unit(7, draws++) < acceptance) ++accepted;
    return accepted;
  }
};

// Steps of `sequences`; gives how many guesses the last of them had together.
int play(DraftController& controller, World& world, std::vector<DraftHistory>& sequences, int steps,
         int tokens_max = 8) {
  int guesses = 0;
  for (int step = 0; step < steps; ++step) {
    std::vector<Candidate> candidates;
    for (DraftHistory& history : sequences) {
      candidates.push_back({.history = &history, .tokens_max = tokens_max});
    }
    const auto rows = static_cast<int>(sequences.size());
    controller.choose(candidates, rows, 512);
    guesses = 0;
    for (Candidate& candidate : candidates) {
      guesses += candidate.tokens;
      controller.note_draft(*candidate.history, candidate.tokens, candidate.tokens,
                            world.accepted_of(candidate.tokens));
    }
    const double ms = world.step_ms(rows + guesses);
    controller.note_step(rows + guesses, static_cast<int64_t>(ms * 1e6), 0);
  }
  return guesses;
}

// As on a mixture of experts: concave.
double expert_ms(int rows) {
  return 10.0 * std::pow(rows, 0.6);
}

TEST(DraftController, gives_as_many_as_may_be_unless_it_is_adaptive) {
  DraftController controller({.tokens_max = 8, .adaptive = false});
  std::vector<DraftHistory> histories(3);
  std::vector<Candidate> candidates = {{.history = &histories[0], .tokens_max = 8},
                                       {.history = &histories[1], .tokens_max = 3},
                                       {.history = &histories[2], .tokens_max = 8}};
  controller.choose(candidates, 3, 14);
  EXPECT_EQ(candidates[0].tokens, 8);
  EXPECT_EQ(candidates[1].tokens, 3);
  EXPECT_EQ(candidates[2].tokens, 3);
}

TEST(DraftController, hopeless_text_has_no_guesses_after_64_steps) {
  DraftController controller({.tokens_max = 8, .adaptive = true});
  World world{.step_ms = expert_ms, .acceptance = 0.0};
  std::vector<DraftHistory> sequences(1);
  (void)play(controller, world, sequences, 64);
  int guesses = 0;
  for (int step = 0; step < 1000; ++step) guesses += play(controller, world, sequences, 1);
  EXPECT_LE(guesses, 1000 / 128);  // now and then one, to see
  EXPECT_GE(guesses, 1);
}

TEST(DraftController, text_that_is_copied_has_long_drafts) {
  DraftController controller({.tokens_max = 8, .adaptive = true});
  World world{.step_ms = expert_ms, .acceptance = 0.97};
  std::vector<DraftHistory> sequences(1);
  (void)play(controller, world, sequences, 200);
  int guesses = 0;
  for (int step = 0; step < 100; ++step) guesses += play(controller, world, sequences, 1);
  EXPECT_GE(guesses, 600);
  EXPECT_GT(controller.report().gain, 1.3);
}

// A proposer that seldom has a guess, and then a right one: drafts are long all the same.
TEST(DraftController, rare_guesses_may_be_many) {
  DraftController controller({.tokens_max = 8, .adaptive = true});
  DraftHistory history;
  int granted = 0;
  for (int step = 0; step < 2000; ++step) {
    Candidate candidate{.history = &history, .tokens_max = 8};
    controller.choose({&candidate, 1}, 1, 64);
    granted = candidate.tokens;
    const int drafted = step % 20 == 0 ? granted : 0;
    controller.note_draft(history, granted, drafted, drafted);
    controller.note_step(1 + drafted, static_cast<int64_t>(expert_ms(1 + drafted) * 1e6), 0);
  }
  EXPECT_GE(granted, 6);
}

// Probes find it out.
TEST(DraftController, text_that_becomes_easy_is_noticed) {
  DraftController controller({.tokens_max = 8, .adaptive = true});
  World world{.step_ms = expert_ms, .acceptance = 0.0};
  std::vector<DraftHistory> sequences(1);
  (void)play(controller, world, sequences, 300);
  world.acceptance = 1.0;
  int steps = 0;
  while (steps < 20'000 && play(controller, world, sequences, 1) < 4) ++steps;
  EXPECT_LT(steps, 20'000);
}

// Where a step's time grows with its rows, a full batch has none; a single sequence has them again.
TEST(DraftController, a_full_batch_is_left_alone) {
  const auto compute_bound_ms = [](int rows) { return std::max(10.0, 1.0 * rows); };
  DraftController controller({.tokens_max = 8, .adaptive = true});
  World world{.step_ms = compute_bound_ms, .acceptance = 0.7};
  std::vector<DraftHistory> few(1);
  EXPECT_GE(play(controller, world, few, 100), 3);
  std::vector<DraftHistory> many(64);
  EXPECT_LE(play(controller, world, many, 100), 6);
  EXPECT_GE(play(controller, world, few, 100), 3);
}

// Up to 8 rows cost next to nothing, beyond that each costs the same: guesses below the knee, none
// where the batch alone is beyond it, and again on the way back.
TEST(DraftController, guesses_end_at_the_knee_in_a_sweep_of_batches) {
  const auto knee_ms = [](int rows) { return 10.0 + 0.05 * rows + 2.0 * std::max(0, rows - 8); };
  DraftController controller({.tokens_max = 8, .adaptive = true});
  World world{.step_ms = knee_ms, .acceptance = 0.6};
  const auto guesses_at = [&](size_t batch) {
    std::vector<DraftHistory> sequences(batch);
    (void)play(controller, world, sequences, 150);
    double sum = 0;
    for (int step = 0; step < 50; ++step) sum += play(controller, world, sequences, 1);
    return sum / 50;
  };
  for (const size_t batch : {1, 2, 4}) {
    EXPECT_GE(guesses_at(batch), 2.0) << batch;
    EXPECT_LE(static_cast<double>(batch) + guesses_at(batch), 10.0) << batch;
  }
  for (const size_t batch : {16, 32, 64}) {
    EXPECT_LE(guesses_at(batch), 0.1 * static_cast<double>(batch)) << batch;  // probes
  }
  for (const size_t batch : {4, 2, 1}) EXPECT_GE(guesses_at(batch), 2.0) << batch;
}

TEST(DraftController, says_why_there_are_guesses_or_none) {
  using State = DraftController::State;
  DraftController controller({.tokens_max = 4, .adaptive = true});
  EXPECT_EQ(controller.report().state, State::kIdle);
  DraftHistory history;
  Candidate none{.history = &history, .tokens_max = 0};
  controller.choose({&none, 1}, 1, 64);
  EXPECT_EQ(controller.report().state, State::kIdle);
  World world{.step_ms = [](int rows) { return 10.0 * rows; }, .acceptance = 0.3};
  std::vector<DraftHistory> sequences(1);
  (void)play(controller, world, sequences, 100);
  EXPECT_EQ(name_of(controller.report().state), "losing");
  world = {.step_ms = [](int) { return 10.0; }, .acceptance = 1.0};
  (void)play(controller, world, sequences, 2000);
  EXPECT_EQ(name_of(controller.report().state), "on");
}

// What exhaustive search finds with what the controller is told: all ways to give up to three
// sequences guesses, on random curves of step times with valleys and hills. It chooses one of the
// best, or leaves what it chose last where that is less than 2 % worse.
TEST(DraftController, no_other_lengths_are_better) {
  int improved = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    uint64_t draws = 0;
    const auto random = [&] { return base::random_unit(seed, draws++); };
    const auto sequences = static_cast<size_t>(1 + static_cast<int>(3 * random()));
    const int most = std::min(4, 8 / static_cast<int>(sequences) - 1);
    DraftController controller({.tokens_max = most, .adaptive = true});
    // Of n rows each of which a step takes at most as long as of n steps; seen to the row.
    std::vector<double> step_ns(9, 1e7);
    for (size_t rows = 1; rows < 9; ++rows) {
      const double grown = random() < 0.5 ? random() : 0.2 * random();
      if (rows > 1) step_ns[rows] = std::floor(step_ns[rows - 1] * (1 + grown / double(rows - 1)));
      controller.note_step(static_cast<int>(rows), static_cast<int64_t>(step_ns[rows]), 0);
    }
    std::vector<DraftHistory> histories(sequences);
    std::vector<Candidate> candidates;
    for (DraftHistory& history : histories) {
      history.factor = 0.4 + random();
      candidates.push_back({.history = &history, .tokens_max = most});
    }
    const auto acceptance = controller.report().acceptance;
    const auto speed = [&](const std::vector<int>& lengths) {
      double tokens = 0;
      size_t rows = 0;
      for (size_t i = 0; i < sequences; ++i) {
        double survival = 1;
        tokens += survival;
        for (int k = 0; k < lengths[i]; ++k) {
          survival *= std::min(acceptance[size_t(k)] * histories[i].factor, 0.99);
          tokens += survival;
        }
        rows += 1 + static_cast<size_t>(lengths[i]);
      }
      return tokens / step_ns[rows];
    };
    double best = 0;
    std::vector<int> lengths(sequences, 0);
    const double none = speed(lengths);
    for (size_t at = 0; at < sequences;) {  // counting, a digit for each sequence
      best = std::max(best, speed(lengths));
      for (at = 0; at < sequences && ++lengths[at] > most; ++at) lengths[at] = 0;
    }
    controller.choose(candidates, static_cast<int>(sequences), 100);
    std::vector<int> chosen;
    for (const Candidate& candidate : candidates) chosen.push_back(candidate.tokens);
    const bool stays = best < 1.02 * none;  // nothing was guessed before
    EXPECT_NEAR(speed(chosen) / (stays ? none : best), 1, 1e-6) << "seed " << seed;
    improved += stays ? 0 : 1;
  }
  EXPECT_GT(improved, 500);
  EXPECT_LT(improved, 1990);
}

}  // namespace
}  // namespace pelton::engine
