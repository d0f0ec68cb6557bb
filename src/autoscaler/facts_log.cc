#include "autoscaler/facts_log.h"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "autoscaler/state_json.h"
#include "base/json.h"

namespace pelton::autoscaler {
namespace {

constexpr size_t kReplicasInALine = 10'000;
constexpr size_t kGatewaysInALine = 1'000;
constexpr int64_t kCountMax = int64_t{1} << 53;
constexpr int kEachMax = 50'000;  // requests at a replica: the sum over all of them fits

// Members but those that have their default.
class Members {
 public:
  explicit Members(base::JsonWriter& w) : w_(w) { w_.begin_object(); }
  void put(std::string_view key, int64_t value, int64_t otherwise = 0) {
    if (value != otherwise) w_.key(key).integer(value);
  }
  void put_number(std::string_view key, double value, double otherwise = 0) {
    if (value == otherwise) return;
    w_.key(key);
    write_exact(w_, value);
  }
  void put_optional(std::string_view key, std::optional<double> value) {
    if (!value) return;
    w_.key(key);
    write_exact(w_, *value);
  }
  void put_flag(std::string_view key, bool value, bool otherwise) {
    if (value != otherwise) w_.key(key).boolean(value);
  }
  void end() { w_.end_object(); }

 private:
  base::JsonWriter& w_;
};

// The reverse: what is absent has its default.
class MemberReader {
 public:
  MemberReader(const Json& json, bool& ok) : json_(json), ok_(ok) {
    if (!json.is_object()) ok_ = false;
  }
  int64_t integer(std::string_view key, int64_t least, int64_t most, int64_t otherwise = 0) const {
    const Json* value = json_.find(key);
    if (value == nullptr) return otherwise;
    if (value->is_integer() && value->as_integer() >= least && value->as_integer() <= most) {
      return value->as_integer();
    }
    ok_ = false;
    return otherwise;
  }
  int64_t time(std::string_view key) const {
    return integer(key, -StateReader::kTimeMax, StateReader::kTimeMax);
  }
  uint64_t bits(std::string_view key) const {
    return static_cast<uint64_t>(
        integer(key, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()));
  }
  int small(std::string_view key, int otherwise = 0) const {
    return static_cast<int>(integer(key, -1, kEachMax, otherwise));
  }
  double number(std::string_view key, double otherwise = 0) const {
    const Json* value = json_.find(key);
    return value == nullptr ? otherwise : read_exact(*value, ok_);
  }
  std::optional<double> optional(std::string_view key) const {
    if (json_.find(key) == nullptr) return std::nullopt;
    return number(key);
  }
  bool flag(std::string_view key, bool otherwise) const {
    const Json* value = json_.find(key);
    if (value == nullptr) return otherwise;
    if (value->is_bool()) return value->as_bool();
    ok_ = false;
    return otherwise;
  }
  bool has(std::string_view key) const { return json_.find(key) != nullptr; }
  std::string text(std::string_view key) const {
    const Json* value = json_.find(key);
    if (value != nullptr && value->is_string()) return value->as_string();
    ok_ = false;
    return {};
  }
  ServedSums served(std::string_view key) const {
    const Json* value = json_.find(key);
    return value == nullptr ? ServedSums{} : ServedSums::read(*value, ok_);
  }
  // An object; of one that is absent all has its default.
  MemberReader at(std::string_view key) const {
    static const Json kNothing = Json::parse("{}").value();
    const Json* value = json_.find(key);
    return {value == nullptr ? kNothing : *value, ok_};
  }
  template <typename Read>
  void each(std::string_view key, size_t most, const Read& read) const {
    const Json* value = json_.find(key);
    if (value == nullptr || !value->is_array() || value->as_array().size() > most) {
      ok_ = false;
      return;
    }
    for (const Json& one : value->as_array()) read(MemberReader(one, ok_));
  }

