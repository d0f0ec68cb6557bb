// What a PoolScaler remembers, written and read: for the one that takes over.
#include <algorithm>

#include "autoscaler/pool_scaler.h"
#include "autoscaler/replica_count.h"
#include "base/json_writer.h"

namespace pelton::autoscaler {

std::string PoolScaler::state() const {
  std::string text;
  base::JsonWriter w(text);
  w.begin_object().key("demand");
  demand_.save(w);
  w.key("trend");
  trend_.save(w);
  w.key("starts");
  starts_.save(w);
  w.key("knative");
  knative_.save(w);
  w.key("greatest_need");
  greatest_need_.save(w);
  w.key("seen").begin_array();
  for (const auto& [id, ready] : seen_ready_) {
    w.begin_object().key("id").string(id).key("ready").boolean(ready).end_object();
  }
  w.end_array();
  w.key("in_panic").boolean(in_panic_).key("panic_ns").integer(panic_ns_);
  w.key("panic_max").integer(panic_max_).key("guarded_ns").integer(guarded_ns_);
  w.key("last_up_ns").integer(last_up_ns_).key("last_down_ns").integer(last_down_ns_);
  w.key("step_left").integer(step_left_).key("slots").integer(slots_);
  w.key("retirement").integer(static_cast<int64_t>(retirement_));
  w.key("retirements").integer(static_cast<int64_t>(retirements_));
  w.key("retirement_ns").integer(retirement_ns_);
  if (policy_.rule == PoolPolicy::Rule::kSlo) save_slo(w);
  w.end_object();
  return text;
}

void PoolScaler::save_slo(base::JsonWriter& w) const {
  const auto put = [&](std::string_view key, double value) {
    w.key(key);
    write_exact(w, value);
  };
  w.key("slo").begin_object();
  put("fixed_s", model_.fixed_s);
  put("prefill_token_s", model_.prefill_token_s);
  put("row_s", model_.row_s);
  put("context_token_s", model_.context_token_s);
  put("kv_tokens", model_.kv_tokens);
  put("first_token_correction", correction_.first_token);
  put("gap_correction", correction_.gap);
  w.key("slots").integer(model_.slots).key("step_tokens").integer(model_.step_tokens);
  w.key("corrected_ns").integer(corrected_ns_).end_object();
}

void PoolScaler::load_slo(const StateReader& slo) {
  model_ = {.fixed_s = slo.number("fixed_s"),
            .prefill_token_s = slo.number("prefill_token_s"),
            .row_s = slo.number("row_s"),
            .context_token_s = slo.number("context_token_s"),
            .slots = slo.count("slots"),
            .step_tokens = slo.count("step_tokens"),
            .kv_tokens = slo.number("kv_tokens")};
  constexpr double kLeast = 0.01;
  constexpr double kMost = 100;
  correction_ = {.first_token = std::clamp(slo.number("first_token_correction"), kLeast, kMost),
                 .gap = std::clamp(slo.number("gap_correction"), kLeast, kMost)};
  corrected_ns_ = slo.time("corrected_ns");
}

void PoolScaler::load(StateReader state) {
  if (policy_.rule == PoolPolicy::Rule::kSlo && state.optional("slo") != nullptr) {
    load_slo(state.at("slo"));
  }
  demand_.load(state.at("demand"));
  trend_.load(state.at("trend"));
  starts_.load(state.at("starts"));
  knative_.load(state.at("knative"));
  greatest_need_.load(state.at("greatest_need"));
  state.each("seen", kReplicasMax,
             [&](StateReader one) { seen_ready_[one.text("id")] = one.boolean("ready"); });
  in_panic_ = state.boolean("in_panic");
  panic_ns_ = state.time("panic_ns");
  panic_max_ = state.count("panic_max");
  guarded_ns_ = state.time("guarded_ns");
  last_up_ns_ = state.time("last_up_ns");
  last_down_ns_ = state.time("last_down_ns");
  step_left_ = state.count("step_left");
  slots_ = state.count("slots");
  retirement_ = state.bits("retirement");
  retirements_ = state.bits("retirements");
  retirement_ns_ = state.time("retirement_ns");
}

Result<void> PoolScaler::restore(std::string_view state) {
  TRY_ASSIGN(const Json json, Json::parse(state));
  // Into another one first, as half a state would be worse than none.
  PoolScaler probe(policy_);
  bool ok = true;
  probe.load({&json, ok});
  if (!ok) return Error{ErrorCode::kInvalidArgument, "this is no state of a decider", {}};
  seen_ready_.clear();
  load({&json, ok});
  return {};
}

}  // namespace pelton::autoscaler
