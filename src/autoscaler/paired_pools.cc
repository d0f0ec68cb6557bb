#include "autoscaler/paired_pools.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace pelton::autoscaler {
namespace {

constexpr int64_t kServedFewest = 5;  // before what requests are like is believed
constexpr double kRateRises = 1.3;    // fast over slow: the fast one is believed
constexpr double kNewestShare = 0.1;  // of what a request was lately seen to take of a KV cache

bool is_there(ReplicaPhase phase) {
  return phase == ReplicaPhase::kOrdered || phase == ReplicaPhase::kStarting ||
         phase == ReplicaPhase::kReady;
}

// GPUs and price hold for both roles together: counted in replicas, as one of either takes as much.
PairPolicy pair_policy(const PoolPolicy& policy) {
  const PoolPolicy::Prefill prefill = policy.prefill.value_or(PoolPolicy::Prefill{});
  return {.objective = policy.slo,
          .prefill_min = prefill.replicas_min,
          .decode_min = std::max(policy.replicas_min, 1),
          .prefill_max = prefill.replicas_max,
          .decode_max = policy.replicas_max,
          .gpus_max = std::min(prefill.replicas_max + policy.replicas_max, policy.affordable()),
          .scale_down_delay_s = policy.scale_down_delay_s.value_or(policy.window_s)};
}

// Of both roles: what waits beyond the prompts that can be computed at once.
int piled_up(const PoolFacts& facts) {
  int waiting = 0;
  int free_slots = 0;
  int ready = 0;
  const std::vector<ReplicaFacts>& first = facts.prefill.empty() ? facts.replicas : facts.prefill;
  for (const ReplicaFacts& one : first) {
    if (one.phase != ReplicaPhase::kReady) continue;
    ++ready;
    waiting += std::max(one.waiting, 0);
    free_slots += std::max(one.slots - one.running, 0);
  }
  for (const GatewayReport& one : facts.gateways) waiting += std::max(one.held, 0);
  return std::max(waiting - (ready > 0 ? free_slots : 0), 0);
}

}  // namespace

PairedPools::PairedPools(const PoolPolicy& policy)
    : objective_(policy.slo),
      affordable_(policy.affordable()),
      prefill_min_(policy.prefill->replicas_min),
      scaler_(pair_policy(policy)) {}

// The median, number by number: one that is slow, or lies, is not its role's. What a role does not
// do yet says nothing: what is known of it stays.
void PairedPools::learn(const std::vector<ReplicaFacts>& replicas, ReplicaModel& model) const {
  const auto learn_one = [&](double ReplicaModel::*member) {
    std::vector<double> values;
    for (const ReplicaFacts& one : replicas) {
      const double value = one.model.*member;
      if (one.phase != ReplicaPhase::kReady || !one.model.is_known()) continue;
      if (std::isfinite(value) && value >= 0) values.push_back(value);
    }
    if (values.empty()) return;
    const auto middle = values.begin() + std::ssize(values) / 2;
    std::nth_element(values.begin(), middle, values.end());
    if (*middle > 0) model.*member = *middle;
  };
  learn_one(&ReplicaModel::fixed_s);
  learn_one(&ReplicaModel::prefill_token_s);
  learn_one(&ReplicaModel::row_s);
  learn_one(&ReplicaModel::context_token_s);
  double kv_used = 0;
  int running = 0;
  for (const ReplicaFacts& one : replicas) {
    if (one.phase != ReplicaPhase::kReady) continue;
    model.slots = std::max(one.slots, 1);
    model.step_tokens = one.model.step_tokens;
    if (one.running <= 0 || !(one.kv_used >= 0 && one.kv_used <= 1)) continue;
    kv_used += one.kv_used;
    running += one.running;
  }
  if (running == 0) return;
  model.kv_each += (model.kv_each > 0 ? kNewestShare : 1) * (kv_used / running - model.kv_each);
}

void PairedPools::learn(const ServedSums& served) {
  if (served.requests() < kServedFewest) return;
  const auto requests = static_cast<double>(served.requests());
  const double output = static_cast<double>(served.output) / requests;
  shape_ = {.computed = static_cast<double>(served.computed()) / requests,
            .computed_at_percentile = served.computed_at(objective_.percentile),
            .context = static_cast<double>(served.input) / requests + output / 2,
            .output = output};
}

const PoolDecision::Roles& PairedPools::decide(const PoolFacts& facts, const Asked& asked) {
  roles_ = decided(facts, asked);
  // Infinite where a role that is needed has no replica.
  constexpr double kLateMax = 1e3 * PairDecision::kOverloaded;
  roles_.pair.first_token_late = std::min(roles_.pair.first_token_late, kLateMax);
  roles_.pair.gap_late = std::min(roles_.pair.gap_late, kLateMax);
  return roles_;
}

