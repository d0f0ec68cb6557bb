#include "cluster/envelope.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/json.h"
#include "base/json_writer.h"

namespace pelton::cluster {
namespace {

constexpr int64_t kCountMax = int64_t{1} << 40;
constexpr double kSecondsMax = 1e6;
constexpr size_t kItemsMax = 256;
constexpr size_t kAdapterNamesMax = 16384;

Error bad_field(std::string_view field, std::string_view what) {
  return Error{ErrorCode::kInvalidArgument, fmt::format("'{}' {}", field, what),
               std::string(field)};
}

// The members of one JSON object by name; the first that is wrong is what finish() returns.
class Fields {
 public:
  explicit Fields(const Json& json) : json_(json) {}

  void read(std::string_view name, std::string& into) {
    if (const Json* value = find(name, &Json::is_string, "must be a string")) {
      into = value->as_string();
    }
  }
  void read(std::string_view name, bool& into) {
    if (const Json* value = find(name, &Json::is_bool, "must be true or false")) {
      into = value->as_bool();
    }
  }
  template <typename Integer>
  void read_count(std::string_view name, Integer& into, int64_t most = kCountMax) {
    const Json* value = find(name, &Json::is_integer, "must be a whole number");
    if (value == nullptr) return;
    if (value->as_integer() < 0 || value->as_integer() > most) {
      return fail(bad_field(name, fmt::format("must be from 0 to {}", most)));
    }
    into = static_cast<Integer>(value->as_integer());
  }
  void read_counts(std::string_view name, std::vector<int>& into, int most) {
    const Json* list = find(name, &Json::is_array, "must be an array");
    if (list == nullptr) return;
    for (const Json& item : list->as_array()) {
      const bool fits = item.is_integer() && item.as_integer() >= 0 && item.as_integer() <= most;
      if (!fits || into.size() == kItemsMax) {
        return fail(bad_field(
            name, fmt::format("must hold at most {} numbers from 0 to {}", kItemsMax, most)));
      }
      into.push_back(static_cast<int>(item.as_integer()));
    }
  }
  // 64 bits, which are more than JSON's numbers hold everywhere.
  void read_bits(std::string_view name, uint64_t& into) {
    std::string text;
    read(name, text);
    if (text.empty()) return;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into, 16);
    if (error != std::errc() || end != text.data() + text.size()) {
      fail(bad_field(name, "must be a hexadecimal number of 64 bits"));
    }
  }
  void read(std::string_view name, double& into) {
    if (const Json* value = find(name, &Json::is_number, "must be a number")) {
      into = value->as_number();
    }
  }
  void read(std::string_view name, std::vector<std::string>& into, size_t most = kItemsMax) {
    const Json* list = find(name, &Json::is_array, "must be an array");
    if (list == nullptr) return;
    for (const Json& item : list->as_array()) {
      if (!item.is_string() || into.size() == most) {
        return fail(bad_field(name, fmt::format("must hold at most {} strings", most)));
      }
      into.push_back(item.as_string());
    }
  }
  void read(std::string_view name, HeaderFields& into) {
    const Json* list = find(name, &Json::is_array, "must be an array");
    if (list == nullptr) return;
    for (const Json& item : list->as_array()) {
      const bool is_pair = item.is_array() && item.as_array().size() == 2 &&
                           item.as_array()[0].is_string() && item.as_array()[1].is_string();
      if (!is_pair || into.size() == kItemsMax) {
        return fail(
            bad_field(name, fmt::format("must hold at most {} pairs of strings", kItemsMax)));
      }
      into.emplace_back(item.as_array()[0].as_string(), item.as_array()[1].as_string());
    }
  }

  void read(std::string_view name, std::map<std::string, std::string>& into) {
    const Json* object = find(name, &Json::is_object, "must be an object");
    if (object == nullptr) return;
    for (const auto& [key, value] : object->as_object()) {
      if (!value.is_string() || into.size() == kItemsMax) {
        return fail(bad_field(name, fmt::format("must hold at most {} strings", kItemsMax)));
      }
      into.insert_or_assign(std::string(key), value.as_string());
    }
  }

  template <typename T>
  Result<T> finish(T value) {
    if (error_) return *std::move(error_);
    return value;
  }

