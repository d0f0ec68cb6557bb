// Chooses the form of each product by measuring: each form that may be worth it a few times, all in
// turns, and another than the constants' only if it is faster by more than the measurements
// scatter. Host; pure, over a function that times one trial, so that tests bring a clock of their
// own.
#pragma once

#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "cuda/device_abi.h"

namespace pelton::cuda {

// The forms of one product that are tried for one bucket of rows, the constants' first.
struct FormContest {
  ProductKind kind;
  int bucket;
  int rows;
  int launches;  // of a trial
  std::vector<ProductForm> forms;
};

// In the order of their rows: what decodes comes first.
std::vector<FormContest> form_contests(const ModelShape& shape, const Limits& limits,
                                       const FormDevice& device);

struct FormBudget {
  double seconds = 1.5;  // no trial begins later
  int rounds = 5;        // that count; the first one does not
};

// What all contests cost, with every block of columns reading the weights anew: to foresee the
// time.
struct FormCost {
  int64_t trials = 0;
  int64_t launches = 0;
  double bytes = 0;
  double flops = 0;
};
FormCost form_cost(const ModelShape& shape, const std::vector<FormContest>& contests,
                   const FormBudget& budget);

// Whether steps of few rows are persistent, of one bucket of rows.
struct StepContest {
  int bucket;
  int rows;
};
std::vector<StepContest> step_contests(const Limits& limits);

struct FormTimer {
  base::FunctionRef<Result<double>(const ProductTrial&)> seconds_of;
  base::FunctionRef<double()> now;  // seconds
};

struct MeasuredForms {
  ProductForms forms;
  int decided = 0;   // contests
  int contests = 0;  // fewer decided: there was no time for more, and the constants stand
  int changed = 0;   // of those decided, the ones that the constants lost
  int failed = 0;    // forms that could not be run
};

// A form that fails is out; where the constants' fails too, that is the device's failure: its
// error.
Result<MeasuredForms> measure_forms(const ModelShape& shape, const Limits& limits,
                                    const FormDevice& device, const FormBudget& budget,
                                    const FormTimer& timer);

struct StepTimer {
  base::FunctionRef<Result<double>(const StepTrial&)> seconds_of;
  base::FunctionRef<double()> now;  // seconds
};

struct MeasuredSteps {
  int32_t persistent[kPersistentBuckets] = {};
  int decided = 0;  // contests
  int contests = 0;
  int changed = 0;  // that are persistent
  int failed = 0;   // where persistent steps could not be run
};

// In the forms that the session has. Errors: as above, where launched steps fail.
Result<MeasuredSteps> measure_steps(const Limits& limits, const FormBudget& budget,
                                    const StepTimer& timer);

}  // namespace pelton::cuda
