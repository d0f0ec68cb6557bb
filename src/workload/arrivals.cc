#include "workload/arrivals.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "workload/draws.h"

namespace pelton::workload {
namespace {

constexpr uint64_t kGapStream = 0x6170;

Error bad(const char* field, std::string why) {
  return Error{ErrorCode::kInvalidArgument, fmt::format("'{}' {}", field, why), field};
}

bool above_zero(double value) {
  return value > 0 && !std::isnan(value);
}

Result<void> check(const Arrivals& arrivals, int64_t count) {
  if (count < 0) return bad("count", "must not be negative");
  if (!above_zero(arrivals.burstiness)) return bad("burstiness", "must be above 0");
  if (!arrivals.ramp && !above_zero(arrivals.rate)) return bad("request_rate", "must be above 0");
  if (arrivals.ramp) {
    const Ramp& ramp = *arrivals.ramp;
    if (!std::isfinite(ramp.start_rps) || !std::isfinite(ramp.end_rps) || ramp.start_rps < 0 ||
        ramp.end_rps < 0) {
      return bad("ramp_up", "must go from one finite rate to another");
    }
    const bool needs_both = ramp.shape == Ramp::Shape::kExponential;
    if (needs_both && (ramp.start_rps == 0 || ramp.end_rps == 0)) {
      return bad("ramp_up", "cannot rise from or to 0 exponentially");
    }
    if (arrivals.day) return bad("ramp_up", "and a day's curve exclude each other");
  }
  if (!arrivals.spikes.empty()) {
    if (arrivals.ramp) return bad("spikes", "and a ramp exclude each other");
    if (!std::isfinite(arrivals.rate)) return bad("request_rate", "must be finite for a spike");
    for (const Spike& spike : arrivals.spikes) {
      const bool is_sound = std::isfinite(spike.at_s) && spike.at_s >= 0 &&
                            std::isfinite(spike.for_s) && above_zero(spike.for_s) &&
                            std::isfinite(spike.rps) && above_zero(spike.rps);
      if (!is_sound) return bad("spikes", "need a time from 0 on, a length and a rate above 0");
    }
  }
  if (arrivals.day) {
    if (!std::isfinite(arrivals.rate)) return bad("request_rate", "must be finite for a day");
    if (arrivals.day->swing < 0 || arrivals.day->swing > 1) {
      return bad("day_swing", "must be from 0 to 1");
    }
    if (!above_zero(arrivals.day->period_s)) return bad("day_period", "must be above 0");
  }
  return {};
}

double ramp_rate(const Ramp& ramp, int64_t i, int64_t count) {
  const double p = count > 1 ? static_cast<double>(i) / static_cast<double>(count - 1) : 0;
  if (ramp.shape == Ramp::Shape::kExponential) {
    return ramp.start_rps * std::pow(ramp.end_rps / ramp.start_rps, p);
  }
  return ramp.start_rps + (ramp.end_rps - ramp.start_rps) * p;
}

// Expected requests from 0 to t, in units of 1 / rate.
double expected_until(double t, double rate, const std::optional<Day>& day,
                      const std::vector<Spike>& spikes) {
  double expected = t;
  if (day) {
    const double turn = 2 * std::numbers::pi / day->period_s;
    expected += day->swing / turn * (1 - std::cos(turn * t));
  }
  for (const Spike& spike : spikes) {
    expected += std::clamp(t - spike.at_s, 0.0, spike.for_s) * spike.rps / rate;
  }
  return expected;
}

// The time until which so many are expected: gaps drawn evenly become a day's, or a spike's, by
// turning the integral around. It rises, so halving an interval finds it.
template <typename ExpectedUntil>
double time_of(double expected, double high, const ExpectedUntil& expected_until) {
  double low = 0;
  for (int i = 0; i < 100 && high - low > 1e-9; ++i) {
    const double middle = (low + high) / 2;
    (expected_until(middle) < expected ? low : high) = middle;
  }
  return (low + high) / 2;
}

double gap(Draws& draws, double rate, double burstiness) {
  if (std::isinf(burstiness)) return 1 / rate;
  return draws.gamma(burstiness, 1 / (rate * burstiness));
}

// The last one at count / rate.
void stretch(std::vector<double>& times, double rate) {
  if (times.empty() || times.back() <= 0) return;
  const double factor = static_cast<double>(times.size()) / rate / times.back();
  for (double& time : times) time *= factor;
}

}  // namespace

Result<std::vector<double>> arrival_times(const Arrivals& arrivals, int64_t count) {
  TRY(check(arrivals, count));
  std::vector<double> times(static_cast<size_t>(count), 0.0);
  if (!arrivals.ramp && std::isinf(arrivals.rate)) return times;
  Draws draws(arrivals.seed, kGapStream);
  double now = 0;
  for (int64_t i = 0; i < count; ++i) {
    double rate = arrivals.rate;
    // A ramp from 0 would wait for ever at its first step.
    if (arrivals.ramp) rate = std::max(ramp_rate(*arrivals.ramp, i, count), 1e-3);
    now += gap(draws, rate, arrivals.burstiness);
    times[static_cast<size_t>(i)] = now;
  }
  if (arrivals.ramp) return times;
  stretch(times, arrivals.rate);
  if (!arrivals.day && arrivals.spikes.empty()) return times;
  const double period_s = arrivals.day ? arrivals.day->period_s : 0;
  for (double& time : times) {
    time = time_of(time, time + period_s, [&](double t) {
      return expected_until(t, arrivals.rate, arrivals.day, arrivals.spikes);
    });
  }
  return times;
}

Result<double> parse_rate(std::string_view text, const std::string& field) {
  if (text == "inf") return std::numeric_limits<double>::infinity();
  double rate = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), rate);
  if (failure != std::errc{} || end != text.data() + text.size() || !std::isfinite(rate) ||
      rate <= 0) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("'{}' must be a number above 0 or 'inf', not '{}'", field, text),
                 field};
  }
  return rate;
}

}  // namespace pelton::workload