 private:
  const Json* find(std::string_view name, bool (Json::*is_kind)() const, std::string_view what) {
    const Json* value = json_.find(name);
    if (value == nullptr || (value->*is_kind)()) return value;
    fail(bad_field(name, what));
    return nullptr;
  }
  void fail(Error error) {
    if (!error_) error_ = std::move(error);
  }

  const Json& json_;
  std::optional<Error> error_;
};

Result<Json> parse_object(std::string_view text) {
  TRY_ASSIGN(Json json, Json::parse(text));
  if (!json.is_object()) return Error{ErrorCode::kInvalidArgument, "must be an object"};
  return json;
}

void write(base::JsonWriter& w, std::string_view name, const HeaderFields& fields) {
  w.key(name).begin_array();
  for (const auto& [key, value] : fields) {
    w.begin_array().string(key).string(value).end_array();
  }
  w.end_array();
}

// It stands in prompts.
bool has_dates_form(std::string_view date) {
  constexpr std::string_view kForm = "0000-00-00";
  const auto fits = [](char shape, char c) {
    return shape == '0' ? c >= '0' && c <= '9' : c == shape;
  };
  return std::ranges::equal(kForm, date, fits);
}

// Whoever only computes prompts, or none, has to exchange what was computed.
Result<void> set_role(std::string_view role, WorkerRecord& record) {
  const std::optional<WorkerRole> known = worker_role_named(role);
  if (!known) return bad_field("role", "must be prefill, decode or both");
  record.role = *known;
  if (record.role == WorkerRole::kBoth || record.kv_port != 0 || record.models.empty()) return {};
  return bad_field("role", fmt::format("'{}' needs a KV port (--kv-port)", role));
}

}  // namespace

std::string encode(const RunEnvelope& one) {
  std::string out;
  base::JsonWriter w(out);
  w.begin_object().key("protocol").integer(kProtocolVersion);
  w.key("incarnation").string(one.incarnation).key("request_id").string(one.request_id);
  w.key("gateway").string(one.gateway).key("attempt").integer(one.attempt);
  w.key("dispatch").integer(one.dispatch).key("method").string(one.method);
  w.key("path").string(one.path).key("query").string(one.query).key("remote").string(one.remote);
  write(w, "headers", one.headers);
  w.key("tenant").string(one.tenant).key("weight").number(one.weight);
  w.key("seed").string(fmt::format("{:x}", one.seed)).key("created_ms").integer(one.created_ms);
  if (!one.date.empty()) w.key("date").string(one.date);
  w.key("deadline_ms").integer(one.deadline_ms).key("delivered").boolean(one.delivered);
  if (one.further_max > 0) w.key("further_max").integer(one.further_max);
  if (one.warmed) w.key("warmed").boolean(true);
  if (one.peer.port != 0) {
    w.key("peer_host").string(one.peer.host).key("peer_port").integer(one.peer.port);
    w.key("peer_tokens").integer(one.peer.tokens).key("peer_ticket").string(one.peer.ticket);
    if (one.peer.ahead) w.key("peer_ahead").boolean(true);
  }
  w.end_object();
  return out;
}

Result<RunEnvelope> decode_run_envelope(std::string_view text) {
  TRY_ASSIGN(const Json json, parse_object(text));
  RunEnvelope one;
  int protocol = 0;
  Fields fields(json);
  fields.read_count("protocol", protocol);
  fields.read("incarnation", one.incarnation);
  fields.read("request_id", one.request_id);
  fields.read("gateway", one.gateway);
  fields.read_count("attempt", one.attempt, 1 << 20);
  fields.read_count("dispatch", one.dispatch);
  fields.read("method", one.method);
  fields.read("path", one.path);
  fields.read("query", one.query);
  fields.read("remote", one.remote);
  fields.read("headers", one.headers);
  fields.read("tenant", one.tenant);
  fields.read("weight", one.weight);
  fields.read_bits("seed", one.seed);
  fields.read_count("created_ms", one.created_ms, kCountMax * 16);
  fields.read("date", one.date);
  fields.read_count("deadline_ms", one.deadline_ms);
  fields.read("delivered", one.delivered);
  fields.read_count("further_max", one.further_max, 1 << 30);
  fields.read("warmed", one.warmed);
  fields.read("peer_host", one.peer.host);
  fields.read_count("peer_port", one.peer.port, 65535);
  fields.read_count("peer_tokens", one.peer.tokens, 1 << 30);
  fields.read("peer_ticket", one.peer.ticket);
  fields.read("peer_ahead", one.peer.ahead);
  if (protocol != kProtocolVersion) {
    return bad_field("protocol",
                     fmt::format("is {}; this worker speaks {}", protocol, kProtocolVersion));
  }
  if (!one.date.empty() && !has_dates_form(one.date)) {
    return bad_field("date", "must be a day as YYYY-MM-DD");
  }
  const RunEnvelope::Peer& peer = one.peer;
  if (peer.port != 0 && (peer.host.empty() || peer.tokens == 0 || peer.ticket.empty())) {
    return bad_field("peer_port", "needs peer_host, peer_tokens and peer_ticket");
  }
  if (!(one.weight > 0) || one.weight > 1e6) {
    return bad_field("weight", "must be above 0 and at most 1000000");
  }
  return fields.finish(std::move(one));
}

