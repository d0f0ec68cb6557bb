// Chooses the config of each product by measuring: each config that may be worth it a few times,
// all in turns, and another than the constants' only if it is faster by more than the measurements
// scatter. Host; pure, over a function that times one trial, so that tests bring a clock of their
// own.
#pragma once

#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "cuda/device_abi.h"

namespace pelton::cuda {

// The configs of one product that are tried for one bucket of rows, the constants' first.
struct TuningTask {
  ProductKind kind;
  int bucket;
  int rows;
  int launches;  // of a trial
  std::vector<KernelConfig> configs;
};

// In the order of their rows: what decodes comes first.
std::vector<TuningTask> tuning_tasks(const ModelShape& shape, const Limits& limits,
                                     const KernelDevice& device);

struct TuningBudget {
  double seconds = 1.5;  // no trial begins later
  int rounds = 5;        // that count; the first one does not
};

// What all tasks cost, with every block of columns reading the weights anew: to predict the
// time.
struct TuningCost {
  int64_t trials = 0;
  int64_t launches = 0;
  double bytes = 0;
  double flops = 0;
};
TuningCost tuning_cost(const ModelShape& shape, const std::vector<TuningTask>& tasks,
                       const TuningBudget& budget);

// Whether steps of few rows are persistent, of one bucket of rows.
struct StepTuningTask {
  int bucket;
  int rows;
};
std::vector<StepTuningTask> step_tuning_tasks(const Limits& limits);

struct ProductTimer {
  base::FunctionRef<Result<double>(const ProductTrial&)> seconds_of;
  base::FunctionRef<double()> now;  // seconds
};

struct TunedConfigs {
  KernelConfigs configs;
  int decided = 0;  // tasks
  int tasks = 0;    // fewer decided: there was no time for more, and the constants stand
  int changed = 0;  // of those decided, the ones that the constants lost
  int failed = 0;   // configs that could not be run
};

// A config that fails is out; where the constants' fails too, that is the device's failure: its
// error.
Result<TunedConfigs> tune_products(const ModelShape& shape, const Limits& limits,
                                   const KernelDevice& device, const TuningBudget& budget,
                                   const ProductTimer& timer);

struct StepTimer {
  base::FunctionRef<Result<double>(const StepTrial&)> seconds_of;
  base::FunctionRef<double()> now;  // seconds
};

struct TunedSteps {
  int32_t persistent[kPersistentBuckets] = {};
  int decided = 0;  // tasks
  int tasks = 0;
  int changed = 0;  // that are persistent
  int failed = 0;   // where persistent steps could not be run
};

// In the configs that the session has. Errors: as above, where launched steps fail.
Result<TunedSteps> tune_steps(const Limits& limits, const TuningBudget& budget,
                              const StepTimer& timer);

}  // namespace pelton::cuda
