#include "launch/exchange.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "autoscaler/facts_log.h"
#include "base/json.h"
#include "base/json_writer.h"

namespace pelton::launch {
namespace {

using autoscaler::PoolPhase;

constexpr size_t kAddressesMax = 10'000;
constexpr size_t kPoolsMax = 1'000;
constexpr int64_t kCountMax = 1'000'000;

Error not_ours(const char* what) {
  return {ErrorCode::kInvalidArgument, what, {}};
}

void write_addresses(base::JsonWriter& w, const std::vector<ScaledFleet::Address>& addresses) {
  w.begin_array();
  for (const ScaledFleet::Address& one : addresses) {
    w.begin_object().key("pool").string(one.pool).key("host").string(one.host);
    w.key("port").integer(one.port).end_object();
  }
  w.end_array();
}

// The members of a list of objects; an error for what is none, or too long.
Result<const Json::Array*> objects(const Json& json, std::string_view key, size_t most) {
  const Json* list = json.find(key);
  const bool is_one =
      list != nullptr && list->is_array() && list->as_array().size() <= most &&
      std::ranges::all_of(list->as_array(), [](const Json& one) { return one.is_object(); });
  if (!is_one) return not_ours("a list of the exchange is missing, or none");
  return &list->as_array();
}

Result<ScaledFleet::Address> read_address(const Json& json) {
  constexpr int64_t kPortMax = 65'535;
  const std::optional<int64_t> port = json.integer("port");
  ScaledFleet::Address address{.pool = json.string("pool").value_or(""),
                               .host = json.string("host").value_or("")};
  if (address.pool.empty() || address.host.empty() || !port || *port < 1 || *port > kPortMax) {
    return not_ours("an address of the exchange has no pool, host or port");
  }
  address.port = static_cast<int>(*port);
  return address;
}

Result<std::vector<ScaledFleet::Address>> read_addresses(const Json& json, std::string_view key) {
  TRY_ASSIGN(const Json::Array* const list, objects(json, key, kAddressesMax));
  std::vector<ScaledFleet::Address> addresses;
  for (const Json& one : *list) {
    TRY_ASSIGN(ScaledFleet::Address address, read_address(one));
    addresses.push_back(std::move(address));
  }
  return addresses;
}

// Absent where whoever sends it has none to name.
Result<std::vector<std::string>> read_names(const Json& json, std::string_view key) {
  std::vector<std::string> names;
  const Json* const list = json.find(key);
  if (list == nullptr) return names;
  if (!list->is_array() || list->as_array().size() > kPoolsMax) {
    return not_ours("a list of the exchange is none, or too long");
  }
  for (const Json& one : list->as_array()) {
    if (!one.is_string()) return not_ours("a name of the exchange is none");
    names.push_back(one.as_string());
  }
  return names;
}

std::optional<PoolPhase> phase_of(std::string_view name) {
  for (const PoolPhase phase : {PoolPhase::kCold, PoolPhase::kStarting, PoolPhase::kReady}) {
    if (autoscaler::pool_phase_name(phase) == name) return phase;
  }
  return std::nullopt;
}

double seconds_of(const Json& json, std::string_view key) {
  constexpr double kMost = 1e7;
  return std::clamp(json.number(key).value_or(0), 0.0, kMost);
}

int count_of(const Json& json, std::string_view key) {
  return static_cast<int>(std::clamp<int64_t>(json.integer(key).value_or(0), 0, kCountMax));
}

// Of a worker that says nothing of its steps: none.
autoscaler::ReplicaModel read_model(const Json& worker) {
  const Json* json = worker.find("model");
  if (json == nullptr) return {};
  return {.fixed_s = seconds_of(*json, "fixed_s"),
          .prefill_token_s = seconds_of(*json, "prefill_token_s"),
          .row_s = seconds_of(*json, "row_s"),
          .context_token_s = seconds_of(*json, "context_token_s"),
          .slots = std::max(count_of(*json, "slots"), 1),
          .step_tokens = count_of(*json, "step_tokens")};
}

void write_model(base::JsonWriter& w, const autoscaler::ReplicaModel& model) {
  if (!model.is_known()) return;
  w.key("model").begin_object().key("fixed_s").number(model.fixed_s);
  w.key("prefill_token_s").number(model.prefill_token_s).key("row_s").number(model.row_s);
  w.key("context_token_s").number(model.context_token_s).key("slots").integer(model.slots);
  w.key("step_tokens").integer(model.step_tokens).end_object();
}

ScaledFleet::Worker read_worker(const Json& json) {
  return {.host = json.string("host").value_or(""),
          .port = count_of(json, "port"),
          .is_ready = json.boolean("ready").value_or(false),
          .is_silent = json.boolean("silent").value_or(true),
          .lacks = json.string("lacks").value_or(""),
          .slots = std::max(count_of(json, "slots"), 1),
          .open = count_of(json, "open"),
          .running = count_of(json, "running"),
          .waiting = count_of(json, "waiting"),
          .kv_used = std::clamp(json.number("kv_used").value_or(0), 0.0, 1.0),
          .model = read_model(json)};
}

void write_worker(base::JsonWriter& w, const ScaledFleet::Worker& one) {
  w.begin_object().key("host").string(one.host).key("port").integer(one.port);
  w.key("ready").boolean(one.is_ready).key("silent").boolean(one.is_silent);
  if (!one.lacks.empty()) w.key("lacks").string(one.lacks);
  w.key("slots").integer(one.slots).key("open").integer(one.open);
  w.key("running").integer(one.running).key("waiting").integer(one.waiting);
  w.key("kv_used").number(one.kv_used);
  write_model(w, one.model);
  w.end_object();
}

}  // namespace

std::string order_body(const ExchangeOrder& order) {
  std::string body;
  base::JsonWriter w(body);
  w.begin_object().key("epoch").integer(static_cast<int64_t>(order.epoch));
  w.key("advises").boolean(order.advises).key("launched");
  write_addresses(w, order.launched);
  w.key("draining");
  write_addresses(w, order.draining);
  w.key("released");
  write_addresses(w, order.released);
  w.key("unknown").begin_array();
  for (const std::string& pool : order.unknown) w.string(pool);
  w.end_array().key("pools").begin_array();
  for (const ExchangeOrder::Pool& one : order.pools) {
    w.begin_object().key("pool").string(one.name);
    w.key("retirement").integer(static_cast<int64_t>(one.retirement));
    w.key("state").string(autoscaler::pool_phase_name(one.announcement.phase));
    w.key("eta_s").number(one.announcement.eta_s);
    w.key("failure").string(one.announcement.failure);
    w.key("again_s").number(one.announcement.again_s).end_object();
  }
  w.end_array().end_object();
  return body;
}

Result<ExchangeOrder> parse_order_body(std::string_view body) {
  TRY_ASSIGN(const Json json, Json::parse(body));
  const std::optional<int64_t> epoch = json.integer("epoch");
  if (!epoch || *epoch < 0) return not_ours("the exchange has no epoch");
  ExchangeOrder order{.epoch = static_cast<uint64_t>(*epoch),
                      .advises = json.boolean("advises").value_or(false)};
  TRY_ASSIGN(order.launched, read_addresses(json, "launched"));
  TRY_ASSIGN(order.draining, read_addresses(json, "draining"));
  // An autoscaler of an earlier version does not say it.
  if (json.find("released") != nullptr) {
    TRY_ASSIGN(order.released, read_addresses(json, "released"));
  }
  TRY_ASSIGN(order.unknown, read_names(json, "unknown"));
  TRY_ASSIGN(const Json::Array* const pools, objects(json, "pools", kPoolsMax));
  for (const Json& one : *pools) {
    const std::optional<PoolPhase> phase = phase_of(one.string("state").value_or(""));
    const std::optional<int64_t> retirement = one.integer("retirement");
    ExchangeOrder::Pool pool{.name = one.string("pool").value_or("")};
    if (pool.name.empty() || !phase || !retirement || *retirement < 0) {
      return not_ours("a pool of the exchange has no name, state or retirement");
    }
    pool.retirement = static_cast<uint64_t>(*retirement);
    pool.announcement = {.phase = *phase,
                         .eta_s = seconds_of(one, "eta_s"),
                         .failure = one.string("failure").value_or(""),
                         .again_s = seconds_of(one, "again_s")};
    order.pools.push_back(std::move(pool));
  }
  return order;
}

std::string report_body(const ExchangeReport& report) {
  std::string body;
  base::JsonWriter w(body);
  w.begin_object().key("pools").begin_array();
  for (const ExchangeReport::Pool& one : report.pools) {
    w.begin_object().key("pool").string(one.name);
    if (one.report) {
      w.key("report");
      autoscaler::write_report(w, *one.report);
    }
    w.key("workers").begin_array();
    for (const ScaledFleet::Worker& worker : one.workers) write_worker(w, worker);
    w.end_array().end_object();
  }
  w.end_array().end_object();
  return body;
}

Result<ExchangeReport> parse_report_body(std::string_view body) {
  TRY_ASSIGN(const Json json, Json::parse(body));
  TRY_ASSIGN(const Json::Array* const pools, objects(json, "pools", kPoolsMax));
  ExchangeReport report;
  for (const Json& one : *pools) {
    ExchangeReport::Pool pool{.name = one.string("pool").value_or("")};
    if (const Json* said = one.find("report"); said != nullptr) {
      pool.report = autoscaler::read_report(*said);
      if (!pool.report) return not_ours("a report of the exchange is none");
    }
    TRY_ASSIGN(const Json::Array* const workers, objects(one, "workers", kAddressesMax));
    for (const Json& worker : *workers) pool.workers.push_back(read_worker(worker));
    report.pools.push_back(std::move(pool));
  }
  return report;
}

}  // namespace pelton::launch
