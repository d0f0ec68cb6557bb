// pelton autoscale: decides how many replicas pools have, for gateways that are other processes;
// and decides again what was recorded.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>

#include <fmt/format.h>

#include "apps/gateway_scaling.h"
#include "apps/input.h"
#include "apps/life_cycle.h"
#include "apps/scaled_pools.h"
#include "apps/verbs.h"
#include "autoscaler/facts_log.h"
#include "base/json.h"
#include "cli/interrupt.h"
#include "gateway/config.h"
#include "launch/remote_fleet.h"
#include "launch/scaler_pages.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "net/url.h"

namespace pelton::apps {
namespace {

using cli::Flag;

// Decides again; the first decision that is another one ends it.
Result<void> replay(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return Error{ErrorCode::kIo, fmt::format("cannot read {}", file), "replay"};
  autoscaler::FactsReplay replay;
  std::string line;
  int64_t number = 0;
  int64_t decisions = 0;
  while (std::getline(in, line)) {
    ++number;
    const Result<autoscaler::FactsReplay::Outcome> outcome = replay.feed(line);
    if (!outcome.ok()) {
      // One that the recorder was killed at.
      if (in.eof()) break;
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{}:{}: {}", file, number, outcome.error().message), "replay"};
    }
    if (!outcome->is_decision) continue;
    ++decisions;
    if (!outcome->is_equal) {
      return Error{ErrorCode::kIo,
                   fmt::format("{}:{}: decided otherwise:\nrecorded {}\nnow      {}", file, number,
                               line, outcome->line),
                   {}};
    }
    TRY(write_output(outcome->line + "\n"));
  }
  fmt::print(stderr, "{} decisions, each as it was recorded\n", decisions);
  return {};
}

Result<Json> ask_pools(const std::string& url) {
  TRY_ASSIGN(net::HttpCall call, net::make_http_call("GET", url + "/v1/autoscaler"));
  call.whole_time_max = std::chrono::seconds(10);
  TRY_ASSIGN(const net::HttpResponse answer, net::http_fetch(std::move(call)));
  TRY_ASSIGN(Json json, Json::parse(answer.body));
  if (answer.status == 200) return json;
  return Error{
      ErrorCode::kIo, fmt::format("{} answers {}: no autoscaler is there", url, answer.status), {}};
}

// The last decision of a pool with every term of the rule.
Result<void> explain(const std::string& url, const std::string& pool) {
  TRY_ASSIGN(const Json answer, ask_pools(url));
  const Json* pools = answer.find("pools");
  std::string names;
  for (const Json& one :
       pools != nullptr && pools->is_array() ? pools->as_array() : Json::Array()) {
    const std::string name = one.string("pool").value_or("");
    names += (names.empty() ? "" : ", ") + name;
    if (name != pool) continue;
    std::string text = one.string("decision").value_or("") + "\n";
    if (const std::string why = one.string("failure").value_or(""); !why.empty()) {
      text += fmt::format("it does not start: {}\n", why);
    }
    const Json* terms = one.find("terms");
    if (terms == nullptr || !terms->is_object()) return write_text(text);
    for (const Json::Member& term : terms->as_object()) {
      text += fmt::format("  {:<20} {}\n", term.key, term.value.dump());
    }
    return write_text(text);
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("no pool '{}' is scaled there; there {}", pool,
                           names.empty() ? "are none" : "is " + names),
               "explain"};
}

std::string explained_url(const cli::Arguments& arguments, const gateway::GatewayConfig* config) {
  if (arguments.has("--admin")) return arguments.text("--admin");
  if (config == nullptr) return "http://127.0.0.1:8091";
  if (config->autoscaler.port >= 0) {
    return "http://" + net::format_host_port(config->autoscaler.host, config->autoscaler.port);
  }
  return "http://" + net::format_host_port(config->admin_host, config->admin_port);
}

Result<void> check(const gateway::GatewayConfig& config) {
  if (config.autoscaler.gateways.empty()) {
    return Error{ErrorCode::kBadConfig,
                 "[autoscaler] needs 'gateways': the URLs of their admin listeners", "config"};
  }
  return GatewayScaling::check(config);
}

// GET /v1/autoscaler, /metrics, /health.
std::unique_ptr<net::HttpServer> make_listener(const gateway::GatewayConfig& config,
                                               const net::AllowedHosts& hosts,
                                               const launch::FleetScaler& scaler, base::Log& log) {
  return std::make_unique<net::HttpServer>(
      net::HttpServer::Options{.address = config.autoscaler.host,
                               .port = config.autoscaler.port,
                               .connections_max = 64,
                               .descriptors_spared = 0,
                               .hosts = hosts.at(config.autoscaler.host)},
      [&scaler](const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange) {
        exchange->send(launch::scaler_answer(request, scaler.states()));
      },
      log);
}

Result<void> decide_until_stopped(const gateway::GatewayConfig& config,
                                  const cli::Arguments& arguments) {
  const base::SystemClock clock;
  base::Log log(clock, {.level = log_level(arguments), .json = arguments.has("--log-json")});
  const cli::Interrupt interrupt;
  std::vector<launch::ScaledPool> pools = scaled_pools(config);
  launch::RemoteFleet::Options options{.gateways = config.autoscaler.gateways,
                                       .epoch = static_cast<uint64_t>(clock.unix_ms())};
  const bool only_advises = arguments.has("--advise");
  for (launch::ScaledPool& pool : pools) {
    options.pools.push_back(pool.name);
    pool.is_advised_only = pool.is_advised_only || only_advises;
  }
  TRY_ASSIGN(const std::unique_ptr<launch::LauncherSet> launcher,
             open_launcher(config, 0, clock, log));
  std::unique_ptr<launch::FactsRecorder> recorder;
  if (arguments.has("--record-facts")) {
    TRY_ASSIGN(recorder, launch::FactsRecorder::open(arguments.text("--record-facts"),
                                                     launch::FactsRecorder::kBytesMax, log));
  }
  DemandSignal demand;
  options.on_demand = [&demand] { demand.notify(); };
  launch::RemoteFleet fleet(std::move(options), clock, log);
  launch::FleetScaler scaler(std::move(pools), *launcher, fleet, clock, log, recorder.get());
  // So that whoever asks when it listens finds a decision.
  std::chrono::milliseconds next = scaler.turn(false);
  std::unique_ptr<net::HttpServer> listener;
  if (config.autoscaler.port >= 0) {
    TRY_ASSIGN(const net::AllowedHosts hosts, net::AllowedHosts::parse(config.allowed_hosts));
    listener = make_listener(config, hosts, scaler, log);
    TRY(listener->start());
    TRY(write_output(fmt::format("listening on http://{}\n",
                                 net::format_host_port(config.autoscaler.host, listener->port()))));
  }
  while (!interrupt.pending() && !fleet.is_superseded()) {
    const bool asked = demand.wait(next) == DemandSignal::Woken::kByDemand;
    next = scaler.turn(asked);
  }
  if (listener != nullptr) listener->stop(std::chrono::milliseconds(0));
  if (!fleet.is_superseded()) return {};
  return Error{ErrorCode::kIo, "a newer autoscaler is obeyed by the gateways", {}};
}

Result<void> run(const cli::Arguments& arguments) {
  if (arguments.has("--replay")) return replay(arguments.text("--replay"));
  gateway::GatewayConfig config;
  const bool has_config = arguments.has("--config");
  if (has_config) {
    TRY_ASSIGN(config, gateway::read_gateway_config(
                           arguments.text("--config"),
                           {.allows_empty = true, .open = arguments.has("--open")}));
  }
  if (arguments.has("--explain")) {
    return explain(explained_url(arguments, has_config ? &config : nullptr),
                   arguments.text("--explain"));
  }
  if (!has_config) {
    return Error{ErrorCode::kInvalidArgument,
                 "--config FILE says which gateways and pools there are", "config"};
  }
  TRY(check(config));
  if (arguments.has("--check")) return write_output("the configuration is sound\n");
  return decide_until_stopped(config, arguments);
}

}  // namespace

cli::Verb autoscale_verb() {
  cli::Verb verb{
      .name = "autoscale",
      .summary = "Decides how many replicas each pool has, for gateways that are other processes.",
      .about =
          "Hears of gateways, over their admin listeners, what is asked of their pools, and "
          "starts\n"
          "and stops replicas as [pool.scale] and [pool.launch] say. Replicas stay when it ends; "
          "the\n"
          "next one finds them. `pelton gateway --with-autoscaler` is the same in one process.\n"
          "docs/scaling.md has the rule and the keys.",
      .flags = {{.name = "--config",
                 .value = "FILE",
                 .help = "the gateways' file, with [autoscaler] gateways",
                 .not_with = {{"--replay"}}},
                {.name = "--check",
                 .help = "read the configuration, say whether it is sound, and end",
                 .kind = Flag::Kind::kSwitch,
                 .only_with = {{"--config"}},
                 .not_with = {{"--explain"}}},
                {.name = "--advise",
                 .help = "decide and say so in the log and metrics, and do nothing",
                 .kind = Flag::Kind::kSwitch,
                 .only_with = {{"--config"}},
                 .not_with = {{"--explain"}, {"--check"}}},
                {.name = "--explain",
                 .value = "POOL",
                 .help = "ask a running autoscaler for its last decision, with every term, and end",
                 .not_with = {{"--replay"}}},
                {.name = "--admin",
                 .value = "URL",
                 .help =
                     "where that one listens; default: as --config says, or http://127.0.0.1:8091",
                 .only_with = {{"--explain"}}},
                {.name = "--replay",
                 .value = "FILE",
                 .help = "decide again what was recorded there; fails where a decision is another"},
                {.name = "--record-facts",
                 .value = "FILE",
                 .help = "keep what is heard and decided; at 64 MiB it becomes FILE.1",
                 .may_be_empty = false,
                 .only_with = {{"--config"}},
                 .not_with = {{"--explain"}, {"--check"}}},
                {.name = "--open",
                 .help = "listen beyond this machine though nobody is asked for a key",
                 .kind = Flag::Kind::kSwitch,
                 .only_with = {{"--config"}}},
                {.name = "--log-json",
                 .help = "log lines as JSON",
                 .kind = Flag::Kind::kSwitch,
                 .only_with = {{"--config"}},
                 .not_with = {{"--explain"}, {"--check"}}}},
      .examples = {"pelton autoscale --config gateway.toml --check",
                   "pelton autoscale --config gateway.toml --advise",
                   "pelton autoscale --explain box", "pelton autoscale --replay facts.jsonl"},
      .run = run,
  };
  for (Flag& flag : life_flags()) {
    if (flag.name != "--log-level") continue;
    flag.only_with = {{"--config"}};
    flag.not_with = {{"--explain"}, {"--check"}};
    verb.flags.push_back(std::move(flag));
  }
  return verb;
}

}  // namespace pelton::apps
