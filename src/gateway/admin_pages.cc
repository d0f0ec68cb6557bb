#include "gateway/admin_pages.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "api/error.h"
#include "base/json_writer.h"
#include "gateway/fleet_metrics.h"
#include "gateway/fleet_sampler.h"
#include "gateway/limits_page.h"
#include "gateway/rollout_page.h"
#include "net/json_response.h"
#include "net/query_check.h"
#include "net/url.h"
#include "telemetry/prometheus_text.h"

namespace pelton::gateway {
namespace {

constexpr std::string_view kWorkers = "/v1/workers";
constexpr std::array<std::pair<std::string_view, Fleet::Command>, 5> kCommands = {
    {{"drain", Fleet::Command::kDrain},
     {"move", Fleet::Command::kMove},
     {"undrain", Fleet::Command::kUndrain},
     {"eject", Fleet::Command::kEject},
     {"restore", Fleet::Command::kRestore}}};

net::HttpResponse refusal(const api::ApiError& error) {
  return net::json_response(api::error_body(error), error.status);
}

void write_making(base::JsonWriter& w, const Fleet::Row::Making& making) {
  w.key("making").begin_object().key("images").integer(making.images);
  w.key("videos").integer(making.videos).key("units").integer(making.units);
  w.key("unit_s").number(making.unit_s).key("loras").begin_array();
  for (const std::string& lora : making.loras) w.string(lora);
  w.end_array().end_object();
}

void write_row(base::JsonWriter& w, const Fleet::Row& row) {
  w.begin_object().key("name").string(row.name).key("pool").string(row.pool);
  w.key("address").string(row.url).key("state").string(worker_state_name(row.state));
  w.key("incarnation").string(row.record.incarnation).key("version").string(row.record.version);
  w.key("zone")
      .string(row.record.zone)
      .key("region")
      .string(row.record.region)
      .key("models")
      .begin_array();
  for (const std::string& model : row.record.models) w.string(model);
  w.end_array().key("slots").integer(row.record.slots).key("running").integer(row.load.running);
  w.key("waiting").integer(row.load.waiting).key("uncounted").integer(row.uncounted);
  w.key("report_age_ms").integer(row.report_age_ms).key("requests").integer(row.requests);
  w.key("failures").integer(row.failures).key("reason").string(row.reason);
  w.key("fingerprint").string(row.fingerprint);
  w.key("names_agree").boolean(row.names_agree).key("bias").number(row.bias);
  w.key("reports").boolean(reports_now(row.state));
  w.key("kv_used").number(row.load.kv_used).key("kind").string(worker_kind_name(row.kind));
  w.key("role").string(worker_role_name(row.role));
  if (row.next_role) w.key("next_role").string(worker_role_name(*row.next_role));
  if (row.kind != WorkerKind::kPelton) w.key("level").string(row.abilities.level());
  if (row.making) write_making(w, *row.making);
  w.end_object();
}

std::string workers_body(const std::vector<Fleet::Row>& rows) {
  std::string body;
  base::JsonWriter w(body);
  w.begin_object().key("workers").begin_array();
  for (const Fleet::Row& row : rows) write_row(w, row);
  w.end_array().end_object();
  return body;
}

void add_held(std::span<const HeldPool> pools, telemetry::PrometheusText& text) {
  if (pools.empty()) return;
  using Type = telemetry::PrometheusText::Type;
  text.family("pelton_gateway_held_requests", Type::kGauge,
              "Requests that wait for a replica of their pool, or for one that is free.");
  for (const HeldPool& one : pools) text.sample({{"pool", one.pool}}, one.counts.held);
  text.family("pelton_gateway_held_total", Type::kCounter, "Requests that were held.");
  for (const HeldPool& one : pools) {
    text.sample({{"pool", one.pool}}, static_cast<double>(one.counts.entered));
  }
  text.family("pelton_gateway_hold_refused_total", Type::kCounter,
              "Requests refused because no replica was ready, or free, in time.");
  for (const HeldPool& one : pools) {
    text.sample({{"pool", one.pool}}, static_cast<double>(one.counts.refused));
  }
}

void add_limits(const AdminSource& source, telemetry::PrometheusText& text) {
  if (source.limit_shares != nullptr) {
    const LimitShares::Counts shares = source.limit_shares->counts();
    text.gauge("pelton_gateway_limit_gateways", "Gateways that share the limits of keys.",
               static_cast<double>(shares.gateways));
    text.counter("pelton_gateway_limit_share_failures_total",
                 "Times that etcd did not answer for that.", static_cast<double>(shares.failures));
  }
  using By = access::RefusalCounts::By;
  text.family("pelton_gateway_limited_total", telemetry::PrometheusText::Type::kCounter,
              "Requests refused because their key's limit was used up.");
  for (const By by : {By::kRequests, By::kTokens, By::kConcurrent}) {
    text.sample({{"limit", access::RefusalCounts::kNames[static_cast<size_t>(by)]}},
                static_cast<double>(source.refusals.of(by)));
  }
}

void add_splits(const SplitCounters& splits, telemetry::PrometheusText& text) {
  text.family("pelton_gateway_splits_total", telemetry::PrometheusText::Type::kCounter,
              "Requests whose answer a second worker was to go on with, and what became of that.");
  for (size_t i = 0; i < splits.outcomes.size(); ++i) {
    text.sample({{"outcome", SplitCounters::kOutcomes[i]}},
                static_cast<double>(splits.outcomes[i]));
  }
  text.counter("pelton_gateway_split_found_tokens_total",
               "Prompt tokens of these that the second worker fetched or had.",
               static_cast<double>(splits.found_tokens));
  text.counter("pelton_gateway_split_recomputed_tokens_total",
               "Prompt tokens of these that it computed again.",
               static_cast<double>(splits.recomputed_tokens));
}

void add_regions(const RegionLedger& ledger, telemetry::PrometheusText& text) {
  using Type = telemetry::PrometheusText::Type;
  std::map<std::string, RegionLedger::Sums> regions;
  for (const auto& [whose, sums] : ledger.rows()) {
    RegionLedger::Sums& all = regions[whose.first];
    all.requests += sums.requests;
    all.bytes_out += sums.bytes_out;
    all.bytes_in += sums.bytes_in;
  }
  if (regions.empty()) return;
  text.family("pelton_gateway_region_requests_total", Type::kCounter,
              "Requests sent to another region's gateway.");
  for (const auto& [region, sums] : regions) {
    text.sample({{"region", region}}, static_cast<double>(sums.requests));
  }
  text.family("pelton_gateway_region_bytes_total", Type::kCounter,
              "Bytes of these requests and of their answers.");
  for (const auto& [region, sums] : regions) {
    text.sample({{"region", region}, {"direction", "out"}}, static_cast<double>(sums.bytes_out));
    text.sample({{"region", region}, {"direction", "in"}}, static_cast<double>(sums.bytes_in));
  }
}

void add_media(const MediaCounters& media, std::span<const Fleet::Row> rows,
               telemetry::PrometheusText& text) {
  using Type = telemetry::PrometheusText::Type;
  const auto makes = [](const Fleet::Row& row) { return row.making.has_value(); };
  if (std::ranges::none_of(rows, makes)) return;
  text.family("pelton_gateway_media_requests_total", Type::kCounter,
              "Requests for images that were answered, and videos that were begun.");
  text.sample({{"makes", "images"}}, static_cast<double>(media.images));
  text.sample({{"makes", "videos"}}, static_cast<double>(media.videos));
  text.counter("pelton_gateway_media_units_total",
               "Their work: pictures times steps times pixels, in units of 65536 pixels.",
               static_cast<double>(media.units));
  text.counter("pelton_gateway_media_result_bytes_total", "Bytes of images and videos passed on.",
               static_cast<double>(media.result_bytes));
  text.counter("pelton_gateway_media_refused_total",
               "Requests for images or videos refused by their fields.",
               static_cast<double>(media.refused));
  text.counter("pelton_gateway_media_late_total",
               "Requests that their worker did not answer in its pool's time.",
               static_cast<double>(media.late));
  text.family("pelton_gateway_media_open", Type::kGauge,
              "Images and videos that a worker has to make still, as it was sent them from here.");
  for (const Fleet::Row& row : rows) {
    if (!row.making) continue;
    text.sample({{"worker", row.name}, {"makes", "images"}}, row.making->images);
    text.sample({{"worker", row.name}, {"makes", "videos"}}, row.making->videos);
  }
  text.family("pelton_gateway_media_units_open", Type::kGauge, "The work of these.");
  for (const Fleet::Row& row : rows) {
    if (row.making) text.sample({{"worker", row.name}}, static_cast<double>(row.making->units));
  }
}

std::string metrics_text(const AdminSource& source) {
  const RelayCounters& counters = source.counters;
  telemetry::PrometheusText text;
  const auto counter = [&](std::string_view name, std::string_view help, int64_t value) {
    text.counter(fmt::format("pelton_gateway_{}", name), help, static_cast<double>(value));
  };
  counters.figures.add_metrics(text);
  text.gauge("pelton_gateway_retry_budget", "Retries that may be made just now.",
             static_cast<double>(source.retry_budget.left(source.now_ns)));
  counter("answered_total", "Of these, answered wholly, whatever their status.", counters.answered);
  counter("fallbacks_total", "Requests sent to a pool that their route falls back to.",
          counters.fallbacks);
  counter("drain_moves_total", "Answers that left a worker which was being stopped.",
          counters.drain_moves);
  counter("warm_moves_total", "Of these, to a worker that had computed before what was said.",
          counters.warm_moves);
  counter("warm_tokens_total", "Tokens said meanwhile by the workers that were left.",
          counters.warm_tokens);
  add_splits(counters.splits, text);
  add_regions(counters.regions, text);
  counter(
      "prefix_copies_total",
      "Requests sent to a worker that had less of their prompt than another one, since fetching "
      "it was sooner than waiting there.",
      counters.prefix_copies);
  counter("prefix_copy_tokens_total", "Prompt tokens fetched from other workers by whole requests.",
          counters.prefix_copy_tokens);
  counter("streams_interrupted_total", "Streams that ended with an error.", counters.interrupted);
  counter("unserved_total", "Requests refused by the gateway itself.", counters.unserved);
  counter("quarantined_total", "Requests refused because they ended workers.",
          counters.quarantined);
  text.gauge("pelton_gateway_suspects",
             "Requests that workers were lost with, and none has begun since.",
             static_cast<double>(source.quarantine.size()));
  counter("clients_left_total", "Requests whose client left.", counters.left);
  text.gauge("pelton_gateway_requests_open", "Requests not answered yet.",
             static_cast<double>(counters.open));
  counter("prompts_named_total", "Prompts whose KV blocks were named here.", counters.named);
  counter("expected_hit_tokens_total", "Prompt tokens expected in a worker's prefix cache.",
          counters.expected_hit_tokens);
  counter("real_hit_tokens_total", "Prompt tokens found there.", counters.real_hit_tokens);
  counter("hit_mismatch_total", "Answers where these two differ by a block or more.",
          counters.hit_mismatches);
  counter("prompt_mismatch_total", "Prompts that a worker counts other tokens of.",
          counters.prompt_mismatches);
  counter("adapter_requests_total", "Requests sent to a worker with a LoRA adapter.",
          counters.adapter_requests);
  counter("adapter_resident_total", "Of these, to one that had it in memory, as it said.",
          counters.adapter_resident);
  counter("config_reloads_total", "Configurations read anew.", counters.reloads);
  counter("config_reloads_refused_total", "Of a file that is wrong; the old one stayed.",
          counters.reloads_refused);
  source.arms.add_metrics(text);
  add_rollout_metrics(source.rollouts, text);
  counter("shadow_copies_total", "Copies of requests sent to shadows.", source.shadow.sent);
  counter("shadow_no_room_total", "Copies not sent, as there was little room.",
          source.shadow.no_room);
  counter("shadow_no_budget_total", "Copies not sent, as a shadow's budget was used up.",
          source.shadow.no_budget);
  counter("shadow_cut_total", "Copies cut off, as clients' requests filled a pool.",
          source.shadow.cut);
  add_limits(source, text);
  const std::vector<Fleet::Row> rows = source.fleet.rows();
  add_fleet_metrics(source.fleet, rows, text);
  add_media(counters.media, rows, text);
  counters.served.add_metrics(rows, text);
  add_held(source.held, text);
  source.more_metrics(text);
  return text.text();
}

api::ApiError no_worker(std::string_view name) {
  return {.status = 404,
          .message = fmt::format("no worker is named '{}'", name),
          .type = "invalid_request_error",
          .param = {},
          .code = "worker_not_found"};
}

// A page may not command the fleet here, where no key is asked for: browsers say whose page it is.
// The console's own has a way for whoever has signed in (apps/console_operations.h).
api::ApiError from_a_page() {
  return {.status = 403,
          .message =
              "Workers are not commanded by pages in a browser (the header 'Origin'); use "
              "pelton fleet",
          .type = "invalid_request_error",
          .param = {},
          .code = "forbidden_origin"};
}

// "?role=decode".
net::HttpResponse role_answer(const net::HttpRequest& request, std::string_view name,
                              Fleet& fleet) {
  const Result<void> known = net::check_query(request.query, {"role"});
  if (!known.ok()) return refusal(api::api_error(known.error()));
  const std::string wanted = net::query_value(request.query, "role").value_or("");
  const auto role = cluster::worker_role_named(wanted);
  if (!role) {
    return refusal(api::api_error(
        Error{ErrorCode::kInvalidArgument, "?role= is prefill, decode or both", "role"}));
  }
  const Result<void> set = fleet.set_role(name, *role);
  if (set.ok()) return net::json_response("{}");
  if (set.error().code == ErrorCode::kNotFound) return refusal(no_worker(name));
  return refusal(api::api_error(set.error()));
}

// "NAME/drain" or "NAME".
net::HttpResponse worker_answer(const net::HttpRequest& request, std::string_view rest,
                                Fleet& fleet) {
  const size_t slash = rest.find('/');
  const std::string_view name = rest.substr(0, slash);
  if (slash == std::string_view::npos) {
    if (request.method != "GET" && request.method != "HEAD") {
      return refusal(api::method_not_allowed(request.method, request.path));
    }
    for (const Fleet::Row& row : fleet.rows()) {
      if (row.name != name) continue;
      std::string body;
      base::JsonWriter w(body);
      write_row(w, row);
      return net::json_response(std::move(body));
    }
    return refusal(no_worker(name));
  }
  const std::string_view word = rest.substr(slash + 1);
  const std::optional<Fleet::Command> command = command_of(word);
  const bool is_role = word == "role";
  if (!command && !is_role) return refusal(api::not_found(request.method, request.path));
  if (request.method != "POST") {
    return refusal(api::method_not_allowed(request.method, request.path));
  }
  if (!request.headers.get("Origin").empty()) return refusal(from_a_page());
  if (is_role) return role_answer(request, name, fleet);
  if (fleet.command(name, *command)) return net::json_response("{}");
  return refusal(no_worker(name));
}

net::HttpResponse limits_answer(const net::HttpRequest& request, const AdminSource& source) {
  const std::string tenant = net::query_value(request.query, "tenant").value_or("");
  return net::json_response(limits_body(source.access, source.limit_shares, tenant));
}

net::HttpResponse erased_answer(const Fleet::Erased& erased) {
  std::string body;
  base::JsonWriter w(body);
  w.begin_object().key("workers").integer(erased.workers).key("failed").begin_array();
  for (const Fleet::Erased::Failed& one : erased.failed) w.string(one.name);
  w.end_array().key("reasons").begin_object();
  for (const Fleet::Erased::Failed& one : erased.failed) w.key(one.name).string(one.reason);
  w.end_object().end_object();
  net::HttpResponse answer = net::json_response(std::move(body));
  if (!erased.failed.empty()) answer.status = 502;
  return answer;
}

// What is believed of a worker's prefix cache.
net::HttpResponse index_answer(const net::HttpRequest& request, const AdminSource& source) {
  const std::optional<std::string> name = net::query_value(request.query, "name");
  if (!name)
    return refusal(api::api_error(
        Error{ErrorCode::kInvalidArgument, "?name= names a worker, as /v1/workers does", "name"}));
  const std::optional<Fleet::WorkerIndex> index = source.fleet.index_of(*name);
  if (!index) return refusal(no_worker(*name));
  std::string body;
  base::JsonWriter w(body);
  w.begin_object().key("name").string(*name);
  w.key("blocks").integer(static_cast<int64_t>(index->blocks));
  w.key("block_tokens").integer(index->block_tokens);
  w.key("names_agree").boolean(index->names_agree).key("believed").boolean(index->believed);
  w.key("wrong_of_last_50").integer(static_cast<int64_t>(index->wrong));
  w.key("fingerprint").string(index->fingerprint).end_object();
  return net::json_response(std::move(body));
}

}  // namespace

std::optional<Fleet::Command> command_of(std::string_view word) {
  const auto found = std::ranges::find(kCommands, word, &decltype(kCommands)::value_type::first);
  return found == kCommands.end() ? std::nullopt : std::optional(found->second);
}

void erase_beside(const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange,
                  Fleet& fleet) {
  if (request.method != "POST") {
    return exchange->send(refusal(api::method_not_allowed(request.method, request.path)));
  }
  if (!request.headers.get("Origin").empty()) return exchange->send(refusal(from_a_page()));
  // Of what it does not know more would be erased than was asked for.
  const Result<void> known = net::check_query(request.query, {"tenant"});
  if (!known.ok()) return exchange->send(refusal(api::api_error(known.error())));
  const Result<void> no_body = net::check_no_body(request.body);
  if (!no_body.ok()) return exchange->send(refusal(api::api_error(no_body.error())));
  const std::optional<std::string> tenant = net::query_value(request.query, "tenant");
  const bool is_all = request.path == kEraseTenant;
  if (is_all && !tenant) {
    return exchange->send(refusal(api::api_error(
        Error{ErrorCode::kInvalidArgument, "?tenant= says whose is to be erased", "tenant"})));
  }
  fleet.erase(
      is_all ? Fleet::EraseWhat::kKept : Fleet::EraseWhat::kComputed, tenant,
      [exchange](const Fleet::Erased& erased) {
        exchange->post([exchange, answer = erased_answer(erased)] { exchange->send(answer); });
      });
}

net::HttpResponse admin_answer(const net::HttpRequest& request, const AdminSource& source) {
  const std::string_view path = request.path;
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (!reads && (path == kWorkers || path == "/metrics")) {
    return refusal(api::method_not_allowed(request.method, path));
  }
  if (path == kWorkers) return net::json_response(workers_body(source.fleet.rows()));
  if (path == "/v1/limits" || path == "/v1/index") {
    if (request.method != "GET") return refusal(api::method_not_allowed(request.method, path));
    return path == "/v1/limits" ? limits_answer(request, source) : index_answer(request, source);
  }
  if (path == "/metrics") {
    net::HttpResponse response{.status = 200, .headers = {}, .body = metrics_text(source)};
    response.headers.add("Content-Type", std::string(telemetry::kPrometheusContentType));
    return response;
  }
  if (path.starts_with(kWorkers) && path.size() > kWorkers.size() + 1) {
    return worker_answer(request, path.substr(kWorkers.size() + 1), source.fleet);
  }
  return refusal(api::not_found(request.method, request.path));
}

}  // namespace pelton::gateway
