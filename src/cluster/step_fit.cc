#include "cluster/step_fit.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pelton::cluster {
namespace {

// What 0.1 s may hold: terms of like size, so that one weight holds all four to the assumption.
constexpr std::array<double, 4> kScales = {10, 1000, 1000, 1e6};
constexpr double kFading = 0.99;   // an interval counts half after seventy others
constexpr double kAssumed = 0.01;  // the assumption's weight, in intervals
constexpr int64_t kLearning = 10;  // intervals that count whatever they are
constexpr double kResiduals = 3;   // times the usual one: what is more counts less
constexpr double kResidualShare = 0.05;
constexpr int kFarRun = 4;            // bad fits in a row that are no accident,
constexpr double kFarRunS = 1;        // and of so much time
constexpr double kAfterChange = 0.2;  // what older intervals count then
constexpr double kChangeMin = 1.25;   // what is less the sums follow by themselves
constexpr double kChangeMax = 100;

std::array<double, 4> assumed() {
  const StepCosts costs;
  return {costs.fixed_s * kScales[0], costs.prefill_token_s * kScales[1], costs.row_s * kScales[2],
          costs.context_token_s * kScales[3]};
}

}  // namespace

StepFit::StepFit() {
  const Row first = assumed();
  for (size_t i = 0; i < kTerms; ++i) {
    squares_[i][i] = kAssumed;
    products_[i] = kAssumed * first[i];
  }
}

void StepFit::note(const Interval& interval) {
  if (interval.steps < 1 || !(interval.seconds > 0)) return;
  const auto steps = static_cast<double>(interval.steps);
  const Row x = {steps / kScales[0], static_cast<double>(interval.prefill_tokens) / kScales[1],
                 static_cast<double>(interval.output_tokens) / kScales[2],
                 static_cast<double>(interval.context_tokens) * steps / kScales[3]};
  const Row first = assumed();
  const double predicted = predicted_s(x);
  const double weight = weight_of(predicted, interval.seconds);
  for (size_t i = 0; i < kTerms; ++i) {
    for (size_t j = 0; j < kTerms; ++j) {
      squares_[i][j] = squares_[i][j] * kFading + weight * x[i] * x[j];
    }
    products_[i] = products_[i] * kFading + weight * x[i] * interval.seconds;
    // What has faded of the assumption comes back: terms that are no longer seen return to it.
    squares_[i][i] += kAssumed * (1 - kFading);
    products_[i] += kAssumed * (1 - kFading) * first[i];
  }
  solve();
}

double StepFit::predicted_s(const Row& x) const {
  return costs_.fixed_s * kScales[0] * x[0] + costs_.prefill_token_s * kScales[1] * x[1] +
         costs_.row_s * kScales[2] * x[2] + costs_.context_token_s * kScales[3] * x[3];
}

double StepFit::weight_of(double predicted_s, double seconds) {
  const double residual = std::abs(seconds - predicted_s);
  ++noted_;
  if (noted_ <= kLearning) {
    residual_s_ += (residual - residual_s_) / static_cast<double>(noted_);
    return 1;
  }
  // The bound is that from before the first of them: in a row it would soon let all through.
  const double usual_s = far_.count > 0 ? far_.usual_residual_s : residual_s_;
  const bool is_slow = seconds > predicted_s;
  if (residual <= kResiduals * usual_s) {
    far_ = {};
  } else {
    if (far_.is_slow != is_slow) far_ = {};
    if (far_.count == 0) far_ = {.is_slow = is_slow, .usual_residual_s = residual_s_};
    ++far_.count;
    far_.predicted_s += predicted_s;
    far_.seconds += seconds;
    if (far_.count >= kFarRun && far_.seconds >= kFarRunS) {
      begin_anew();
      return 1;
    }
  }
  const double bound = kResiduals * residual_s_;
  residual_s_ += kResidualShare * (std::min(residual, 2 * bound) - residual_s_);
  return residual <= bound ? 1 : bound / residual;
}

// Sums of products are linear in the times that were seen: so many times as long, and all terms
// keep their shares.
void StepFit::begin_anew() {
  const Far far = std::exchange(far_, {});
  const double ratio =
      std::clamp(far.seconds / std::max(far.predicted_s, 1e-9), 1 / kChangeMax, kChangeMax);
  if (ratio > 1 / kChangeMin && ratio < kChangeMin) return;
  for (size_t i = 0; i < kTerms; ++i) {
    for (double& one : squares_[i]) one *= kAfterChange;
    products_[i] *= ratio * kAfterChange;
  }
  residual_s_ = ratio * far.usual_residual_s;
}

// Coordinate descent for the least squares without negative terms (each pass solves for one term
// with the others held): a step never gets faster by more work.
void StepFit::solve() {
  constexpr int kPasses = 200;
  Row terms = {costs_.fixed_s * kScales[0], costs_.prefill_token_s * kScales[1],
               costs_.row_s * kScales[2], costs_.context_token_s * kScales[3]};
  for (int pass = 0; pass < kPasses; ++pass) {
    for (size_t i = 0; i < kTerms; ++i) {
      double rest = products_[i];
      for (size_t j = 0; j < kTerms; ++j) {
        if (j != i) rest -= squares_[i][j] * terms[j];
      }
      terms[i] = std::max(rest / squares_[i][i], 0.0);
    }
  }
  costs_ = {.fixed_s = terms[0] / kScales[0],
            .prefill_token_s = terms[1] / kScales[1],
            .row_s = terms[2] / kScales[2],
            .context_token_s = terms[3] / kScales[3]};
}

}  // namespace pelton::cluster
