// Fits the step-time model to measured steps: which shares of the hardware's figures are reached,
// and what a step, a row, a token cost beside. The fit is robust (a step that the operating system
// interrupted counts little); what it leaves over is kept as a distribution, so that a simulation
// can draw from it. Pure and deterministic.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cost_model/step_time.h"

namespace pelton::cost_model {

struct MeasuredStep {
  StepLoad load;
  double seconds = 0;  // from the end of the step before, or from its submission after a pause
  int64_t submitted_ns = 0;  // on the server's clock
  int64_t ended_ns = 0;
  bool after_pause = false;
};

// Lines as `pelton serve --step-log` writes them (docs/formats/step_log.md). Foreign bytes: a bad
// line is an Error that names it. `windows`: the model's.
Result<std::vector<MeasuredStep>> parse_step_log(std::string_view text, const std::string& name,
                                                 const Windows& windows);

// What requests cost around the engine, in seconds: on the way in and on the way out
// (request_overhead.h).
struct RequestOverhead {
  double in_s = 0;
  double in_token_s = 0;  // for each prompt token
  double out_s = 0;
  // What single ones are of these, in slices.
  std::vector<double> in_residuals;
  std::vector<double> out_residuals;
};

struct Calibration {
  std::string model;     // what was measured
  std::string hardware;  // the name its figures go by
  std::string arithmetic = "bf16";
  int64_t steps = 0;
  Efficiency efficiency;
  Correction by_rows;
  Correction by_tokens;
  RequestOverhead overhead;
  // Measured time over the model's, in slices (slices.h).
  std::vector<double> residuals;         // of steps in which everybody brings one token
  std::vector<double> prompt_residuals;  // of the others
  double error_p50 = 0;                  // of |measured / modelled - 1|
  double error_p90 = 0;

  Json to_json() const;
  static Result<Calibration> from_json(const Json& json, const std::string& origin);
};

// At least 16 steps. `start`: where to begin, and what stays where the steps say nothing.
// kInvalidArgument.
Result<Calibration> calibrate(const StepTimeModel::Options& start,
                              const std::vector<MeasuredStep>& steps);

}  // namespace pelton::cost_model
