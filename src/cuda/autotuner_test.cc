// The choice among configs under a clock of the test's own: noise, ties, configs that fail, a
// device that fails, and a budget that ends.
#include "cuda/autotuner.h"

#include <functional>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "cuda/gpt_oss_shape.h"

namespace pelton::cuda {
namespace {

constexpr KernelDevice kDevice = {227 << 10, true};

const ModelShape kShape = gpt_oss_shape();
constexpr Limits kLimits = {.rows_max = 512, .sequences_max = 64, .logit_rows_max = 64};

// A device that takes 1 s for every trial, but for what `seconds` says otherwise.
class ScriptedDevice {
 public:
  std::function<Result<double>(const ProductTrial&, int count)> seconds =
      [](const ProductTrial&, int) { return Result<double>(1.0); };
  double step = 0;  // that its clock goes forward with each trial

  Result<TunedConfigs> measure(const TuningBudget& budget = {}) {
    const auto run = [&](const ProductTrial& trial) -> Result<double> {
      trials.push_back(trial);
      now_ += step;
      return seconds(trial, static_cast<int>(trials.size()) - 1);
    };
    const auto now = [&] { return now_; };
    return tune_products(kShape, kLimits, kDevice, budget, {.seconds_of = run, .now = now});
  }

  std::vector<ProductTrial> trials;

 private:
  double now_ = 100;
};

const KernelConfigs kConstants = default_configs(kShape, kDevice);

TEST(AutotunerTest, EqualTimesChangeNothing) {
  ScriptedDevice device;
  const auto chosen = device.measure();
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->configs, kConstants);
  EXPECT_EQ(chosen->decided, chosen->tasks);
  EXPECT_EQ(chosen->changed, 0);
  EXPECT_EQ(chosen->failed, 0);
}

TEST(AutotunerTest, NoiseChangesNothing) {
  const uint32_t seed = std::random_device{}();
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> noise(0.99, 1.01);
  ScriptedDevice device;
  device.seconds = [&](const ProductTrial&, int) { return Result<double>(noise(random)); };
  const auto chosen = device.measure();
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->configs, kConstants) << "seed " << seed;

  // Faster on average, but by less than the times scatter.
  ScriptedDevice wide;
  wide.seconds = [](const ProductTrial& trial, int count) {
    const double swing[] = {0.7, 1.3, 1.0, 0.75, 1.25, 1.0, 0.72};
    return Result<double>(swing[count % 7] * (trial.config == KernelConfig{8, 2} ? 0.9 : 1.0));
  };
  const auto still = wide.measure();
  ASSERT_TRUE(still.ok());
  EXPECT_EQ(still->configs.at(ProductKind::kQkv, 1), kConstants.at(ProductKind::kQkv, 1));
}

TEST(AutotunerTest, TheFasterConfigWinsWhereItIsFaster) {
  ScriptedDevice device;
  device.seconds = [](const ProductTrial& trial, int) {
    const bool is_o_of_one = trial.kind == ProductKind::kO && trial.rows == 1;
    return Result<double>(is_o_of_one && trial.config == KernelConfig{8, 2} ? 0.9 : 1.0);
  };
  const auto chosen = device.measure();
  ASSERT_TRUE(chosen.ok());
  KernelConfigs expected = kConstants;
  expected.config[static_cast<int>(ProductKind::kO)][0] = {8, 2};
  EXPECT_EQ(chosen->configs, expected);
  EXPECT_EQ(chosen->changed, 1);
}

TEST(AutotunerTest, OfTwoFasterOnesTheFastest) {
  ScriptedDevice device;
  device.seconds = [](const ProductTrial& trial, int) {
    if (trial.config == KernelConfig{16, 1}) return Result<double>(0.8);
    if (trial.config == KernelConfig{16, 2}) return Result<double>(0.7);
    if (trial.config == KernelConfig{8, 2}) return Result<double>(0.75);
    return Result<double>(1.0);
  };
  const auto chosen = device.measure();
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->configs.at(ProductKind::kQkv, 16), (KernelConfig{16, 2}));
}

