#include "cost_model/calibration.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "cost_model/least_squares.h"
#include "cost_model/request_overhead.h"
#include "cost_model/slices.h"

namespace pelton::cost_model {
namespace {

constexpr size_t kLinesMax = 2'000'000;
constexpr size_t kStepsFitted = 3000;  // more say nothing new and take longer
constexpr int64_t kPositionMax = int64_t{1} << 30;

// What is fitted, in logarithms.
struct Parameter {
  double Efficiency::*member;
  double start_if_zero;
};
constexpr Parameter kParameters[] = {{&Efficiency::bandwidth, 0.5}, {&Efficiency::compute, 0.3},
                                     {&Efficiency::attention, 0.1}, {&Efficiency::step_s, 1e-4},
                                     {&Efficiency::token_s, 1e-7},  {&Efficiency::row_s, 1e-6},
                                     {&Efficiency::sample_s, 1e-6}};
constexpr size_t kParameterCount = std::size(kParameters);
// How strongly a parameter is held where it began: one step that is 1 % off outweighs a factor e.
constexpr double kHold = 0.01;

Efficiency at_point(const Efficiency& start, const std::vector<double>& point) {
  Efficiency efficiency = start;
  for (size_t i = 0; i < kParameterCount; ++i) {
    efficiency.*kParameters[i].member = std::exp(std::clamp(point[i], -40.0, 13.0));
  }
  efficiency.overlap = 1 + std::exp(std::clamp(point[kParameterCount], -6.0, 4.0));
  return efficiency;
}

std::vector<double> first_point(const Efficiency& start) {
  std::vector<double> point;
  for (const Parameter& parameter : kParameters) {
    const double value = start.*parameter.member;
    point.push_back(std::log(value > 0 ? value : parameter.start_if_zero));
  }
  point.push_back(std::log(std::max(start.overlap - 1, 0.5)));
  return point;
}

std::vector<MeasuredStep> chosen(const std::vector<MeasuredStep>& steps) {
  if (steps.size() <= kStepsFitted) return steps;
  std::vector<MeasuredStep> few;
  const double stride = static_cast<double>(steps.size()) / kStepsFitted;
  for (size_t i = 0; i < kStepsFitted; ++i) {
    few.push_back(steps[static_cast<size_t>(static_cast<double>(i) * stride)]);
  }
  return few;
}

// Interpolated; `sorted` is not empty.
double quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - static_cast<double>(low));
}

Result<StepTimeModel> with_efficiency(StepTimeModel::Options options,
                                      const Efficiency& efficiency) {
  options.efficiency = efficiency;
  return StepTimeModel::make(std::move(options));
}

struct SizedRatio {
  double size;   // rows or tokens
  double ratio;  // measured over modelled
};

Correction::Point middle_of(std::vector<SizedRatio> group) {
  std::sort(group.begin(), group.end(), [](auto& a, auto& b) { return a.size < b.size; });
  const double at = group[group.size() / 2].size;
  std::vector<double> ratios;
  for (const SizedRatio& one : group) ratios.push_back(one.ratio);
  std::sort(ratios.begin(), ratios.end());
  return {.at = at, .factor = quantile(ratios, 0.5)};
}

// Medians of measured over modelled, of steps alike in number: rows where everybody brings one
// token, tokens otherwise. Sizes an eighth of an octave apart are alike; where there are too few of
// one, the next larger join, so that the few steps with long prompts count, which take long.
Correction correct(const StepTimeModel& model, const std::vector<MeasuredStep>& steps, bool alone) {
  // Steps with prompts are rare and long: there are few of them, and their noise is small.
  const size_t steps_least = alone ? 20 : 4;
  std::map<int, std::vector<SizedRatio>> by_size;
  for (const MeasuredStep& step : steps) {
    if ((step.load.tokens_alone == step.load.rows) != alone) continue;
    const auto size = static_cast<double>(alone ? step.load.rows : step.load.tokens);
    by_size[static_cast<int>(std::lround(std::log2(size) * 8))].push_back(
        {size, step.seconds / model.seconds(step.load)});
  }
  std::vector<std::vector<SizedRatio>> groups;
  for (const auto& [key, alike] : by_size) {
    if (groups.empty() || groups.back().size() >= steps_least) groups.emplace_back();
    groups.back().insert(groups.back().end(), alike.begin(), alike.end());
  }
  if (groups.size() > 1 && groups.back().size() < steps_least) {
    std::vector<SizedRatio> rest = std::move(groups.back());
    groups.pop_back();
    groups.back().insert(groups.back().end(), rest.begin(), rest.end());
  }
  Correction correction;
  for (std::vector<SizedRatio>& group : groups) {
    if (group.size() >= steps_least) correction.points.push_back(middle_of(std::move(group)));
  }
  return correction;
}

