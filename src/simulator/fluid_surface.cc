#include "simulator/fluid_surface.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/random.h"
#include "report/percentile.h"

namespace pelton::simulator {
namespace {

constexpr size_t kKnown = size_t{1} << 14;

double mean_factor(const std::vector<double>& residuals) {
  return residuals.empty() ? 1 : report::mean(residuals);
}

int beside_decodes(const engine::SchedulingPolicy& policy) {
  const bool decode_first = policy.order == engine::SchedulingPolicy::Order::kDecodeFirst;
  return decode_first ? policy.decode_first_prompt_tokens : policy.prompt_tokens_beside_decodes_max;
}

// With seven of its digits, by twos.
int64_t coarse(double amount) {
  constexpr int kBits = 7;
  const auto whole = static_cast<uint64_t>(std::max(std::llround(amount), 0LL));
  const int over = std::max(static_cast<int>(std::bit_width(whole)) - kBits, 0);
  if (over == 0) return static_cast<int64_t>(whole);
  const uint64_t half = uint64_t{1} << (over - 1);
  return static_cast<int64_t>((whole + half) >> over << over);
}

}  // namespace

FluidSurface::FluidSurface(const SimulationOptions& options, const cost_model::StepTimeModel& times)
    : times_(times),
      step_tokens_(options.replica.capacity.batch_tokens_max),
      beside_decodes_(beside_decodes(options.replica.policy)),
      noise_(mean_factor(options.replica.residuals)),
      prompt_noise_(mean_factor(options.replica.prompt_residuals)),
      known_(kKnown) {
  for (const kv::GroupCapacity& group : options.replica.capacity.groups) {
    windows_.push_back(group.spec.sliding_window);
  }
}

double FluidSurface::modelled_s(const Step& step) const {
  cost_model::StepLoad load;
  if (step.rows > 0) load = cost_model::StepLoad::decodes(step.rows, step.context, windows_);
  if (step.tokens < 1) return times_.seconds(load) * noise_;
  load.add_row(step.cached, step.tokens, 1, windows_);
  return times_.seconds(load) * prompt_noise_;
}

// Steps of few kinds come again and again.
double FluidSurface::whole_s(const Step& step) const {
  uint64_t name =
      base::mix64(static_cast<uint64_t>(step.rows) << 32 ^ static_cast<uint64_t>(step.context));
  name ^= static_cast<uint64_t>(step.tokens) << 32 ^ static_cast<uint64_t>(step.cached);
  Known& known = known_[base::mix64(name) % known_.size()];
  if (known.step != step) known = {.step = step, .seconds = modelled_s(step)};
  return known.seconds;
}

double FluidSurface::decode_s(double rows, double context) const {
  return with_prompt_s(std::max(rows, 1.0), context, {});
}

double FluidSurface::with_prompt_s(double rows, double context, const Prompt& prompt) const {
  const double below = std::floor(rows);
  Step step{.rows = static_cast<int64_t>(below),
            .context = std::max<int64_t>(coarse(context), 1),
            .tokens = coarse(prompt.tokens),
            .cached = coarse(prompt.cached)};
  if (step.tokens < 1) step.cached = 0;
  if (step.rows < 1) step.context = 1;
  const double lower_s = whole_s(step);
  if (rows - below < 1e-9) return lower_s;
  ++step.rows;
  step.context = std::max<int64_t>(coarse(context), 1);
  return lower_s + (rows - below) * (whole_s(step) - lower_s);
}

double FluidSurface::prompt_tokens_max(double rows) const {
  double most = std::max(step_tokens_ - rows, 1.0);
  if (beside_decodes_ > 0 && rows >= 1) most = std::min<double>(most, beside_decodes_);
  return most;
}

}  // namespace pelton::simulator
