#include "simulator/fluid_surface.h"

#include <algorithm>
#include <cmath>

#include "report/percentile.h"

namespace pelton::simulator {
namespace {

double mean_factor(const std::vector<double>& residuals) {
  return residuals.empty() ? 1 : report::mean(residuals);
}

int beside_decodes(const engine::SchedulingPolicy& policy) {
  const bool decode_first = policy.order == engine::SchedulingPolicy::Order::kDecodeFirst;
  return decode_first ? policy.decode_first_prompt_tokens : policy.prompt_tokens_beside_decodes_max;
}

}  // namespace

FluidSurface::FluidSurface(const SimulationOptions& options, const cost_model::StepTimeModel& times)
    : times_(times),
      step_tokens_(options.replica.capacity.batch_tokens_max),
      beside_decodes_(beside_decodes(options.replica.policy)),
      noise_(mean_factor(options.replica.residuals)),
      prompt_noise_(mean_factor(options.replica.prompt_residuals)) {
  for (const kv::GroupCapacity& group : options.replica.capacity.groups) {
    windows_.push_back(group.spec.sliding_window);
  }
}

double FluidSurface::whole_s(int64_t rows, int64_t context, const Prompt& prompt) const {
  cost_model::StepLoad load;
  if (rows > 0) load = cost_model::StepLoad::decodes(rows, context, windows_);
  const auto tokens = std::llround(prompt.tokens);
  if (tokens < 1) return times_.seconds(load) * noise_;
  load.add_row(std::llround(prompt.cached), tokens, 1, windows_);
  return times_.seconds(load) * prompt_noise_;
}

double FluidSurface::decode_s(double rows, double context) const {
  return with_prompt_s(std::max(rows, 1.0), context, {});
}

double FluidSurface::with_prompt_s(double rows, double context, const Prompt& prompt) const {
  const double below = std::floor(rows);
  const auto seen = std::max<int64_t>(std::llround(context), 1);
  const double lower_s = whole_s(static_cast<int64_t>(below), seen, prompt);
  if (rows - below < 1e-9) return lower_s;
  const double upper_s = whole_s(static_cast<int64_t>(below) + 1, seen, prompt);
  return lower_s + (rows - below) * (upper_s - lower_s);
}

double FluidSurface::prompt_tokens_max(double rows) const {
  double most = std::max(step_tokens_ - rows, 1.0);
  if (beside_decodes_ > 0 && rows >= 1) most = std::min<double>(most, beside_decodes_);
  return most;
}

}  // namespace pelton::simulator