Json correction_json(const Correction& correction) {
  Json::Array points;
  for (const Correction::Point& point : correction.points) {
    points.push_back(Json::Array{Json(point.at), Json(point.factor)});
  }
  return points;
}

Result<Correction> read_correction(const Json& json, const std::string& name,
                                   const std::string& origin) {
  Correction correction;
  const Json* const points = json.find(name);
  if (points == nullptr) return correction;
  const Error bad{
      ErrorCode::kBadConfig,
      fmt::format("{}: {} must be pairs of a rising number and a factor above 0", origin, name),
      name};
  constexpr size_t kPointsMax = 1000;
  if (!points->is_array() || points->as_array().size() > kPointsMax) return bad;
  double before = 0;
  for (const Json& point : points->as_array()) {
    if (!point.is_array() || point.as_array().size() != 2) return bad;
    const Json::Array& pair = point.as_array();
    if (!pair[0].is_number() || !pair[1].is_number()) return bad;
    const Correction::Point read{.at = pair[0].as_number(), .factor = pair[1].as_number()};
    if (!(read.at > before && read.at < 1e9 && read.factor > 0 && read.factor < 1e6)) return bad;
    before = read.at;
    correction.points.push_back(read);
  }
  return correction;
}

// A step that others interrupt takes so much longer, and not so many times as long: counted by what
// they should have taken, short steps' large ratios do not become long steps', and all of a run's
// time is what it was.
void keep_residuals(const StepTimeModel& model, const std::vector<MeasuredStep>& steps,
                    Calibration& calibration) {
  std::vector<Weighted> alone;
  std::vector<Weighted> with_prompts;
  std::vector<double> errors;
  for (const MeasuredStep& step : steps) {
    const double modelled = model.seconds(step.load);
    const double ratio = step.seconds / modelled;
    (step.load.tokens_alone == step.load.rows ? alone : with_prompts)
        .push_back({.value = ratio, .weight = modelled});
    errors.push_back(std::abs(ratio - 1));
  }
  std::sort(errors.begin(), errors.end());
  calibration.residuals = weighted_slices_of(std::move(alone));
  calibration.prompt_residuals = weighted_slices_of(std::move(with_prompts));
  calibration.error_p50 = quantile(errors, 0.5);
  calibration.error_p90 = quantile(errors, 0.9);
}

Error bad_line(const std::string& name, size_t line, const std::string& what) {
  return Error{ErrorCode::kInvalidArgument, fmt::format("{}: line {}: {}", name, line, what),
               "step-log"};
}

Result<MeasuredStep> parse_line(const Json& json, const std::string& name, size_t line,
                                const Windows& windows) {
  const std::optional<int64_t> ns = json.integer("ns");
  if (!ns || *ns < 0) return bad_line(name, line, "ns must be a whole number of nanoseconds");
  const Json* const rows = json.find("rows");
  if (rows == nullptr || !rows->is_array() || rows->as_array().size() % 3 != 0) {
    return bad_line(name, line, "rows must be a list of start, count and sampled, three a row");
  }
  MeasuredStep step{.seconds = static_cast<double>(*ns) * 1e-9,
                    .submitted_ns = json.integer("submitted_ns").value_or(0),
                    .ended_ns = json.integer("ended_ns").value_or(0),
                    .after_pause = json.boolean("after_pause").value_or(false)};
  const Json::Array& numbers = rows->as_array();
  for (size_t i = 0; i < numbers.size(); i += 3) {
    for (size_t k = i; k < i + 3; ++k) {
      if (!numbers[k].is_integer() || numbers[k].as_integer() < 0 ||
          numbers[k].as_integer() > kPositionMax) {
        return bad_line(name, line, fmt::format("rows[{}] is out of range", k));
      }
    }
    step.load.add_row(numbers[i].as_integer(), numbers[i + 1].as_integer(),
                      numbers[i + 2].as_integer(), windows);
  }
  return step;
}

}  // namespace