PoolDecision::Roles PairedPools::decided(const PoolFacts& facts, const Asked& asked) {
  PoolDecision::Roles roles{.is_paired = true, .pair = {}, .shape = {}};
  for (const ReplicaFacts& one : facts.prefill) {
    roles.prefill_ready += one.phase == ReplicaPhase::kReady ? 1 : 0;
    roles.prefill_coming += is_there(one.phase) && one.phase != ReplicaPhase::kReady ? 1 : 0;
  }
  learn(facts.replicas, model_.decode);
  learn(facts.prefill, model_.prefill);
  // They are of one model: what one role's steps take is the best guess of the other's.
  PairModel model = model_;
  const auto borrow = [](ReplicaModel& to, const ReplicaModel& from) {
    if (!to.is_known()) {
      to = from;
      return;
    }
    if (to.prefill_token_s <= 0) to.prefill_token_s = from.prefill_token_s;
    if (to.row_s <= 0) to.row_s = from.row_s;
  };
  borrow(model.prefill, model_.decode);
  borrow(model.decode, model_.prefill);
  model.prefill.slots = 1;  // prompts are computed one after the other
  learn(asked.slow.served);
  roles.shape = shape_;
  int in_hand = 0;
  for (const GatewayReport& one : facts.gateways) {
    in_hand += std::max(one.held, 0) + std::max(one.in_service, 0);
  }
  const bool any_there = std::ranges::any_of(
      facts.replicas, [](const ReplicaFacts& one) { return is_there(one.phase); });
  if (asked.decode_min == 0 && in_hand == 0 && !any_there) return roles;
  roles.is_known = model.decode.is_known() && shape_.output > 0;
  if (roles.is_known) {
    const double rate =
        asked.fast.rate > kRateRises * asked.slow.rate ? asked.fast.rate : asked.slow.rate;
    roles.rate = rate + piled_up(facts) / asked.backlog_s;
  }
  roles.pair = scaler_.decide(model, shape_, roles.rate, asked.now_ns);
  roles.pair.counts.decode = std::max(roles.pair.counts.decode, asked.decode_min);
  // Whatever has not been seen needs one of each.
  if (!roles.is_known) roles.pair.counts.prefill = std::max(roles.pair.counts.prefill, 1);
  const int left = std::max(affordable_ - roles.pair.counts.decode, prefill_min_);
  roles.pair.counts.prefill = std::min(roles.pair.counts.prefill, left);
  return roles;
}

void PairedPools::save(base::JsonWriter& w) const {
  const auto put = [&](std::string_view key, double value) {
    w.key(key);
    write_exact(w, value);
  };
  const auto put_model = [&](std::string_view key, const ReplicaModel& model) {
    w.key(key).begin_object();
    put("fixed_s", model.fixed_s);
    put("prefill_token_s", model.prefill_token_s);
    put("row_s", model.row_s);
    put("context_token_s", model.context_token_s);
    put("kv_each", model.kv_each);
    w.key("slots").integer(model.slots).key("step_tokens").integer(model.step_tokens).end_object();
  };
  w.begin_object().key("scaler");
  scaler_.save(w);
  put_model("prefill", model_.prefill);
  put_model("decode", model_.decode);
  put("computed", shape_.computed);
  put("computed_at_percentile", shape_.computed_at_percentile);
  put("context", shape_.context);
  put("output", shape_.output);
  const PairDecision& pair = roles_.pair;
  w.key("paired").boolean(roles_.is_paired).key("known").boolean(roles_.is_known);
  w.key("prefill_count").integer(pair.counts.prefill);
  w.key("decode_count").integer(pair.counts.decode);
  w.key("prefill_needed").integer(pair.needed.prefill);
  w.key("decode_needed").integer(pair.needed.decode);
  w.key("at_ceiling").boolean(pair.at_ceiling);
  put("first_token_late", pair.first_token_late);
  put("gap_late", pair.gap_late);
  put("rate", roles_.rate);
  w.key("prefill_ready").integer(roles_.prefill_ready);
  w.key("prefill_coming").integer(roles_.prefill_coming).end_object();
}

void PairedPools::load(const StateReader& state) {
  const auto number = [](const StateReader& from, std::string_view key) {
    constexpr double kMost = 1e12;
    const double value = from.number(key);
    if (!(value >= 0 && value <= kMost)) from.fail();
    return value;
  };
  const auto model = [&](const StateReader& from) {
    return ReplicaModel{.fixed_s = number(from, "fixed_s"),
                        .prefill_token_s = number(from, "prefill_token_s"),
                        .row_s = number(from, "row_s"),
                        .context_token_s = number(from, "context_token_s"),
                        .slots = std::max(from.count("slots"), 1),
                        .step_tokens = from.count("step_tokens"),
                        .kv_each = number(from, "kv_each")};
  };
  scaler_.load(state.at("scaler"));
  model_ = {.prefill = model(state.at("prefill")), .decode = model(state.at("decode"))};
  shape_ = {.computed = number(state, "computed"),
            .computed_at_percentile = number(state, "computed_at_percentile"),
            .context = number(state, "context"),
            .output = number(state, "output")};
  roles_ = {.is_paired = state.boolean("paired"),
            .is_known = state.boolean("known"),
            .pair = {.at_ceiling = state.boolean("at_ceiling"),
                     .first_token_late = number(state, "first_token_late"),
                     .gap_late = number(state, "gap_late")},
            .rate = number(state, "rate"),
            .shape = shape_,
            .prefill_ready = state.count("prefill_ready"),
            .prefill_coming = state.count("prefill_coming")};
  roles_.pair.counts = {.prefill = state.count("prefill_count"),
                        .decode = state.count("decode_count")};
  roles_.pair.needed = {.prefill = state.count("prefill_needed"),
                        .decode = state.count("decode_needed")};
}

}  // namespace pelton::autoscaler