std::string encode(const AnswerHead& head) {
  std::string out;
  base::JsonWriter w(out);
  w.begin_object().key("status").integer(head.status);
  write(w, "headers", head.headers);
  w.key("streamed").boolean(head.streamed).end_object();
  return out;
}

Result<AnswerHead> decode_answer_head(std::string_view text) {
  TRY_ASSIGN(const Json json, parse_object(text));
  AnswerHead head{.status = 0};
  Fields fields(json);
  fields.read_count("status", head.status, 599);
  fields.read("headers", head.headers);
  fields.read("streamed", head.streamed);
  if (head.status < 200) return bad_field("status", "must be from 200 to 599");
  return fields.finish(std::move(head));
}

std::string encode(const ChoiceEnd& end) {
  std::string out;
  base::JsonWriter w(out);
  w.begin_object().key("reason").string(end.reason);
  w.key("prompt_tokens").integer(end.prompt_tokens);
  w.key("cached_tokens").integer(end.cached_tokens);
  w.key("output_tokens").integer(end.output_tokens).end_object();
  return out;
}

Result<ChoiceEnd> decode_choice_end(std::string_view text) {
  TRY_ASSIGN(const Json json, parse_object(text));
  ChoiceEnd end;
  Fields fields(json);
  fields.read("reason", end.reason);
  fields.read_count("prompt_tokens", end.prompt_tokens, INT32_MAX);
  fields.read_count("cached_tokens", end.cached_tokens, INT32_MAX);
  fields.read_count("output_tokens", end.output_tokens, INT32_MAX);
  return fields.finish(std::move(end));
}

std::string encode(const SaidEnvelope& said) {
  std::string out;
  base::JsonWriter w(out);
  w.begin_object().key("incarnation").string(said.incarnation).key("gateway").string(said.gateway);
  w.key("dispatch").integer(said.dispatch).key("first").integer(said.first);
  w.key("drains").boolean(said.drains).end_object();
  return out;
}

Result<SaidEnvelope> decode_said_envelope(std::string_view text) {
  TRY_ASSIGN(const Json json, parse_object(text));
  SaidEnvelope said;
  Fields fields(json);
  fields.read("incarnation", said.incarnation);
  fields.read("gateway", said.gateway);
  fields.read_count("dispatch", said.dispatch);
  fields.read_count("first", said.first);
  fields.read("drains", said.drains);
  return fields.finish(std::move(said));
}

std::string encode(const PromptFound& found) {
  std::string out;
  base::JsonWriter w(out);
  w.begin_object().key("cached_tokens").integer(found.cached_tokens);
  w.key("host_tokens").integer(found.host_tokens).key("disk_tokens").integer(found.disk_tokens);
  w.key("peer_tokens").integer(found.peer_tokens).end_object();
  return out;
}

Result<PromptFound> decode_prompt_found(std::string_view text) {
  TRY_ASSIGN(const Json json, parse_object(text));
  PromptFound found;
  Fields fields(json);
  fields.read_count("cached_tokens", found.cached_tokens, INT32_MAX);
  fields.read_count("host_tokens", found.host_tokens, INT32_MAX);
  fields.read_count("disk_tokens", found.disk_tokens, INT32_MAX);
  fields.read_count("peer_tokens", found.peer_tokens, INT32_MAX);
  const int64_t further =
      int64_t{found.host_tokens} + int64_t{found.disk_tokens} + int64_t{found.peer_tokens};
  if (further > found.cached_tokens) {
    return bad_field("cached_tokens", "must be at least what lay beyond the device");
  }
  return fields.finish(found);
}