// One outlier, and the first round, do not count.
TEST(AutotunerTest, OutliersAndTheFirstRoundDoNotCount) {
  std::map<std::pair<int, std::string>, int> seen;
  ScriptedDevice device;
  device.seconds = [&](const ProductTrial& trial, int) {
    const int round =
        seen[{static_cast<int>(trial.kind) * 10000 + trial.rows, config_name(trial.config)}]++;
    if (round == 0) return Result<double>(50.0);
    const double base = trial.config == KernelConfig{8, 2} ? 0.5 : 1.0;
    return Result<double>(round == 3 ? 40.0 : base);
  };
  const auto chosen = device.measure();
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->configs.at(ProductKind::kQkv, 1), (KernelConfig{8, 2}));
}

// Gate and up would like tiles of 32, down loses more by them than they gain.
TEST(AutotunerTest, ExpertsAgreeOnTheWidthOfTheirTiles) {
  const auto run = [](double down_in_32) {
    ScriptedDevice device;
    device.seconds = [=](const ProductTrial& trial, int) {
      if (trial.config.columns != 32) return Result<double>(1.0);
      return Result<double>(trial.kind == ProductKind::kGateUp ? 0.7 : down_in_32);
    };
    const auto chosen = device.measure();
    CHECK(chosen.ok());
    EXPECT_TRUE(are_usable(kShape, chosen->configs, kDevice));
    return chosen->configs.at(ProductKind::kDown, 256).columns;
  };
  EXPECT_EQ(kConstants.at(ProductKind::kDown, 256).columns, 64);
  EXPECT_EQ(run(1.5), 64);
  EXPECT_EQ(run(1.1), 32);

  // Within one width each has the row tiles that it likes.
  ScriptedDevice device;
  device.seconds = [](const ProductTrial& trial, int) {
    const int32_t liked = trial.kind == ProductKind::kGateUp ? 4 : 1;
    return Result<double>(trial.config.row_tiles == liked ? 0.8 : 1.0);
  };
  const auto chosen = device.measure();
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->configs.at(ProductKind::kGateUp, 1), (KernelConfig{8, 4}));
  EXPECT_EQ(chosen->configs.at(ProductKind::kDown, 1), (KernelConfig{8, 1}));
}

TEST(AutotunerTest, AConfigThatFailsIsOut) {
  ScriptedDevice device;
  device.seconds = [](const ProductTrial& trial, int) -> Result<double> {
    if (trial.config == KernelConfig{8, 2} && trial.kind == ProductKind::kQkv) {
      return Error{ErrorCode::kUnsupported, "too many resources requested for launch"};
    }
    return trial.config == KernelConfig{8, 2} ? 0.5 : 1.0;
  };
  const auto chosen = device.measure();
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->configs.at(ProductKind::kQkv, 1), (KernelConfig{8, 1}));
  EXPECT_EQ(chosen->configs.at(ProductKind::kO, 1), (KernelConfig{8, 2}));
  EXPECT_GT(chosen->failed, 0);
  EXPECT_EQ(chosen->decided, chosen->tasks);
  int tried = 0;  // once in each task, and not again
  for (const ProductTrial& trial : device.trials) {
    tried += trial.kind == ProductKind::kQkv && trial.config == KernelConfig{8, 2} ? 1 : 0;
  }
  EXPECT_EQ(tried, chosen->failed);
}

TEST(AutotunerTest, ADeviceThatFailsIsAnError) {
  for (const int at : {0, 1, 7, 100}) {
    ScriptedDevice device;
    device.seconds = [&](const ProductTrial&, int count) -> Result<double> {
      if (count < at) return 1.0;
      return Error{ErrorCode::kUnsupported, "an illegal memory access was encountered"};
    };
    const auto chosen = device.measure();
    ASSERT_FALSE(chosen.ok()) << at;
    EXPECT_NE(chosen.error().message.find("illegal"), std::string::npos);
    EXPECT_LE(device.trials.size(), static_cast<size_t>(at) + 2);
  }
}

