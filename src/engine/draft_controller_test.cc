#include "engine/draft_controller.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

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
// Guessing takes so long for each guess of the longest draft.
int play(DraftController& controller, World& world, std::vector<DraftHistory>& sequences, int steps,
         int tokens_max = 8, double draft_ms = 0) {
  int guesses = 0;
  for (int step = 0; step < steps; ++step) {
    std::vector<Candidate> candidates;
    for (DraftHistory& history : sequences) {
      candidates.push_back({.history = &history, .tokens_max = tokens_max});
    }
    const auto rows = static_cast<int>(sequences.size());
    controller.choose(candidates, rows, 512);
    guesses = 0;
    int longest = 0;
    for (Candidate& candidate : candidates) {
      guesses += candidate.tokens;
      longest = std::max(longest, candidate.tokens);
      controller.note_draft(*candidate.history, {.granted = candidate.tokens,
                                                 .drafted = candidate.tokens,
                                                 .accepted = world.accepted_of(candidate.tokens)});
    }
    const double drafting_ms = draft_ms * longest;
    const double ms = world.step_ms(rows + guesses) + drafting_ms;
    controller.note_step({.rows = rows + guesses,
                          .longest_draft = longest,
                          .elapsed_ns = static_cast<int64_t>(ms * 1e6),
                          .draft_ns = static_cast<int64_t>(drafting_ms * 1e6)});
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

// Two who guess, one of them always wrong: who has its guesses gets none, others go on.
TEST(DraftController, who_guessed_last_decides_how_many_guesses_are_worth_it) {
  DraftController controller({.tokens_max = 8, .adaptive = true});
  std::vector<DraftHistory> histories(2);
  std::vector<Candidate> candidates;
  for (int step = 0; step < 400; ++step) {
    candidates = {{.history = &histories[0], .tokens_max = 8},
                  {.history = &histories[1], .tokens_max = 8}};
    controller.choose(candidates, 2, 64);
    for (size_t proposer : {0, 1}) {
      const int tokens = candidates[proposer].tokens;
      controller.note_draft(histories[proposer], {.granted = tokens,
                                                  .drafted = tokens,
                                                  .accepted = proposer == 0 ? tokens : 0,
                                                  .proposer = proposer});
    }
    const int rows = 2 + candidates[0].tokens + candidates[1].tokens;
    controller.note_step({.rows = rows,
                          .longest_draft = 8,
                          .elapsed_ns = static_cast<int64_t>(1e6 * expert_ms(rows)),
                          .draft_ns = 30'000,
                          .proposer_ns = {10'000, 20'000}});
  }
  EXPECT_GE(candidates[0].tokens, 4);
  const DraftController::Report report = controller.report();
  EXPECT_GT(report.proposers[0].acceptance[0].value(), 0.95);
  EXPECT_LT(report.proposers[1].acceptance[0].value(), 0.5);
  EXPECT_NEAR(report.proposers[0].draft_ns, 10'000, 1);
  EXPECT_NEAR(report.proposers[1].draft_ns, 20'000, 1);
  EXPECT_EQ(report.proposers[2].draft_ns, 0);
  EXPECT_FALSE(report.proposers[2].acceptance[0]) << "it was never asked";
  // Of sequences about which nothing else is known, too.
  DraftHistory good{.proposer = 0};
  DraftHistory bad{.proposer = 1};
  candidates = {{.history = &good, .tokens_max = 8}, {.history = &bad, .tokens_max = 8}};
  controller.choose(candidates, 2, 64);
  EXPECT_GE(candidates[0].tokens, 4);
  EXPECT_EQ(candidates[1].tokens, 0);
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
    controller.note_draft(history, {.granted = granted, .drafted = drafted, .accepted = drafted});
    controller.note_step({.rows = 1 + drafted,
                          .longest_draft = granted,
                          .elapsed_ns = static_cast<int64_t>(expert_ms(1 + drafted) * 1e6)});
  }
  EXPECT_GE(granted, 6);
}

// Probes find it out, also where much was wrong before, guessing costs a tenth of a step, and each
// sequence ends after 200 steps.
TEST(DraftController, text_that_becomes_easy_is_noticed) {
  DraftController controller({.tokens_max = 8, .adaptive = true});
  World world{.step_ms = expert_ms, .acceptance = 0.5};
  std::vector<DraftHistory> sequences(1);
  const auto steps_until = [&](const std::function<bool(int guesses)>& is_so) {
    for (int step = 0; step < 20'000; ++step) {
      if (step % 200 == 0) sequences[0] = {};
      if (is_so(play(controller, world, sequences, 1, 8, 1.0))) return step;
    }
    return 20'000;
  };
  (void)play(controller, world, sequences, 3000, 8, 1.0);
  world.acceptance = 0.0;
  EXPECT_LT(steps_until([](int guesses) { return guesses == 0; }), 64);
  (void)play(controller, world, sequences, 3000, 8, 1.0);
  world.acceptance = 1.0;
  const int noticed = steps_until([](int guesses) { return guesses >= 4; });
  EXPECT_LT(noticed, 400);
}

// Two steps are in flight: a sequence that is to have a probe misses the step before it and the one
// behind it. Sequences of 200 steps in a batch of 16, no guess is right.
TEST(DraftController, probes_cost_little_where_steps_are_in_flight) {
  DraftController controller({.tokens_max = 3, .adaptive = true});
  std::vector<DraftHistory> sequences(16);
  std::vector<int> out(16);  // steps that it misses from now on
  std::vector<bool> is_due(16);
  int64_t missed = 0;
  int64_t extra_rows = 0;
  constexpr int kSteps = 20'000;
  for (int step = 0; step < kSteps; ++step) {
    if (step % 200 == 0) std::ranges::fill(sequences, DraftHistory{});
    int waiting = 0;
    std::vector<Candidate> candidates;
    std::vector<size_t> in_step;
    for (size_t i = 0; i < sequences.size(); ++i) {
      if (out[i] > 0) {
        --out[i];
        ++waiting;
        continue;
      }
      if (!is_due[i] && controller.wants_probe(sequences[i], waiting)) {
        is_due[i] = true;
        ++waiting;
        continue;
      }
      // Of the others the last token is still being computed.
      candidates.push_back(
          {.history = &sequences[i], .tokens_max = is_due[i] ? 3 : 0, .waits = !is_due[i]});
      in_step.push_back(i);
    }
    missed += waiting;
    controller.note_waiting(waiting);
    controller.choose(candidates, static_cast<int>(candidates.size()), 512);
    int guesses = 0;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const size_t sequence = in_step[i];
      const int tokens = candidates[i].tokens;
      controller.note_draft(sequences[sequence], {.granted = tokens, .drafted = tokens});
      if (tokens > 0) out[sequence] = 1;
      is_due[sequence] = false;
      guesses += tokens;
    }
    extra_rows += guesses;
    const auto rows = static_cast<int>(candidates.size()) + guesses;
    if (rows == 0) continue;
    controller.note_step({.rows = rows,
                          .longest_draft = guesses > 0 ? 1 : 0,
                          .elapsed_ns = static_cast<int64_t>(1e6 * expert_ms(rows))});
  }
  EXPECT_GT(extra_rows, 0) << "now and then one, to see";
  EXPECT_LT(static_cast<double>(missed) / (16 * kSteps), 0.007);
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

// Step times by rows as gpt-oss-20b's shape has them on two cores, to that of one row; straight
// lines between, the last one beyond.
double measured_ms(double rows) {
  constexpr std::array<std::pair<double, double>, 9> kTimes = {{{1, 1.0},
                                                                {2, 1.5},
                                                                {3, 1.94},
                                                                {4, 2.33},
                                                                {6, 2.96},
                                                                {8, 3.6},
                                                                {16, 5.2},
                                                                {32, 7.7},
                                                                {64, 12.7}}};
  size_t at = 1;
  while (at + 1 < kTimes.size() && kTimes[at].first < rows) ++at;
  const auto& [low, low_ms] = kTimes[at - 1];
  const auto& [high, high_ms] = kTimes[at];
  return 100 * (low_ms + (high_ms - low_ms) / (high - low) * (rows - low));
}

// Tokens of a row with so many guesses, in the mean.
double tokens_of(int guesses, double acceptance) {
  double tokens = 1;
  for (int i = 1; i <= guesses; ++i) tokens += std::pow(acceptance, i);
  return tokens;
}

// What guessing takes: a search finds all guesses at once, a draft model runs once for each.
struct DraftMs {
  double once = 0;
  double each = 0;
  double of(int longest) const { return longest == 0 ? 0 : once + each * longest; }
};

// A proposer that is asked for nothing still takes this.
constexpr int64_t kAskingNs = 100;

// Tokens a second in virtual time: of the controller, once it has seen 800 steps.
double adaptive_speed(size_t batch, double acceptance, const DraftMs& draft_ms) {
  DraftController controller({.tokens_max = 8, .adaptive = true});
  World world{.step_ms = measured_ms, .acceptance = acceptance};
  std::vector<DraftHistory> sequences(batch);
  double tokens = 0;
  double ms = 0;
  for (int step = 0; step < 2000; ++step) {
    std::vector<Candidate> candidates;
    for (DraftHistory& history : sequences) {
      candidates.push_back({.history = &history, .tokens_max = 8});
    }
    controller.choose(candidates, static_cast<int>(batch), 512);
    auto rows = static_cast<int>(batch);
    double emitted = 0;
    for (Candidate& candidate : candidates) {
      controller.note_draft(*candidate.history, {.granted = candidate.tokens,
                                                 .drafted = candidate.tokens,
                                                 .accepted = world.accepted_of(candidate.tokens)});
      rows += candidate.tokens;
      emitted += tokens_of(candidate.tokens, acceptance);
    }
    int longest = 0;
    for (const Candidate& candidate : candidates) longest = std::max(longest, candidate.tokens);
    const double drafting_ms = draft_ms.of(longest);
    const double step_ms = world.step_ms(rows) + drafting_ms;
    controller.note_step({.rows = rows,
                          .longest_draft = longest,
                          .elapsed_ns = static_cast<int64_t>(step_ms * 1e6),
                          .draft_ns = static_cast<int64_t>(drafting_ms * 1e6) + kAskingNs});
    if (step < 800) continue;
    tokens += emitted;
    ms += step_ms;
  }
  return tokens / ms;
}

// The same of `guesses` behind each row.
double fixed_speed(size_t batch, double acceptance, const DraftMs& draft_ms, int guesses) {
  const auto rows = static_cast<double>(batch);
  return tokens_of(guesses, acceptance) * rows /
         (measured_ms(rows * (1 + guesses)) + draft_ms.of(guesses));
}

// Batches by acceptances: as good as whatever fixed length is best there, and nowhere worse than
// none. Where guessing itself takes a large part of a step, finding the best length costs more.
TEST(DraftController, no_fixed_length_is_better_anywhere) {
  struct Case {
    DraftMs draft_ms;
    double of_the_best;
  };
  for (const auto& [draft_ms, of_the_best] :
       {Case{{0, 0}, 0.97}, Case{{20, 0}, 0.96}, Case{{50, 0}, 0.93}, Case{{0, 10}, 0.95},
        Case{{0, 37}, 0.93}}) {
    for (const size_t batch : {1, 2, 4, 8, 16, 32, 64}) {
      for (const double acceptance : {0.0, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95}) {
        const std::string where =
            std::to_string(batch) + " sequences, " + std::to_string(acceptance) + ", guessing " +
            std::to_string(draft_ms.once) + " + " + std::to_string(draft_ms.each);
        double best = 0;
        for (int guesses = 0; guesses <= 8; ++guesses) {
          best = std::max(best, fixed_speed(batch, acceptance, draft_ms, guesses));
        }
        const double speed = adaptive_speed(batch, acceptance, draft_ms);
        EXPECT_GT(speed / best, of_the_best) << where;
        EXPECT_GT(speed / fixed_speed(batch, acceptance, draft_ms, 0), 0.985) << where;
      }
    }
  }
}

// A tiny model whose steps are planned while others are computed, unless they have guesses. A
// proposer that hardly ever has one gains less than that costs; one that is mostly right gains
// more.
TEST(DraftController, steps_that_do_not_overlap_cost_more) {
  const auto speed = [](int drafted_every) {
    DraftController controller({.tokens_max = 4, .adaptive = true});
    DraftHistory history;
    double tokens = 0;
    double us = 0;
    for (int step = 0; step < 20'000; ++step) {
      Candidate candidate{.history = &history, .tokens_max = 4};
      controller.choose({&candidate, 1}, 1, 64);
      const bool has_guesses = candidate.tokens > 0;
      const int drafted = step % drafted_every == 0 ? candidate.tokens : 0;
      controller.note_draft(history,
                            {.granted = candidate.tokens, .drafted = drafted, .accepted = drafted});
      const int step_us = 100 + 20 * drafted;
      const int beside_us = has_guesses ? 30 : 2;
      controller.note_step(
          {.rows = 1 + drafted, .longest_draft = candidate.tokens, .elapsed_ns = step_us * 1000});
      controller.note_beside(has_guesses, beside_us * 1000);
      if (step < 1000) continue;
      tokens += 1 + drafted;
      us += step_us + beside_us;
    }
    return tokens / us;
  };
  const double none = 1.0 / 102;
  EXPECT_GT(speed(100) / none, 0.99);
  EXPECT_GT(speed(1) / none, 2.0);
}

// Something else held the first step with guesses up: those that pay are not given up for that.
TEST(DraftController, a_slow_first_step_is_not_what_guessing_costs) {
  DraftController controller({.tokens_max = 4, .adaptive = true});
  DraftHistory history;
  int steps_with_guesses = 0;
  for (int step = 0; step < 200; ++step) {
    Candidate candidate{.history = &history, .tokens_max = 4};
    controller.choose({&candidate, 1}, 1, 64);
    const bool has_guesses = candidate.tokens > 0;
    controller.note_draft(
        history,
        {.granted = candidate.tokens, .drafted = candidate.tokens, .accepted = candidate.tokens});
    const bool is_first = has_guesses && steps_with_guesses == 0;
    steps_with_guesses += has_guesses ? 1 : 0;
    const int64_t us = 100 + 20 * candidate.tokens;
    controller.note_step({.rows = 1 + candidate.tokens,
                          .longest_draft = candidate.tokens,
                          .elapsed_ns = (is_first ? 100 * us : us) * 1000});
    controller.note_beside(has_guesses, is_first ? 20'000'000 : has_guesses ? 30'000 : 2'000);
    if (step % 10 != 9) continue;  // the end of an answer
    controller.note_step({.rows = 1, .elapsed_ns = 100'000});
    controller.note_beside(false, 2'000);
  }
  EXPECT_GT(steps_with_guesses, 190);
}

TEST(DraftController, says_why_there_are_guesses_or_none) {
  using State = DraftController::State;
  DraftController controller({.tokens_max = 4, .adaptive = true});
  EXPECT_EQ(controller.report().state, State::kIdle);
  DraftHistory history;
  Candidate none{.history = &history, .tokens_max = 0};
  controller.choose({&none, 1}, 1, 64);
  EXPECT_EQ(controller.report().state, State::kIdle);
  Candidate waiting{.history = &history, .waits = true};
  World world{.step_ms = [](int rows) { return 10.0 * rows; }, .acceptance = 0.3};
  std::vector<DraftHistory> sequences(1);
  (void)play(controller, world, sequences, 100);
  EXPECT_EQ(name_of(controller.report().state), "losing");
  controller.choose({&waiting, 1}, 1, 64);
  EXPECT_EQ(name_of(controller.report().state), "losing") << "two steps are in flight";
  world = {.step_ms = [](int) { return 10.0; }, .acceptance = 1.0};
  (void)play(controller, world, sequences, 2000);
  EXPECT_EQ(name_of(controller.report().state), "on");
}

// What exhaustive search finds with what the controller is emitted: all ways to give up to three
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
      for (int times = 0; times < 2; ++times) {
        controller.note_step(
            {.rows = static_cast<int>(rows), .elapsed_ns = static_cast<int64_t>(step_ns[rows])});
      }
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
          survival *=
              std::min(acceptance[size_t(k)].value_or(0.7) * histories[i].sure_factor(), 0.99);
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
