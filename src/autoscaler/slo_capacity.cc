#include "autoscaler/slo_capacity.h"

#include <algorithm>
#include <cmath>

namespace pelton::autoscaler {
namespace {

constexpr double kKvUsedMax = 0.9;
constexpr double kAloneRate = 1e-6;  // a request every eleven days is alone

// How many standard deviations a normal variable stays below with this probability, 0.5 to 0.9999:
// Abramowitz and Stegun 26.2.23, to 4.5e-4.
double deviations(double probability) {
  const double tail = std::clamp(1 - probability, 1e-4, 0.5);
  const double t = std::sqrt(-2 * std::log(tail));
  return t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                 (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
}

// By how much a Poisson variable is above a bound, on average (0 where it is not).
double mean_above(double mean, double bound) {
  constexpr double kLargeMean = 30;
  if (mean > kLargeMean) {  // a normal variable's
    const double sigma = std::sqrt(mean);
    const double z = (bound - mean) / sigma;
    constexpr double kDensityAtZero = 0.3989422804014327;
    const double density = kDensityAtZero * std::exp(-z * z / 2);
    return sigma * density - (bound - mean) * 0.5 * std::erfc(z / std::sqrt(2.0));
  }
  double term = std::exp(-mean);
  double below = 0;  // mean of max(bound - N, 0)
  for (double k = 0; k < bound; k += 1) {
    below += term * (bound - k);
    term *= mean / (k + 1);
    if (k > mean && term * bound < 1e-9) break;
  }
  return mean - bound + below;
}

struct Wait {
  double mean_s = 0;
  double at_percentile_s = 0;
};

// In a queue before `slots` in which a request stays `stay_s`.
Wait wait_for_slot(double rate, double stay_s, double slots, double percentile) {
  const double rho = rate * stay_s / slots;
  // The probability to wait at all, and the mean of those who do.
  const double waits = std::pow(rho, std::sqrt(2 * (slots + 1)) - 1);
  const double each_s = stay_s / (slots * (1 - rho));
  return {.mean_s = waits * each_s,
          .at_percentile_s = std::max(0.0, each_s * std::log(waits / (1 - percentile)))};
}

}  // namespace

SloCapacity::Forecast SloCapacity::at(double rate, int replicas) const {
  Forecast forecast;
  const double each = rate / std::max(replicas, 1);
  const double row_s = replica_.row_s + replica_.context_token_s * shape_.context;
  const double work_s = shape_.output * row_s + shape_.computed * replica_.prefill_token_s;
  if (each * work_s >= 1) return forecast;
  const double step_s = replica_.fixed_s / (1 - each * work_s);
  const double rows = each * shape_.output * step_s;
  const double prompt_tokens = each * shape_.computed * step_s;
  const double piece_max = replica_.step_tokens > 0 ? replica_.step_tokens : shape_.computed;
  const bool kv_fits =
      replica_.kv_tokens <= 0 || rows * shape_.context <= kKvUsedMax * replica_.kv_tokens;
  if (rows > replica_.slots || prompt_tokens > std::max(piece_max, 1.0) * 1.0001 || !kv_fits) {
    return forecast;
  }
  const auto pieces = [&](double tokens) {
    return std::max(1.0, std::ceil(tokens / std::max(piece_max, 1.0)));
  };
  const double rows_s = rows * row_s;
  const auto prefill_s = [&](double tokens) {
    return pieces(tokens) * (replica_.fixed_s + rows_s) + tokens * replica_.prefill_token_s;
  };
  forecast.step_s = step_s;
  forecast.rows = rows;
  forecast.gap_s = replica_.fixed_s + row_s + rows_s + prompt_tokens * replica_.prefill_token_s;
  const double stay_s = prefill_s(shape_.computed) + shape_.output * forecast.gap_s;
  const double slots = static_cast<double>(replica_.slots) * std::max(replicas, 1);
  if (rate * stay_s >= slots) return forecast;
  forecast.is_stable = true;

  const double beside =
      std::min(rows + deviations(objective_.percentile) * std::sqrt(rows), replica_.slots - 1.0);
  const double decode_s = replica_.fixed_s + row_s * (1 + std::max(beside, rows));
  forecast.gap_at_percentile_s =
      std::max(forecast.gap_s, decode_s + prompts_at_percentile(rate, replicas, decode_s) *
                                              replica_.prefill_token_s);
  const Wait wait = wait_for_slot(rate, stay_s, slots, objective_.percentile);
  const double prefill_mean_s = prefill_s(shape_.computed);
  forecast.first_token_s = wait.mean_s + prefill_mean_s;
  // A long wait and a long prompt seldom meet.
  forecast.first_token_at_percentile_s =
      std::max(wait.at_percentile_s + prefill_mean_s,
               wait.mean_s + prefill_s(std::max(shape_.computed_at_percentile, shape_.computed)));
  return forecast;
}

// Of the pieces of prompts that came during a step, to all replicas together, the router gives each
// replica as many as the others, or one more: a share of mean_above(k x replicas) / replicas has
// more than k. The step is as long as they make it: from the shortest that it can be, upwards.
double SloCapacity::prompts_at_percentile(double rate, int replicas, double decode_s) const {
  constexpr int kRounds = 8;
  const double most = replica_.step_tokens > 0 ? replica_.step_tokens : 1e12;
  const double piece = std::clamp(shape_.computed, 1.0, most);
  const double pieces = std::ceil(shape_.computed / piece);
  double count = 0;
  for (int i = 0; i < kRounds; ++i) {
    const double step_s = decode_s + count * piece * replica_.prefill_token_s;
    const double come = rate * pieces * step_s;
    const double before = count;
    while (count * piece < most &&
           mean_above(come, count * replicas) > (1 - objective_.percentile) * replicas) {
      // Many short prompts: in steps of their mean.
      count += std::max(1.0, std::floor(come / replicas - count));
    }
    if (count == before) break;
  }
  return std::min(most, count * piece);
}

bool SloCapacity::is_first_token_unattainable() const {
  const double alone_s = at(kAloneRate, 1).first_token_at_percentile_s * correction_.first_token;
  return objective_.first_token_s && alone_s > *objective_.first_token_s;
}

bool SloCapacity::is_gap_unattainable() const {
  const double alone_s = at(kAloneRate, 1).gap_at_percentile_s * correction_.gap;
  return objective_.gap_s && alone_s > *objective_.gap_s;
}

bool SloCapacity::keeps(const Forecast& forecast, bool first_token, bool gap) const {
  if (!forecast.is_stable) return false;
  const double first_s = forecast.first_token_at_percentile_s * correction_.first_token;
  const double gap_s = forecast.gap_at_percentile_s * correction_.gap;
  return (!first_token || first_s <= *objective_.first_token_s) &&
         (!gap || gap_s <= *objective_.gap_s);
}

int SloCapacity::least(double rate, int most) const {
  const bool first_token = objective_.first_token_s && !is_first_token_unattainable();
  const bool gap = objective_.gap_s && !is_gap_unattainable();
  int too_few = 0;
  int enough = std::max(most, 1);
  while (enough - too_few > 1) {
    const int middle = too_few + (enough - too_few) / 2;
    (keeps(at(rate, middle), first_token, gap) ? enough : too_few) = middle;
  }
  return enough;
}

}  // namespace pelton::autoscaler