TEST(AutotunerTest, AClockThatStandsStillDecidesNothing) {
  for (const double shown : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    ScriptedDevice device;
    device.seconds = [=](const ProductTrial&, int) { return Result<double>(shown); };
    const auto chosen = device.measure();
    ASSERT_TRUE(chosen.ok());
    EXPECT_EQ(chosen->configs, kConstants);
    EXPECT_EQ(chosen->decided, 0);
  }
}

TEST(AutotunerTest, TheBudgetEndsItAndDecodingComesFirst) {
  ScriptedDevice device;
  device.step = 0.01;
  device.seconds = [](const ProductTrial& trial, int) {
    return Result<double>(trial.config == KernelConfig{8, 2} ? 0.5 : 1.0);
  };
  const auto chosen = device.measure({.seconds = 0.5});
  ASSERT_TRUE(chosen.ok());
  EXPECT_LE(device.trials.size(), 51u);
  EXPECT_GT(chosen->decided, 0);
  EXPECT_LT(chosen->decided, chosen->tasks);
  EXPECT_EQ(chosen->configs.at(ProductKind::kQkv, 1), (KernelConfig{8, 2}));
  for (const ProductTrial& trial : device.trials) EXPECT_LE(trial.rows, 8);
  // What was not decided is what constants say.
  EXPECT_EQ(chosen->configs.at(ProductKind::kHead, 64), kConstants.at(ProductKind::kHead, 64));
  EXPECT_TRUE(are_usable(kShape, chosen->configs, kDevice));

  ScriptedDevice none;
  EXPECT_EQ(none.measure({.seconds = 0})->decided, 0);
  EXPECT_TRUE(none.trials.empty());
}

// Whatever a clock shows, what comes out can be computed in.
TEST(AutotunerTest, AnyTimesGiveAUsableTable) {
  const uint32_t seed = std::random_device{}();
  std::mt19937 random(seed);
  for (int run = 0; run < 200; ++run) {
    ScriptedDevice device;
    device.seconds = [&](const ProductTrial&, int) -> Result<double> {
      return std::exp(std::uniform_real_distribution<double>(-1, 1)(random));
    };
    const auto chosen = device.measure({.rounds = 1});
    ASSERT_TRUE(chosen.ok());
    EXPECT_TRUE(are_usable(kShape, chosen->configs, kDevice)) << "seed " << seed;
  }
}

TEST(AutotunerTest, TasksStayWithinLimitsAndAreWorthIt) {
  for (const Limits& limits : {kLimits, Limits{.rows_max = 1, .logit_rows_max = 1},
                               Limits{.rows_max = 8192, .logit_rows_max = 3}}) {
    std::set<std::pair<ProductKind, int>> seen;
    for (const TuningTask& task : tuning_tasks(kShape, limits, kDevice)) {
      EXPECT_TRUE(seen.insert({task.kind, task.bucket}).second);
      EXPECT_LE(task.rows,
                task.kind == ProductKind::kHead ? limits.logit_rows_max : limits.rows_max);
      EXPECT_GE(task.launches, 1);
      EXPECT_EQ(task.configs[0], kConstants.config[static_cast<int>(task.kind)][task.bucket]);
      for (const KernelConfig& config : task.configs) {
        EXPECT_TRUE(is_usable(kShape, task.kind, config, kDevice));
      }
    }
    // Every step within the limits finds a bucket that was in a task.
    EXPECT_TRUE(seen.contains({ProductKind::kQkv, row_bucket(limits.rows_max)}));
    EXPECT_TRUE(seen.contains({ProductKind::kHead, row_bucket(limits.logit_rows_max)}));
  }
}

// Steps that take 1 s, persistent or not, but for what `seconds` says.
Result<TunedSteps> measure_scripted_steps(
    const std::function<Result<double>(const StepTrial&)>& seconds, const TuningBudget& budget = {},
    double step = 0, const Limits& limits = kLimits) {
  double clock = 100;
  const auto run = [&](const StepTrial& trial) {
    clock += step;
    return seconds(trial);
  };
  const auto now = [&] { return clock; };
  return tune_steps(limits, budget, {.seconds_of = run, .now = now});
}

