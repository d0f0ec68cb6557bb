#include "autoscaler/paired_pools.h"

#include <algorithm>
#include <cmath>

namespace pelton::autoscaler {
namespace {

constexpr int64_t kServedFewest = 5;  // before what requests are like is believed
constexpr double kRateRises = 1.3;    // fast over slow: the fast one is believed

bool is_there(ReplicaPhase phase) {
  return phase == ReplicaPhase::kOrdered || phase == ReplicaPhase::kStarting ||
         phase == ReplicaPhase::kReady;
}

PairPolicy one_at_least(PairPolicy policy) {
  policy.prefill_min = std::max(policy.prefill_min, 1);
  policy.decode_min = std::max(policy.decode_min, 1);
  return policy;
}

}  // namespace

PairedPools::PairedPools(const PairPolicy& policy, double window_s)
    : policy_(one_at_least(policy)), scaler_(policy_), demand_(window_s) {}

// The median, number by number: one that is slow, or lies, is not its role's.
void PairedPools::learn(const PoolFacts& facts, ReplicaModel& model) const {
  const auto median = [&](double ReplicaModel::*member) {
    std::vector<double> values;
    for (const ReplicaFacts& one : facts.replicas) {
      const double value = one.model.*member;
      if (one.phase != ReplicaPhase::kReady || !one.model.is_known()) continue;
      if (std::isfinite(value) && value >= 0) values.push_back(value);
    }
    if (values.empty()) return 0.0;
    const auto middle = values.begin() + std::ssize(values) / 2;
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  };
  const double fixed_s = median(&ReplicaModel::fixed_s);
  if (fixed_s <= 0) return;
  model.fixed_s = fixed_s;
  model.prefill_token_s = median(&ReplicaModel::prefill_token_s);
  model.row_s = median(&ReplicaModel::row_s);
  model.context_token_s = median(&ReplicaModel::context_token_s);
  for (const ReplicaFacts& one : facts.replicas) {
    if (one.phase != ReplicaPhase::kReady) continue;
    model.slots = std::max(one.slots, 1);
    model.step_tokens = one.model.step_tokens;
  }
}

void PairedPools::learn(const ServedSums& served) {
  if (served.requests() < kServedFewest) return;
  const auto requests = static_cast<double>(served.requests());
  const double output = static_cast<double>(served.output) / requests;
  shape_ = {.computed = static_cast<double>(served.computed()) / requests,
            .computed_at_percentile = served.computed_at(policy_.objective.percentile),
            .context = static_cast<double>(served.input) / requests + output / 2,
            .output = output};
}

PairDecision PairedPools::decide(const PoolFacts& prefill, const PoolFacts& decode, int decode_min,
                                 int64_t now_ns) {
  demand_.note(decode.gateways, now_ns);
  learn(decode, model_.decode);
  learn(prefill, model_.prefill);
  // They are of one model: what one role's steps take is the best guess of the other's.
  if (!model_.prefill.is_known()) model_.prefill = model_.decode;
  if (!model_.decode.is_known()) model_.decode = model_.prefill;
  const Demand::Window slow = demand_.over(demand_.window_s(), now_ns);
  const Demand::Window fast = demand_.over(demand_.fast_s(), now_ns);
  learn(slow.served);
  int asked = 0;
  for (const GatewayReport& one : decode.gateways) {
    asked += std::max(one.held, 0) + std::max(one.in_service, 0);
  }
  const bool any_there = std::ranges::any_of(
      decode.replicas, [](const ReplicaFacts& one) { return is_there(one.phase); });
  if (decode_min == 0 && asked == 0 && !any_there) return {};
  const bool is_known = model_.decode.is_known() && shape_.output > 0;
  const double rate = fast.rate > kRateRises * slow.rate ? fast.rate : slow.rate;
  PairDecision decision = scaler_.decide(model_, shape_, is_known ? rate : 0, now_ns);
  decision.counts.decode = std::max(decision.counts.decode, decode_min);
  return decision;
}

}  // namespace pelton::autoscaler