std::string encode(const AnswerError& error) {
  std::string out;
  base::JsonWriter w(out);
  w.begin_object().key("status").integer(error.status).key("message").string(error.message);
  w.key("event").string(error.event).end_object();
  return out;
}

Result<AnswerError> decode_answer_error(std::string_view text) {
  TRY_ASSIGN(const Json json, parse_object(text));
  AnswerError error;
  Fields fields(json);
  fields.read_count("status", error.status, 599);
  fields.read("message", error.message);
  fields.read("event", error.event);
  return fields.finish(std::move(error));
}

std::string encode(const WorkerRecord& record) {
  std::string out;
  base::JsonWriter w(out);
  w.begin_object().key("protocol").integer(record.protocol).key("name").string(record.name);
  w.key("incarnation").string(record.incarnation).key("models").begin_array();
  for (const std::string& model : record.models) w.string(model);
  w.end_array().key("slots").integer(record.slots);
  w.key("batch_tokens").integer(record.batch_tokens);
  w.key("context_tokens").integer(record.context_tokens).key("version").string(record.version);
  w.key("zone")
      .string(record.zone)
      .key("region")
      .string(record.region)
      .key("block_tokens")
      .integer(record.block_tokens);
  w.key("windows").begin_array();
  for (const int window : record.windows) w.integer(window);
  w.end_array().key("block_name").string(record.block_name);
  w.key("date").string(record.date);
  if (record.beat_ms > 0) w.key("beat_ms").integer(record.beat_ms);
  if (record.kv_port != 0) {
    w.key("kv_port").integer(record.kv_port).key("kv_id").string(record.kv_id);
    if (record.kv_ahead) w.key("kv_ahead").boolean(true);
  }
  if (record.role != WorkerRole::kBoth) w.key("role").string(worker_role_name(record.role));
  if (!record.adapters.empty()) {
    w.key("adapters").begin_array();
    for (const std::string& adapter : record.adapters) w.string(adapter);
    w.end_array();
  }
  if (!record.fingerprints.empty()) {
    w.key("fingerprints").begin_object();
    for (const auto& [model, fingerprint] : record.fingerprints) w.key(model).string(fingerprint);
    w.end_object();
  }
  w.end_object();
  return out;
}

