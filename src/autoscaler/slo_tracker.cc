#include "autoscaler/slo_tracker.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace pelton::autoscaler {
namespace {

constexpr int64_t kFinishedFewest = 20;  // before what requests are like is believed
constexpr double kCorrectionMin = 0.2;   // a step may emit five tokens
constexpr double kCorrectionMax = 3;
constexpr double kLearnt_s = 10;  // of a pause between two decisions
constexpr double kNewestShare = 0.1;

// Of what ready replicas report; 0: none does.
double median(const PoolFacts& facts, double ReplicaModel::*member) {
  std::vector<double> values;
  for (const ReplicaFacts& one : facts.replicas) {
    const double value = one.model.*member;
    if (one.phase != ReplicaPhase::kReady || !one.model.is_known()) continue;
    if (std::isfinite(value) && value >= 0) values.push_back(value);
  }
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

// The median, number by number: one that is slow, or lies, is not the pool's.
void SloTracker::learn(const PoolFacts& facts, int slots) {
  double kv_used = 0;
  int running = 0;
  int step_tokens = 0;
  for (const ReplicaFacts& one : facts.replicas) {
    if (one.phase != ReplicaPhase::kReady) continue;
    step_tokens = std::max(step_tokens, one.model.step_tokens);
    if (one.running <= 0 || !(one.kv_used >= 0 && one.kv_used <= 1)) continue;
    kv_used += one.kv_used;
    running += one.running;
  }
  if (running > 0) {
    const double each = kv_used / running;
    model_.kv_each += (model_.kv_each > 0 ? kNewestShare : 1) * (each - model_.kv_each);
  }
  const double fixed_s = median(facts, &ReplicaModel::fixed_s);
  if (fixed_s <= 0) return;
  model_.fixed_s = fixed_s;
  model_.prefill_token_s = median(facts, &ReplicaModel::prefill_token_s);
  model_.row_s = median(facts, &ReplicaModel::row_s);
  model_.context_token_s = median(facts, &ReplicaModel::context_token_s);
  model_.slots = std::max(slots, 1);
  model_.step_tokens = step_tokens;
}

SloCapacity SloTracker::capacity() const {
  return {model_, shape_, objective_, correction_};
}

void SloTracker::correct(const Demand::Window& window, const Now& now) {
  const ServedSums& served = window.served;
  const auto requests = static_cast<double>(served.requests());
  const double since_s =
      std::min(static_cast<double>(now.now_ns - corrected_ns_) * 1e-9, kLearnt_s);
  const double share = corrected_ns_ < 0 ? 0 : 1 - std::exp(-since_s / window_s_);
  const auto learn = [&](double& correction, double measured, double predicted) {
    if (!(measured > 0) || !(predicted > 0)) return;
    const double ratio = std::clamp(measured / predicted, kCorrectionMin, kCorrectionMax);
    correction += share * (ratio - correction);
  };
  const double gaps = static_cast<double>(served.output) - requests;
  if (gaps > 0) {
    learn(correction_.gap, served.further_s / gaps,
          capacity().step_with(window.in_service / now.ready, window.rate / now.ready));
  }
  const double still_s = static_cast<double>(now.now_ns - ready_ns_) * 1e-9;
  const SloCapacity::Forecast forecast = capacity().at(window.rate, now.ready);
  if (forecast.is_stable && still_s > window_s_ + now.service_s) {
    learn(correction_.first_token, served.first_token_s / requests,
          forecast.first_token_s / correction_.first_token);
  }
}

std::optional<SloCapacity> SloTracker::update(const Demand::Window& window, const Now& now,
                                              PoolDecision::Slo& slo) {
  if (now.ready != ready_) {
    ready_ = now.ready;
    ready_ns_ = now.now_ns;
  }
  const ServedSums& served = window.served;
  const auto requests = static_cast<double>(served.requests());
  const bool is_enough = served.requests() >= kFinishedFewest;
  if (is_enough) {
    const double output = static_cast<double>(served.output) / requests;
    shape_ = {.computed = static_cast<double>(served.computed()) / requests,
              .computed_at_percentile = served.computed_at(objective_.percentile),
              .context = static_cast<double>(served.input) / requests + output / 2,
              .output = output};
  }
  // Of no replica nothing is known, and of no request.
  if (!model_.is_known() || shape_.output <= 0) return std::nullopt;
  if (is_enough && now.ready > 0) correct(window, now);
  corrected_ns_ = now.now_ns;
  const SloCapacity capacity = this->capacity();
  const SloCapacity::Forecast forecast = capacity.at(window.rate, std::max(now.ready, 1));
  const auto over = [](double seconds, const std::optional<double>& most) {
    return most && seconds > *most;
  };
  slo = {.is_known = true,
         .is_missed = window.rate > 0 &&
                      (!forecast.is_stable ||
                       over(forecast.first_token_at_percentile_s, objective_.first_token_s) ||
                       over(forecast.gap_at_percentile_s, objective_.gap_s)),
         .first_token_s = forecast.first_token_at_percentile_s,
         .gap_s = forecast.gap_at_percentile_s,
         .correction = correction_,
         .shape = shape_,
         .first_token_unattainable = capacity.is_first_token_unattainable(),
         .gap_unattainable = capacity.is_gap_unattainable()};
  return capacity;
}

void SloTracker::save(base::JsonWriter& w) const {
  const auto put = [&](std::string_view key, double value) {
    w.key(key);
    write_exact(w, value);
  };
  w.begin_object();
  put("fixed_s", model_.fixed_s);
  put("prefill_token_s", model_.prefill_token_s);
  put("row_s", model_.row_s);
  put("context_token_s", model_.context_token_s);
  put("kv_each", model_.kv_each);
  put("computed", shape_.computed);
  put("computed_at_percentile", shape_.computed_at_percentile);
  put("context", shape_.context);
  put("output", shape_.output);
  put("first_token_correction", correction_.first_token);
  put("gap_correction", correction_.gap);
  w.key("slots").integer(model_.slots).key("step_tokens").integer(model_.step_tokens);
  w.key("ready").integer(ready_ + 1).key("ready_ns").integer(ready_ns_);
  w.key("corrected_ns").integer(corrected_ns_).end_object();
}

void SloTracker::load(const StateReader& state) {
  constexpr double kMost = 1e12;
  const auto number = [&](std::string_view key) {
    const double value = state.number(key);
    if (!(value >= 0 && value <= kMost)) state.fail();
    return value;
  };
  model_ = {.fixed_s = number("fixed_s"),
            .prefill_token_s = number("prefill_token_s"),
            .row_s = number("row_s"),
            .context_token_s = number("context_token_s"),
            .slots = std::max(state.count("slots"), 1),
            .step_tokens = state.count("step_tokens"),
            .kv_each = number("kv_each")};
  shape_ = {.computed = number("computed"),
            .computed_at_percentile = number("computed_at_percentile"),
            .context = number("context"),
            .output = number("output")};
  correction_ = {
      .first_token = std::clamp(number("first_token_correction"), kCorrectionMin, kCorrectionMax),
      .gap = std::clamp(number("gap_correction"), kCorrectionMin, kCorrectionMax)};
  ready_ = state.count("ready") - 1;
  ready_ns_ = state.time("ready_ns");
  corrected_ns_ = state.time("corrected_ns");
}

}  // namespace pelton::autoscaler
