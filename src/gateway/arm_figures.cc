#include "gateway/arm_figures.h"

#include <algorithm>
#include <vector>

namespace pelton::gateway {
namespace {

using telemetry::PrometheusText;

std::vector<double> first_token_bounds() {
  return {0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50};
}

std::vector<double> token_bounds() {
  return {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1};
}

}  // namespace

ArmFigures::ArmFigures()
    : first_token_s_(first_token_bounds()),
      token_s_(token_bounds()),
      output_tokens_(telemetry::one_two_five(100'000)) {}

void ArmFigures::note_end(const End& end) {
  ++outcomes_[static_cast<size_t>(end.outcome)];
  if (end.outcome != Outcome::kOk) return;
  if (end.tokens > 0) output_tokens_.observe(static_cast<double>(end.tokens));
  if (end.tokens_longest > 1 && end.further_s > 0) {
    token_s_.observe(end.further_s / static_cast<double>(end.tokens_longest - 1));
  }
}

void ArmFigures::note_finish(std::string_view reason) {
  const auto found = std::ranges::find(kReasons, reason);
  const auto at =
      found == kReasons.end() ? kReasons.size() - 1 : static_cast<size_t>(found - kReasons.begin());
  ++reasons_[at];
}

void ArmFigures::add_metrics(const Labels& labels, PrometheusText& text) const {
  using Type = PrometheusText::Type;
  const PrometheusText::Labels common = {
      {"model", labels.model}, {"arm", labels.arm}, {"traffic", labels.traffic}};
  const auto with = [&](std::string_view name, std::string_view value) {
    PrometheusText::Labels all = common;
    all.push_back({name, value});
    return all;
  };
  text.family("pelton_gateway_arm_requests_total", Type::kCounter,
              "Requests given to each arm of a route.");
  text.sample(common, static_cast<double>(requests_));
  text.family("pelton_gateway_arm_answers_total", Type::kCounter, "What became of them.");
  for (size_t i = 0; i < kOutcomes.size(); ++i) {
    text.sample(with("outcome", kOutcomes[i]), static_cast<double>(outcomes_[i]));
  }
  text.family("pelton_gateway_arm_finished_total", Type::kCounter,
              "Why choices of their answers ended.");
  for (size_t i = 0; i < kReasons.size(); ++i) {
    text.sample(with("reason", kReasons[i]), static_cast<double>(reasons_[i]));
  }
  text.family("pelton_gateway_arm_first_token_seconds", Type::kHistogram,
              "From the request to the first token of its answer.");
  text.histogram(common, first_token_s_);
  text.family("pelton_gateway_arm_token_seconds", Type::kHistogram,
              "For each further token, as each answer's mean.");
  text.histogram(common, token_s_);
  text.family("pelton_gateway_arm_output_tokens", Type::kHistogram, "Tokens of an answer.");
  text.histogram(common, output_tokens_);
}

std::shared_ptr<ArmFigures> ArmTable::find(std::string_view model, std::string_view arm,
                                           Traffic traffic) {
  std::lock_guard lock(mutex_);
  const Key key{model, arm, traffic};
  const auto found = arms_.find(key);
  if (found != arms_.end()) return found->second;
  if (arms_.size() == kArmsMax) return nullptr;
  return arms_.emplace(key, std::make_shared<ArmFigures>()).first->second;
}

void ArmTable::add_metrics(PrometheusText& text) const {
  std::lock_guard lock(mutex_);
  for (const auto& [key, figures] : arms_) {
    const auto& [model, arm, traffic] = key;
    figures->add_metrics(
        {.model = model, .arm = arm, .traffic = traffic == Traffic::kShadow ? "shadow" : "clients"},
        text);
  }
}

}  // namespace pelton::gateway
