// pelton calibrate: fits the step-time model to steps that were measured here.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "apps/input.h"
#include "apps/verbs.h"
#include "base/file.h"
#include "cost_model/calibration.h"
#include "cost_model/hardware.h"
#include "cost_model/model_shape.h"

namespace pelton::apps {
namespace {

using cost_model::Calibration;
using cost_model::MeasuredStep;

// What a request costs around the engine: the median of a load test's first tokens, less the step
// that computed them. Of a result with one stream at a time, where nothing waits.
Result<void> add_overhead(const std::string& file, const std::vector<MeasuredStep>& steps,
                          Calibration& calibration) {
  TRY_ASSIGN(const std::string text, read_input(file));
  TRY_ASSIGN(const Json result, Json::parse(text));
  const std::optional<double> ttft_ms = result.number("median_ttft_ms");
  if (!ttft_ms) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("{} has no median_ttft_ms: it is no result of pelton bench serve", file),
        "idle-result"};
  }
  // Steps of a prompt that came alone.
  std::vector<double> firsts;
  for (const MeasuredStep& step : steps) {
    if (step.load.rows == 1 && step.load.sampled == 1 && step.load.tokens > 1) {
      firsts.push_back(step.seconds);
    }
  }
  if (firsts.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "the step log has no step of one prompt alone, which --idle-result needs",
                 "idle-result"};
  }
  std::nth_element(firsts.begin(), firsts.begin() + static_cast<long>(firsts.size() / 2),
                   firsts.end());
  const double around = *ttft_ms * 1e-3 - firsts[firsts.size() / 2];
  // The way in (parsing, words to tokens) is the longer one; nobody tells them apart from outside.
  constexpr double kShareIn = 0.7;
  calibration.overhead.in_s = std::max(around, 0.0) * kShareIn;
  calibration.overhead.out_s = std::max(around, 0.0) * (1 - kShareIn);
  return {};
}

std::string table_of(const Calibration& calibration) {
  const cost_model::Efficiency& e = calibration.efficiency;
  return fmt::format(
      "{} on {}, {} steps\n\n"
      "bandwidth    {:8.1f} % of the hardware's figure\n"
      "compute      {:8.1f} % ({})\n"
      "attention    {:8.2f} %\n"
      "each step    {:8.1f} us\n"
      "each row     {:8.2f} us, and {:.2f} us where it ends with a token\n"
      "each token   {:8.3f} us\n"
      "overlap      {:8.2f}\n"
      "each request {:8.1f} us in, {:.1f} us out\n\n"
      "half of the steps are within {:.1f} %, nine of ten within {:.1f} %\n",
      calibration.model, calibration.hardware, calibration.steps, e.bandwidth * 100,
      e.compute * 100, calibration.arithmetic, e.attention * 100, e.step_s * 1e6, e.row_s * 1e6,
      e.sample_s * 1e6, e.token_s * 1e6, e.overlap, calibration.overhead.in_s * 1e6,
      calibration.overhead.out_s * 1e6, calibration.error_p50 * 100, calibration.error_p90 * 100);
}

Result<void> run(const cli::Arguments& arguments) {
  TRY_ASSIGN(const cost_model::ModelShape shape,
             cost_model::find_model_shape(arguments.text("MODEL")));
  TRY_ASSIGN(const cost_model::Hardware hardware,
             cost_model::find_hardware(arguments.text("--gpu")));
  TRY_ASSIGN(const cost_model::Arithmetic arithmetic,
             cost_model::parse_arithmetic(arguments.text("--compute")));
  const std::string& file = arguments.text("--step-log");
  TRY_ASSIGN(const std::string text, read_input(file));
  TRY_ASSIGN(const std::vector<MeasuredStep> steps,
             cost_model::parse_step_log(text, file, shape.window));
  cost_model::StepTimeModel::Options start{
      .hardware = hardware, .shape = shape, .arithmetic = arithmetic};
  // A model as small as a cache is bound by it: what a step costs beside is guessed small.
  TRY_ASSIGN(Calibration calibration, cost_model::calibrate(start, steps));
  if (arguments.has("--idle-result")) {
    TRY(add_overhead(arguments.text("--idle-result"), steps, calibration));
  }
  if (arguments.has("--out")) {
    TRY(base::write_file(arguments.text("--out"), calibration.to_json().dump() + "\n"));
  }
  if (arguments.has("--json")) return write_output(calibration.to_json().dump() + "\n");
  return write_output(table_of(calibration));
}

}  // namespace

cli::Verb calibrate_verb() {
  return {.name = "calibrate",
          .summary = "Fits the step-time model to steps measured on a machine.",
          .about =
              "Takes what `pelton serve --step-log FILE` wrote under a load of any kind. The "
              "result\n"
              "is what `pelton simulate --calibration` and `pelton plan --calibration` take.",
          .positionals = {{"MODEL", "whose steps they are: a folder or a config.json"}},
          .flags = {{.name = "--step-log",
                     .value = "FILE",
                     .help = "the measured steps",
                     .required = true},
                    {.name = "--gpu",
                     .value = "NAME",
                     .help = "the hardware whose figures are reached in part",
                     .default_text = "cpu-zen4-2"},
                    {.name = "--compute",
                     .value = "TYPE",
                     .help = "what products are computed in",
                     .default_text = "int8",
                     .choices = {"f32", "bf16", "int8", "fp8", "fp4"}},
                    {.name = "--idle-result",
                     .value = "FILE",
                     .help = "of pelton bench serve with one stream: what a request costs around "
                             "its steps"},
                    {.name = "--out", .value = "FILE", .help = "write the calibration there"},
                    {.name = "--json",
                     .help = "print the calibration instead of a table",
                     .kind = cli::Flag::Kind::kSwitch}},
          .examples = {"pelton calibrate ./model --step-log steps.jsonl --out calibration.json",
                       "pelton calibrate ./model --step-log steps.jsonl --idle-result one.json"},
          .run = run};
}

}  // namespace pelton::apps
