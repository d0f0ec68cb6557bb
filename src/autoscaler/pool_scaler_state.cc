// What a PoolScaler remembers, written and read: for the one that takes over.
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
  w.key("has_begun").boolean(has_begun_).key("found_ns").integer(found_ns_);
  w.key("in_panic").boolean(in_panic_).key("panic_ns").integer(panic_ns_);
  w.key("panic_max").integer(panic_max_).key("guarded_ns").integer(guarded_ns_);
  w.key("last_up_ns").integer(last_up_ns_).key("last_down_ns").integer(last_down_ns_);
  w.key("last_drain_ns").integer(last_drain_ns_);
  w.key("step_left").integer(step_left_).key("slots").integer(slots_);
  w.key("retirement").integer(static_cast<int64_t>(retirement_));
  w.key("retirements").integer(static_cast<int64_t>(retirements_));
  w.key("retirement_ns").integer(retirement_ns_);
  if (policy_.rule == PoolPolicy::Rule::kSlo) {
    w.key("slo");
    slo_tracker_.save(w);
  }
  if (pair_) {
    w.key("pair");
    pair_->save(w);
  }
  w.end_object();
  return text;
}

void PoolScaler::load(StateReader state) {
  if (policy_.rule == PoolPolicy::Rule::kSlo && state.optional("slo") != nullptr) {
    slo_tracker_.load(state.at("slo"));
  }
  if (pair_ && state.optional("pair") != nullptr) pair_->load(state.at("pair"));
  demand_.load(state.at("demand"));
  trend_.load(state.at("trend"));
  starts_.load(state.at("starts"));
  knative_.load(state.at("knative"));
  greatest_need_.load(state.at("greatest_need"));
  state.each("seen", kReplicasMax,
             [&](StateReader one) { seen_ready_[one.text("id")] = one.boolean("ready"); });
  // States written before 2026-11-29 have neither: theirs had begun.
  has_begun_ = state.optional("has_begun") == nullptr || state.boolean("has_begun");
  found_ns_ = state.optional("found_ns") == nullptr ? -1 : state.time("found_ns");
  in_panic_ = state.boolean("in_panic");
  panic_ns_ = state.time("panic_ns");
  panic_max_ = state.count("panic_max");
  guarded_ns_ = state.time("guarded_ns");
  last_up_ns_ = state.time("last_up_ns");
  last_down_ns_ = state.time("last_down_ns");
  // States written before 2026-11-29 have none.
  const bool has_drain = state.optional("last_drain_ns") != nullptr;
  last_drain_ns_ = has_drain ? state.time("last_drain_ns") : last_down_ns_;
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