Result<std::vector<MeasuredStep>> parse_step_log(std::string_view text, const std::string& name,
                                                 const Windows& windows) {
  std::vector<MeasuredStep> steps;
  for (size_t line = 1; !text.empty(); ++line) {
    if (line > kLinesMax) {
      return bad_line(name, line, fmt::format("more than {} lines", kLinesMax));
    }
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (one.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const Result<Json> json = Json::parse(one);
    if (!json.ok()) return bad_line(name, line, json.error().message);
    TRY_ASSIGN(MeasuredStep step, parse_line(*json, name, line, windows));
    // A step of copies alone says nothing of the model.
    if (step.load.tokens > 0 && step.seconds > 0) steps.push_back(std::move(step));
  }
  return steps;
}

Result<Calibration> calibrate(const StepTimeModel::Options& start,
                              const std::vector<MeasuredStep>& steps) {
  constexpr size_t kStepsLeast = 16;
  if (steps.size() < kStepsLeast) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} measured steps are too few to fit {} factors; at least {} are "
                             "needed",
                             steps.size(), kParameterCount + 1, kStepsLeast),
                 "step-log"};
  }
  TRY(StepTimeModel::make(start));
  const std::vector<MeasuredStep> few = chosen(steps);
  const std::vector<double> origin = first_point(start.efficiency);
  const LeastSquares problem{
      .residuals =
          [&](const std::vector<double>& point) {
            const Result<StepTimeModel> model =
                with_efficiency(start, at_point(start.efficiency, point));
            std::vector<double> residuals;
            for (const MeasuredStep& step : few) {
              residuals.push_back(std::log(model->seconds(step.load) / step.seconds));
            }
            for (size_t i = 0; i < point.size(); ++i) {
              residuals.push_back(kHold * (point[i] - origin[i]));
            }
            return residuals;
          },
      .outlier = 0.1};
  Calibration calibration{.model = start.shape.name,
                          .hardware = start.hardware.name,
                          .arithmetic = std::string(arithmetic_name(start.arithmetic)),
                          .steps = static_cast<int64_t>(steps.size())};
  calibration.efficiency = at_point(start.efficiency, minimise(problem, origin));
  TRY_ASSIGN(const StepTimeModel model, with_efficiency(start, calibration.efficiency));
  calibration.by_rows = correct(model, steps, true);
  calibration.by_tokens = correct(model, steps, false);
  StepTimeModel::Options corrected = start;
  corrected.efficiency = calibration.efficiency;
  corrected.by_rows = calibration.by_rows;
  corrected.by_tokens = calibration.by_tokens;
  keep_residuals(*StepTimeModel::make(std::move(corrected)), steps, calibration);
  return calibration;
}

Json Calibration::to_json() const {
  Json json;
  json.set("model", model).set("hardware", hardware).set("arithmetic", arithmetic);
  json.set("steps", steps).set("efficiency", efficiency.to_json());
  json.set("by_rows", correction_json(by_rows)).set("by_tokens", correction_json(by_tokens));
  json.set("overhead", overhead_json(overhead));
  json.set("error_p50", error_p50).set("error_p90", error_p90);
  json.set("residuals", slices_json(residuals));
  json.set("prompt_residuals", slices_json(prompt_residuals));
  return json;
}

Result<Calibration> Calibration::from_json(const Json& json, const std::string& origin) {
  const auto bad = [&](const std::string& field, const std::string& what) {
    return Error{ErrorCode::kBadConfig, fmt::format("{}: {} {}", origin, field, what), field};
  };
  Calibration calibration{.model = json.string("model").value_or(""),
                          .hardware = json.string("hardware").value_or(""),
                          .arithmetic = json.string("arithmetic").value_or("bf16"),
                          .steps = json.integer("steps").value_or(0)};
  const Json* const efficiency = json.find("efficiency");
  if (efficiency == nullptr || !efficiency->is_object()) return bad("efficiency", "is missing");
  TRY_ASSIGN(calibration.efficiency, Efficiency::from_json(*efficiency, origin));
  TRY_ASSIGN(calibration.by_rows, read_correction(json, "by_rows", origin));
  TRY_ASSIGN(calibration.by_tokens, read_correction(json, "by_tokens", origin));
  TRY_ASSIGN(calibration.overhead, read_overhead(json, origin));
  calibration.error_p50 = json.number("error_p50").value_or(0);
  calibration.error_p90 = json.number("error_p90").value_or(0);
  TRY_ASSIGN(calibration.residuals, read_slices(json, "residuals", origin));
  TRY_ASSIGN(calibration.prompt_residuals, read_slices(json, "prompt_residuals", origin));
  return calibration;
}

}  // namespace pelton::cost_model