Result<WorkerRecord> decode_worker_record(std::string_view text) {
  TRY_ASSIGN(const Json json, parse_object(text));
  WorkerRecord record{.protocol = 0};
  Fields fields(json);
  fields.read_count("protocol", record.protocol, 1 << 20);
  fields.read("name", record.name);
  fields.read("incarnation", record.incarnation);
  fields.read("models", record.models);
  fields.read_count("slots", record.slots, 1 << 24);
  fields.read_count("batch_tokens", record.batch_tokens, 1 << 24);
  fields.read_count("context_tokens", record.context_tokens, 1 << 30);
  fields.read("version", record.version);
  fields.read("zone", record.zone);
  fields.read("region", record.region);
  fields.read_count("block_tokens", record.block_tokens, 1 << 16);
  fields.read_counts("windows", record.windows, 1 << 30);
  fields.read("block_name", record.block_name);
  fields.read("date", record.date);
  fields.read_count("beat_ms", record.beat_ms, 60'000);
  fields.read_count("kv_port", record.kv_port, 65535);
  fields.read("kv_id", record.kv_id);
  fields.read("kv_ahead", record.kv_ahead);
  std::string role(worker_role_name(record.role));
  fields.read("role", role);
  fields.read("adapters", record.adapters, kAdapterNamesMax);
  fields.read("fingerprints", record.fingerprints);
  if (record.protocol != kProtocolVersion) {
    return bad_field("protocol", fmt::format("is {}; this gateway speaks {}", record.protocol,
                                             kProtocolVersion));
  }
  if (record.incarnation.empty()) return bad_field("incarnation", "is missing");
  TRY(set_role(role, record));
  return fields.finish(std::move(record));
}

std::string encode(const WorkerLoad& load) {
  std::string out;
  base::JsonWriter w(out);
  w.begin_object().key("progress").integer(load.progress).key("busy_ms").integer(load.busy_ms);
  w.key("running").integer(load.running).key("waiting").integer(load.waiting);
  w.key("waiting_tokens").integer(load.waiting_tokens).key("wait_s").number(load.wait_s);
  w.key("context_tokens").integer(load.context_tokens).key("kv_used").number(load.kv_used);
  w.key("costs").begin_object().key("fixed_s").number(load.costs.fixed_s);
  w.key("prefill_token_s").number(load.costs.prefill_token_s);
  w.key("row_s").number(load.costs.row_s);
  w.key("context_token_s").number(load.costs.context_token_s).end_object();
  w.key("dispatch").integer(load.dispatch).key("ready").boolean(load.ready);
  w.key("draining").boolean(load.draining);
  if (load.adapter_places > 0) {
    w.key("adapter_places").integer(load.adapter_places);
    w.key("adapter_wait_s").number(load.adapter_wait_s);
    w.key("adapter_hits").number(load.adapter_hits).key("adapters").begin_array();
    for (const ResidentAdapter& adapter : load.adapters) {
      w.begin_array().string(adapter.name).string(adapter.digest).end_array();
    }
    w.end_array();
  }
  w.end_object();
  return out;
}

namespace {

// Those that are none are left out.
void read_adapters(const Json& json, WorkerLoad& load) {
  const Json* const list = json.find("adapters");
  if (list == nullptr || !list->is_array()) return;
  for (const Json& item : list->as_array()) {
    const bool is_pair = item.is_array() && item.as_array().size() == 2 &&
                         item.as_array()[0].is_string() && item.as_array()[1].is_string();
    if (!is_pair || load.adapters.size() == WorkerLoad::kAdaptersMax) continue;
    load.adapters.push_back(
        {.name = item.as_array()[0].as_string(), .digest = item.as_array()[1].as_string()});
  }
}

// Those that cannot be stay as they are assumed.
void read_costs(const Json& json, StepCosts& costs) {
  const auto read = [&](std::string_view name, double most, double& into) {
    const std::optional<double> value = json.number(name);
    if (value && *value >= 0 && *value <= most) into = *value;
  };
  read("fixed_s", 60, costs.fixed_s);
  read("prefill_token_s", 10, costs.prefill_token_s);
  read("row_s", 10, costs.row_s);
  read("context_token_s", 1, costs.context_token_s);
}

}  // namespace

Result<WorkerLoad> decode_worker_load(std::string_view text) {
  TRY_ASSIGN(const Json json, parse_object(text));
  WorkerLoad load;
  const auto clamped = [&](std::string_view name, int64_t most) {
    const double value = json.number(name).value_or(0.0);
    return static_cast<int64_t>(std::clamp(value, 0.0, static_cast<double>(most)));
  };
  load.progress = clamped("progress", kCountMax);
  load.busy_ms = clamped("busy_ms", kCountMax);
  load.running = static_cast<int>(clamped("running", 1 << 24));
  load.waiting = static_cast<int>(clamped("waiting", 1 << 24));
  load.waiting_tokens = clamped("waiting_tokens", kCountMax);
  load.wait_s = std::clamp(json.number("wait_s").value_or(0.0), 0.0, kSecondsMax);
  load.context_tokens = clamped("context_tokens", kCountMax);
  load.kv_used = std::clamp(json.number("kv_used").value_or(0.0), 0.0, 1.0);
  if (const Json* costs = json.find("costs")) read_costs(*costs, load.costs);
  load.dispatch = clamped("dispatch", kCountMax);
  load.ready = json.boolean("ready").value_or(false);
  load.draining = json.boolean("draining").value_or(false);
  load.adapter_places = static_cast<int>(clamped("adapter_places", 1 << 20));
  load.adapter_wait_s = std::clamp(json.number("adapter_wait_s").value_or(0.0), 0.0, kSecondsMax);
  load.adapter_hits = std::clamp(json.number("adapter_hits").value_or(0.0), 0.0, 1.0);
  read_adapters(json, load);
  return load;
}

}  // namespace pelton::cluster