TEST(StepChoiceTest, StepsArePersistentWhereTheyAreFasterByMoreThanNoise) {
  const auto equal = measure_scripted_steps([](const StepTrial&) { return Result<double>(1.0); });
  ASSERT_TRUE(equal.ok());
  EXPECT_EQ(equal->decided, 2);
  EXPECT_EQ(equal->changed, 0);

  const auto one = measure_scripted_steps([](const StepTrial& trial) {
    return Result<double>(trial.is_persistent == 0 ? 1.0 : trial.rows == 1 ? 0.9 : 0.99);
  });
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->persistent[0], 1);
  EXPECT_EQ(one->persistent[1], 0);  // 1 % is not enough
  EXPECT_EQ(one->changed, 1);
}

TEST(StepChoiceTest, WhatFailsIsOutAndLaunchedStepsMustRun) {
  const auto chosen = measure_scripted_steps([](const StepTrial& trial) -> Result<double> {
    if (trial.is_persistent != 0) return Error{ErrorCode::kUnsupported, "cooperative launch"};
    return 1.0;
  });
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->failed, 2);
  EXPECT_EQ(chosen->changed, 0);
  EXPECT_EQ(chosen->decided, 2);
  const auto failed = measure_scripted_steps([](const StepTrial&) -> Result<double> {
    return Error{ErrorCode::kUnsupported, "an illegal memory access was encountered"};
  });
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.error().message.find("illegal"), std::string::npos);
}

TEST(StepChoiceTest, TheBudgetEndsItAndLimitsAreKept) {
  const auto one_second = [](const StepTrial& trial) {
    EXPECT_LE(trial.rows, kPersistentRowsMax);
    return Result<double>(trial.is_persistent == 0 ? 1.0 : 0.5);
  };
  const auto out_of_time = measure_scripted_steps(one_second, {.seconds = 0.13}, 0.01);
  ASSERT_TRUE(out_of_time.ok());
  EXPECT_EQ(out_of_time->decided, 1);
  EXPECT_EQ(out_of_time->tasks, 2);
  EXPECT_EQ(out_of_time->persistent[1], 0);
  for (const int sequences : {1, 3, 8, 20}) {
    const Limits limits{.rows_max = 64, .sequences_max = sequences, .logit_rows_max = 64};
    const std::vector<StepTuningTask> tasks = step_tuning_tasks(limits);
    ASSERT_EQ(tasks.size(), sequences == 1 ? 1u : 2u);
    EXPECT_EQ(tasks.back().rows, std::min(sequences, kPersistentRowsMax));
  }
}

// Estimated, not measured: with 1.5 TB/s, 100 TFLOP/s, 6 us for a launch and 60 us for a trial,
// all of which an H100 should beat, all tasks end within the budget.
TEST(AutotunerTest, TheBudgetIsForeseenToBeEnough) {
  for (const auto& [layers, experts] : {std::pair{24, 32}, std::pair{36, 128}}) {
    const ModelShape shape = gpt_oss_shape(layers, experts);
    for (const int rows_max : {512, 2048}) {
      const Limits limits{.rows_max = rows_max, .logit_rows_max = 256};
      const TuningBudget budget;
      const TuningCost cost = tuning_cost(shape, tuning_tasks(shape, limits, kDevice), budget);
      const double seconds = cost.bytes / 1.5e12 + cost.flops / 100e12 +
                             6e-6 * static_cast<double>(cost.launches) +
                             60e-6 * static_cast<double>(cost.trials);
      std::printf("%d experts, %d rows: %lld trials, %lld launches, %.0f GB, %.0f TFLOP: %.2f s\n",
                  experts, rows_max, static_cast<long long>(cost.trials),
                  static_cast<long long>(cost.launches), cost.bytes * 1e-9, cost.flops * 1e-12,
                  seconds);
      EXPECT_LT(seconds, budget.seconds);
    }
  }
}

}  // namespace
}  // namespace pelton::cuda