 private:
  const Json& json_;
  bool& ok_;
};

void write_schedule(base::JsonWriter& w, const Schedule& one) {
  w.begin_object().key("days").integer(one.days).key("from").integer(one.from_minute);
  w.key("to").integer(one.to_minute).key("offset").integer(one.utc_offset_minutes);
  if (one.replicas_min) w.key("min").integer(*one.replicas_min);
  if (one.replicas_max) w.key("max").integer(*one.replicas_max);
  // As it was then: the machine that decides again may have another edition of the zones.
  if (!one.zone.name.empty()) {
    w.key("zone").string(one.zone.name).key("zone_offset_s").integer(one.zone.offset_s);
    w.key("zone_changes").begin_array();
    for (const base::TimeZone::Change& change : one.zone.changes) {
      w.begin_object().key("at").integer(change.at_s).key("offset_s").integer(change.offset_s);
      w.end_object();
    }
    w.end_array();
  }
  w.end_object();
}

void write_policy(base::JsonWriter& w, const PoolPolicy& policy) {
  Members members(w);
  members.put_flag("kpa", policy.rule == PoolPolicy::Rule::kKnative, false);
  if (policy.rule == PoolPolicy::Rule::kSlo) {
    members.put_optional("first_token_s", policy.slo.first_token_s);
    members.put_optional("gap_s", policy.slo.gap_s);
    members.put_number("percentile", policy.slo.percentile, -1);
  }
  members.put("min", policy.replicas_min);
  members.put("max", policy.replicas_max);
  members.put_number("window_s", policy.window_s);
  members.put_number("panic_window_share", policy.panic_window_share);
  members.put_number("panic_threshold", policy.panic_threshold);
  members.put_optional("concurrency_target", policy.concurrency_target);
  members.put_optional("target_utilization", policy.target_utilization);
  members.put_optional("scale_down_delay_s", policy.scale_down_delay_s);
  members.put_number("scale_down_rate_max", policy.scale_down_rate_max);
  members.put_optional("backlog_s", policy.backlog_s);
  members.put_number("idle_to_zero_s", policy.idle_to_zero_s);
  members.put("standby", policy.standby);
  members.put("gpus_each", policy.gpus_each);
  if (policy.gpus_max) members.put("gpus_max", *policy.gpus_max);
  members.put_number("price_each", policy.price_each);
  members.put_optional("price_max", policy.price_max);
  if (policy.prefill) {
    w.key("prefill").begin_object().key("min").integer(policy.prefill->replicas_min);
    w.key("max").integer(policy.prefill->replicas_max).end_object();
  }
  w.key("schedules").begin_array();
  for (const Schedule& one : policy.schedules) write_schedule(w, one);
  w.end_array();
  members.end();
}

base::TimeZone read_zone(const MemberReader& in, bool& ok) {
  constexpr size_t kChangesMax = 8192;
  constexpr int64_t kOffsetMax_s = 48 * 3600;
  base::TimeZone zone{.name = in.text("zone")};
  zone.offset_s = static_cast<int>(in.integer("zone_offset_s", -kOffsetMax_s, kOffsetMax_s));
  in.each("zone_changes", kChangesMax, [&](const MemberReader& one) {
    zone.changes.push_back(
        {one.time("at"), static_cast<int>(one.integer("offset_s", -kOffsetMax_s, kOffsetMax_s))});
    ok = ok && (zone.changes.size() < 2 ||
                zone.changes[zone.changes.size() - 2].at_s < zone.changes.back().at_s);
  });
  ok = ok && !zone.name.empty();
  return zone;
}

PoolPolicy read_policy(const Json& json, bool& ok) {
  constexpr int64_t kMost = 1'000'000;  // check() says more
  const MemberReader in(json, ok);
  PoolPolicy policy;
  const auto count = [&](const MemberReader& of, std::string_view key) {
    return static_cast<int>(of.integer(key, -kMost, kMost));
  };
  policy.rule = in.flag("kpa", false) ? PoolPolicy::Rule::kKnative : PoolPolicy::Rule::kConcurrency;
  if (json.find("percentile") != nullptr) {
    policy.rule = PoolPolicy::Rule::kSlo;
    policy.slo = {.first_token_s = in.optional("first_token_s"),
                  .gap_s = in.optional("gap_s"),
                  .percentile = in.number("percentile")};
  }
  policy.replicas_min = count(in, "min");
  policy.replicas_max = count(in, "max");
  policy.window_s = in.number("window_s");
  policy.panic_window_share = in.number("panic_window_share");
  policy.panic_threshold = in.number("panic_threshold");
  policy.concurrency_target = in.optional("concurrency_target");
  policy.target_utilization = in.optional("target_utilization");
  policy.scale_down_delay_s = in.optional("scale_down_delay_s");
  policy.scale_down_rate_max = in.number("scale_down_rate_max");
  policy.backlog_s = in.optional("backlog_s");
  policy.idle_to_zero_s = in.number("idle_to_zero_s");
  policy.standby = count(in, "standby");
  policy.gpus_each = count(in, "gpus_each");
  if (json.find("gpus_max") != nullptr) policy.gpus_max = count(in, "gpus_max");
  policy.price_each = in.number("price_each");
  policy.price_max = in.optional("price_max");
  if (json.is_object() && json.find("prefill") != nullptr) {
    const MemberReader prefill = in.at("prefill");
    policy.prefill = {.replicas_min = count(prefill, "min"), .replicas_max = count(prefill, "max")};
  }
  in.each("schedules", 64, [&](const MemberReader& one) {
    Schedule schedule{.days = static_cast<uint8_t>(one.integer("days", 0, Schedule::kEveryDay)),
                      .from_minute = count(one, "from"),
                      .to_minute = count(one, "to"),
                      .utc_offset_minutes = count(one, "offset")};
    const int64_t none = -kMost;
    if (const int64_t least = one.integer("min", 0, kMost, none); least != none) {
      schedule.replicas_min = static_cast<int>(least);
    }
    if (const int64_t most = one.integer("max", 0, kMost, none); most != none) {
      schedule.replicas_max = static_cast<int>(most);
    }
    if (one.has("zone")) schedule.zone = read_zone(one, ok);
    policy.schedules.push_back(schedule);
  });
  return policy;
}

GatewayReport read_gateway(const MemberReader& in) {
  constexpr int64_t kHeldMax = 1'000'000;
  return {.gateway = in.text("gateway"),
          .incarnation = in.bits("incarnation"),
          .sequence = in.bits("sequence"),
          .requests = in.integer("requests", -kCountMax, kCountMax),
          .finished = in.integer("finished", -kCountMax, kCountMax),
          .in_service_s = in.number("in_service_s"),
          .held_s = in.number("held_s"),
          .in_service = static_cast<int>(in.integer("in_service", -1, kHeldMax)),
          .held = static_cast<int>(in.integer("held", -1, kHeldMax)),
          .served = in.served("served"),
          .holds_for = in.bits("holds_for"),
          .at_ns = in.time("at_ns")};
}

void write_model(base::JsonWriter& w, const ReplicaModel& model) {
  if (model == ReplicaModel{}) return;
  w.key("model");
  Members members(w);
  members.put_number("fixed_s", model.fixed_s);
  members.put_number("prefill_token_s", model.prefill_token_s);
  members.put_number("row_s", model.row_s);
  members.put_number("context_token_s", model.context_token_s);
  members.put("slots", model.slots, 1);
  members.put("step_tokens", model.step_tokens);
  members.end();
}

ReplicaModel read_model(const MemberReader& in) {
  constexpr int64_t kTokensMax = int64_t{1} << 30;
  return {.fixed_s = in.number("fixed_s"),
          .prefill_token_s = in.number("prefill_token_s"),
          .row_s = in.number("row_s"),
          .context_token_s = in.number("context_token_s"),
          .slots = in.small("slots", 1),
          .step_tokens = static_cast<int>(in.integer("step_tokens", 0, kTokensMax))};
}

void write_replica(base::JsonWriter& w, const ReplicaFacts& one) {
  Members members(w);
  w.key("id").string(one.id).key("phase").integer(static_cast<int>(one.phase));
  members.put("ordered_ns", one.ordered_ns);
  members.put("progress_ns", one.progress_ns);
  members.put("ready_ns", one.ready_ns);
  members.put("slots", one.slots, 1);
  members.put("running", one.running);
  members.put("waiting", one.waiting);
  members.put_number("kv_used", one.kv_used);
  members.put_number("price", one.price);
  write_model(w, one.model);
  members.put_number("kept_value", one.kept_value);
  members.put_flag("reclaimed", one.reclaimed, false);
  members.put_flag("healthy", one.healthy, true);
  members.put_flag("stands_by", one.stands_by, false);
  members.put_flag("found", one.found, false);
  members.end();
}

ReplicaFacts read_replica(const MemberReader& in) {
  constexpr int kLastPhase = static_cast<int>(ReplicaPhase::kDraining);
  return {.id = in.text("id"),
          .phase = static_cast<ReplicaPhase>(in.integer("phase", 0, kLastPhase)),
          .ordered_ns = in.time("ordered_ns"),
          .progress_ns = in.time("progress_ns"),
          .ready_ns = in.time("ready_ns"),
          .slots = in.small("slots", 1),
          .running = in.small("running"),
          .waiting = in.small("waiting"),
          .kv_used = in.number("kv_used"),
          .model = read_model(in.at("model")),
          .price = in.number("price"),
          .kept_value = in.number("kept_value"),
          .reclaimed = in.flag("reclaimed", false),
          .healthy = in.flag("healthy", true),
          .stands_by = in.flag("stands_by", false),
          .found = in.flag("found", false)};
}

void write_facts(base::JsonWriter& w, const PoolFacts& facts) {
  w.begin_object().key("unix_s").integer(facts.unix_s);
  w.key("slots_assumed").integer(facts.slots_assumed);
  w.key("service_s_assumed");
  write_exact(w, facts.service_s_assumed);
  w.key("start_s_assumed");
  write_exact(w, facts.start_s_assumed);
  if (facts.wanted) w.key("wanted").integer(*facts.wanted);
  if (facts.room) w.key("room").integer(*facts.room);
  if (facts.most) w.key("most").integer(*facts.most);
  if (!facts.prefill.empty()) {
    w.key("prefill").begin_array();
    for (const ReplicaFacts& one : facts.prefill) write_replica(w, one);
    w.end_array();
  }
  w.key("start_again_ns").integer(facts.start_again_ns).key("gateways").begin_array();
  for (const GatewayReport& one : facts.gateways) write_report(w, one);
  w.end_array().key("replicas").begin_array();
  for (const ReplicaFacts& one : facts.replicas) write_replica(w, one);
  w.end_array().end_object();
}

PoolFacts read_facts(const Json& json, bool& ok) {
  const MemberReader in(json, ok);
  PoolFacts facts{.slots_assumed = in.small("slots_assumed", 1),
                  .service_s_assumed = in.number("service_s_assumed"),
                  .start_s_assumed = in.number("start_s_assumed"),
                  .start_again_ns = in.time("start_again_ns"),
                  .unix_s = in.time("unix_s")};
  if (!json.is_object()) return facts;
  if (json.find("wanted") != nullptr) facts.wanted = in.small("wanted", 0);
  if (json.find("room") != nullptr) facts.room = in.small("room", 0);
  if (json.find("most") != nullptr) facts.most = in.small("most", 0);
  if (json.find("prefill") != nullptr) {
    in.each("prefill", kReplicasInALine,
            [&](const MemberReader& one) { facts.prefill.push_back(read_replica(one)); });
  }
  // Nobody assumes what is no time.
  if (!(facts.service_s_assumed >= 0 && facts.service_s_assumed < 1e9)) ok = false;
  if (!(facts.start_s_assumed >= 0 && facts.start_s_assumed < 1e8)) ok = false;
  in.each("gateways", kGatewaysInALine,
          [&](const MemberReader& one) { facts.gateways.push_back(read_gateway(one)); });
  in.each("replicas", kReplicasInALine,
          [&](const MemberReader& one) { facts.replicas.push_back(read_replica(one)); });
  return facts;
}

void write_ids(base::JsonWriter& w, std::string_view key, const std::vector<std::string>& ids) {
  if (ids.empty()) return;
  w.key(key).begin_array();
  for (const std::string& id : ids) w.string(id);
  w.end_array();
}

void write_decision(base::JsonWriter& w, const PoolDecision& decision) {
  w.begin_object().key("desired").integer(decision.desired);
  w.key("reason").string(reason_name(decision.reason)).key("start").integer(decision.start);
  if (decision.start_standby > 0) w.key("start_standby").integer(decision.start_standby);
  write_ids(w, "wake", decision.wake);
  write_ids(w, "recall", decision.recall);
  write_ids(w, "drain", decision.drain);
  write_ids(w, "dismiss", decision.dismiss);
  if (decision.retirement != 0) {
    w.key("retirement").integer(static_cast<int64_t>(decision.retirement));
  }
  w.key("alarm").boolean(decision.alarm).key("terms");
  write_terms(w, decision.terms);
  w.end_object();
}

void write_slo(base::JsonWriter& w, const PoolDecision::Slo& slo) {
  w.key("slo")
      .begin_object()
      .key("missed")
      .boolean(slo.is_missed)
      .key("ttft_s")
      .number(slo.first_token_s);
  w.key("itl_s").number(slo.gap_s);
  w.key("ttft_correction").number(slo.correction.first_token);
  w.key("itl_correction").number(slo.correction.gap);
  w.key("computed_tokens").number(slo.shape.computed).key("output_tokens").number(slo.shape.output);
  w.key("ttft_unattainable").boolean(slo.first_token_unattainable);
  w.key("itl_unattainable").boolean(slo.gap_unattainable).end_object();
}

void write_roles(base::JsonWriter& w, const PoolDecision::Roles& roles) {
  const PairDecision& pair = roles.pair;
  w.key("prefill").integer(pair.counts.prefill).key("decode").integer(pair.counts.decode);
  w.key("prefill_needed").integer(pair.needed.prefill);
  w.key("decode_needed").integer(pair.needed.decode);
  w.key("prefill_ready").integer(roles.prefill_ready);
  w.key("prefill_coming").integer(roles.prefill_coming);
  w.key("at_ceiling").boolean(pair.at_ceiling).key("roles_known").boolean(roles.is_known);
  w.key("ttft_late").number(pair.first_token_late).key("itl_late").number(pair.gap_late);
  w.key("computed_tokens").number(roles.shape.computed);
  w.key("output_tokens").number(roles.shape.output);
}

Error not_ours(std::string what) {
  return {ErrorCode::kInvalidArgument, std::move(what), {}};
}

}  // namespace

void write_report(base::JsonWriter& w, const GatewayReport& one) {
  w.begin_object().key("gateway").string(one.gateway);
  w.key("incarnation").integer(static_cast<int64_t>(one.incarnation));
  w.key("sequence").integer(static_cast<int64_t>(one.sequence));
  w.key("requests").integer(one.requests).key("finished").integer(one.finished);
  w.key("in_service_s");
  write_exact(w, one.in_service_s);
  w.key("held_s");
  write_exact(w, one.held_s);
  w.key("in_service").integer(one.in_service).key("held").integer(one.held);
  if (!one.served.is_empty()) {
    w.key("served");
    one.served.write(w);
  }
  w.key("holds_for").integer(static_cast<int64_t>(one.holds_for));
  w.key("at_ns").integer(one.at_ns).end_object();
}

std::optional<GatewayReport> read_report(const Json& json) {
  bool ok = true;
  GatewayReport report = read_gateway(MemberReader(json, ok));
  if (!ok) return std::nullopt;
  return report;
}

void write_terms(base::JsonWriter& w, const PoolDecision::Terms& terms) {
  w.begin_object();
  w.key("rate_fast").number(terms.rate_fast).key("rate_slow").number(terms.rate_slow);
  w.key("rate").number(terms.rate).key("service_s").number(terms.service_s);
  w.key("concurrency_target").number(terms.concurrency_target);
  w.key("flow").number(terms.flow).key("backlog").number(terms.backlog);
  w.key("backlog_ahead").number(terms.backlog_ahead);
  w.key("by_flow").integer(terms.by_flow).key("by_demand").integer(terms.by_demand);
  w.key("by_panic").integer(terms.by_panic).key("by_forecast").integer(terms.by_forecast);
  w.key("by_guard").integer(terms.by_guard).key("over_delay").integer(terms.over_delay);
  w.key("start_s_p90").number(terms.start_s_p90);
  w.key("ready").integer(terms.ready).key("coming").integer(terms.coming);
  w.key("draining").integer(terms.draining).key("standby").integer(terms.standby);
  w.key("held").integer(terms.held).key("waiting").integer(terms.waiting);
  if (terms.slo.is_known) write_slo(w, terms.slo);
  if (terms.roles.is_paired) write_roles(w, terms.roles);
  w.end_object();
}

std::string begin_line(std::string_view pool, const PoolPolicy& policy, std::string_view state) {
  std::string line;
  base::JsonWriter w(line);
  w.begin_object().key("pool").string(pool).key("begins").integer(1).key("policy");
  write_policy(w, policy);
  w.key("state");
  if (state.empty()) {
    w.null();
  } else {
    w.raw(state);
  }
  w.end_object();
  return line;
}

std::string decision_line(std::string_view pool, int64_t now_ns, const PoolFacts& facts,
                          const PoolDecision& decision) {
  std::string line;
  base::JsonWriter w(line);
  w.begin_object().key("pool").string(pool).key("now_ns").integer(now_ns).key("facts");
  write_facts(w, facts);
  w.key("decision");
  write_decision(w, decision);
  w.end_object();
  return line;
}

Result<FactsReplay::Outcome> FactsReplay::feed(std::string_view line) {
  Outcome outcome;
  if (line.empty()) return outcome;
  TRY_ASSIGN(const Json json, Json::parse(line));
  const std::optional<std::string> pool = json.string("pool");
  if (!pool) return not_ours("this is no line of recorded facts: it names no pool");
  outcome.pool = *pool;
  bool ok = true;
  if (const Json* policy = json.find("policy"); policy != nullptr) {
    const PoolPolicy read = read_policy(*policy, ok);
    if (!ok) return not_ours("its policy is none");
    TRY(read.check());
    auto scaler = std::make_unique<PoolScaler>(read);
    const Json* state = json.find("state");
    if (state != nullptr && !state->is_null()) TRY(scaler->restore(state->dump()));
    scalers_[*pool] = std::move(scaler);
    outcome.policy = read;
    return outcome;
  }
  const auto scaler = scalers_.find(*pool);
  if (scaler == scalers_.end()) {
    return not_ours(fmt::format("nothing says under which policy '{}' is scaled", *pool));
  }
  const Json* facts = json.find("facts");
  const std::optional<int64_t> now_ns = json.integer("now_ns");
  if (facts == nullptr || !now_ns || *now_ns < 0 || *now_ns > StateReader::kTimeMax) {
    return not_ours("it has no facts, or no time");
  }
  PoolFacts read = read_facts(*facts, ok);
  if (!ok) return not_ours("its facts are none");
  outcome.is_decision = true;
  outcome.now_ns = *now_ns;
  outcome.decision = scaler->second->decide(read, *now_ns);
  outcome.line = decision_line(*pool, *now_ns, read, outcome.decision);
  outcome.is_equal = outcome.line == line;
  outcome.facts = std::move(read);
  return outcome;
}

}  // namespace pelton::autoscaler
