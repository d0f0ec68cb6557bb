// pelton calibrate: fits the step-time model to steps that were measured here.
#include <optional>

#include <fmt/format.h>

#include "apps/input.h"
#include "apps/verbs.h"
#include "base/file.h"
#include "cost_model/calibration.h"
#include "cost_model/hardware.h"
#include "cost_model/parameters.h"
#include "cost_model/request_overhead.h"

namespace pelton::apps {
namespace {

using cost_model::Calibration;
using cost_model::MeasuredStep;

// A load test's requests on the clock of the step log. Of none that failed.
Result<std::vector<cost_model::MeasuredRequest>> read_requests(const std::string& file) {
  TRY_ASSIGN(const std::string text, read_input(file));
  TRY_ASSIGN(const Json result, Json::parse(text));
  const Json* const own = result.find("pelton");
  const std::optional<int64_t> begun_ns = own == nullptr ? std::nullopt : own->integer("begun_ns");
  const Json* const starts = result.find("start_times");
  const Json* const firsts = result.find("ttfts");
  if (!begun_ns || starts == nullptr || !starts->is_array() || firsts == nullptr ||
      !firsts->is_array() || starts->as_array().size() != firsts->as_array().size()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} does not say when each request began: it must be a result of "
                             "pelton bench serve --save-result --save-detailed, run on the "
                             "server's machine",
                             file),
                 "idle-result"};
  }
  std::vector<cost_model::MeasuredRequest> requests;
  for (size_t i = 0; i < starts->as_array().size(); ++i) {
    const Json& start = starts->as_array()[i];
    const Json& first = firsts->as_array()[i];
    if (!start.is_number() || !first.is_number() || !(first.as_number() > 0)) continue;
    const auto start_ns = *begun_ns + static_cast<int64_t>(start.as_number() * 1e9);
    requests.push_back(
        {.start_ns = start_ns,
         .first_token_ns = start_ns + static_cast<int64_t>(first.as_number() * 1e9)});
  }
  return requests;
}

// The share of a figure means something only where the figure is the machine's own.
std::string share_of(double share, bool is_named, const std::string& hardware) {
  return is_named ? fmt::format("{:.1f} % of the hardware's figure", share * 100)
                  : fmt::format("{:.2f} times the figure of {}, which stands in for this machine",
                                share, hardware);
}

std::string table_of(const Calibration& calibration, const cost_model::Hardware& hardware,
                     double rate, bool is_named) {
  const cost_model::Efficiency& e = calibration.efficiency;
  return fmt::format(
      "{} on {}, {} steps\n\n"
      "bandwidth    {:8.1f} GB/s, {}\n"
      "compute      {:8.1f} Gop/s in {}, {}\n"
      "attention    {:8.1f} Gop/s\n"
      "each step    {:8.1f} us\n"
      "each row     {:8.2f} us, and {:.2f} us where it ends with a token\n"
      "each token   {:8.3f} us\n"
      "overlap      {:8.2f}\n"
      "each request {:8.1f} us in, {:.1f} us out\n\n"
      "half of the steps are within {:.1f} %, nine of ten within {:.1f} %\n",
      calibration.model, is_named ? hardware.title : "this machine", calibration.steps,
      e.bandwidth * hardware.bytes_per_second * 1e-9,
      share_of(e.bandwidth, is_named, hardware.name), e.compute * rate * 1e-9,
      calibration.arithmetic, share_of(e.compute, is_named, hardware.name),
      e.attention * rate * 1e-9, e.step_s * 1e6, e.row_s * 1e6, e.sample_s * 1e6, e.token_s * 1e6,
      e.overlap, calibration.overhead.in_s * 1e6, calibration.overhead.out_s * 1e6,
      calibration.error_p50 * 100, calibration.error_p90 * 100);
}

Result<void> run_calibrate(const cli::Arguments& arguments) {
  TRY_ASSIGN(const families::ModelConfig shape,
             cost_model::find_model_config(arguments.text("MODEL")));
  TRY_ASSIGN(const cost_model::Hardware hardware,
             cost_model::find_hardware(arguments.text("--gpu")));
  TRY_ASSIGN(const cost_model::Arithmetic arithmetic,
             cost_model::parse_arithmetic(arguments.text("--compute")));
  const std::string& file = arguments.text("--step-log");
  TRY_ASSIGN(const std::string text, read_input(file));
  TRY_ASSIGN(const std::vector<MeasuredStep> steps,
             cost_model::parse_step_log(text, file, cost_model::windows_of(shape)));
  cost_model::StepTimeModel::Options start{
      .hardware = hardware, .shape = shape, .arithmetic = arithmetic};
  // A model as small as a cache is bound by it: what a step costs beside is guessed small.
  TRY_ASSIGN(Calibration calibration, cost_model::calibrate(start, steps));
  if (arguments.has("--idle-result")) {
    TRY_ASSIGN(std::vector<cost_model::MeasuredRequest> requests,
               read_requests(arguments.text("--idle-result")));
    TRY_ASSIGN(calibration.overhead, cost_model::request_overhead(steps, std::move(requests)));
  }
  if (arguments.has("--out")) {
    TRY(base::write_file(arguments.text("--out"), calibration.to_json().dump() + "\n"));
  }
  if (arguments.has("--json")) return write_output(calibration.to_json().dump() + "\n");
  TRY_ASSIGN(const double rate, hardware.rate(arithmetic));
  const bool is_named = arguments.origin("--gpu") != "default";
  return write_text(table_of(calibration, hardware, rate, is_named));
}

}  // namespace

cli::Verb calibrate_verb() {
  return {
      .name = "calibrate",
      .summary = "Fits the step-time model to steps measured on a machine.",
      .about =
          "Takes what `pelton serve --step-log FILE` wrote under a load of any kind. The "
          "result\n"
          "is what `pelton simulate --calibration` and `pelton plan --calibration` take.",
      .positionals = {{"MODEL", "whose steps they are: a folder or a config.json"}},
      .flags =
          {{.name = "--step-log", .value = "FILE", .help = "the measured steps", .required = true},
           {.name = "--gpu",
            .value = "NAME",
            .help = "the hardware that ran them, whose figures are reached in part; the default "
                    "stands in where nobody wrote the machine's own down (a .json as in "
                    "src/cost_model/data/hardware)",
            .default_text = "cpu-zen4-2"},
           {.name = "--compute",
            .value = "TYPE",
            .help = "what products are computed in",
            .default_text = "int8",
            .choices = {"f32", "bf16", "int8", "fp8", "fp4"}},
           {.name = "--idle-result",
            .value = "FILE",
            .help = "of pelton bench serve --save-detailed with one stream, on this machine "
                    "beside the server: what a request costs around its steps"},
           {.name = "--out", .value = "FILE", .help = "write the calibration there"},
           {.name = "--json",
            .help = "print the calibration instead of a table",
            .kind = cli::Flag::Kind::kSwitch}},
      .examples = {"pelton calibrate ./model --step-log steps.jsonl --out calibration.json",
                   "pelton calibrate ./model --step-log steps.jsonl --idle-result one.json"},
      .run = run_calibrate};
}

}  // namespace pelton::apps
