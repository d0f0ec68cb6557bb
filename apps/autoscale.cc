// pelton autoscale: decides how many replicas pools have, for gateways that are other processes;
// and decides again what was recorded.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "apps/computed_pages.h"
#include "apps/console_flags.h"
#include "apps/fleet_admin.h"
#include "apps/fleet_console.h"
#include "apps/gateway_options.h"
#include "apps/gateway_scaling.h"
#include "apps/input.h"
#include "apps/life_cycle.h"
#include "apps/own_server.h"
#include "apps/scaled_pools.h"
#include "apps/verbs.h"
#include "autoscaler/facts_log.h"
#include "base/json.h"
#include "cli/exit_code.h"
#include "cli/hang_up.h"
#include "cli/interrupt.h"
#include "gateway/config.h"
#include "launch/etcd_lead_store.h"
#include "launch/keda_scaler.h"
#include "launch/kubernetes_lead_store.h"
#include "launch/lead.h"
#include "launch/order_fence.h"
#include "launch/remote_fleet.h"
#include "launch/scaler_pages.h"
#include "net/allowed_hosts.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "net/ip_address.h"
#include "net/json_response.h"
#include "net/url.h"

namespace pelton::apps {
namespace {

using cli::Flag;

// Decides again; the first decision that is another one ends it.
Result<void> replay(const std::string& file) {
  std::error_code unseen;
  if (std::filesystem::is_directory(file, unseen)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} is a folder: give a file that --record-facts has made", file),
                 "replay"};
  }
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
  if (decisions == 0) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} holds no decision", file), "replay"};
  }
  fmt::print(stderr, "{} decisions, each as it was recorded\n", decisions);
  return {};
}

Result<Json> ask_pools(const std::string& url, const std::string& key) {
  TRY_ASSIGN(net::HttpCall call, net::make_http_call("GET", url + "/v1/autoscaler"));
  if (!key.empty()) call.headers.add("Authorization", "Bearer " + key);
  call.whole_time_max = std::chrono::seconds(10);
  TRY_ASSIGN(const net::HttpResponse answer, net::http_fetch(std::move(call)));
  TRY_ASSIGN(Json json, Json::parse(answer.body));
  if (answer.status == 200) return json;
  return Error{
      ErrorCode::kIo, fmt::format("{} answers {}: no autoscaler is there", url, answer.status), {}};
}

std::string explained(const Json& pool) {
  std::string text = pool.string("decision").value_or("") + "\n";
  if (const std::string why = pool.string("failure").value_or(""); !why.empty()) {
    text += fmt::format("it does not start: {}\n", why);
  }
  if (const std::string why = pool.string("last_failure").value_or(""); !why.empty()) {
    text += fmt::format("the last start that failed: {}\n", why);
  }
  if (const auto most = pool.integer("gpus_most")) {
    text += fmt::format("the GPUs of all pools leave it {} replicas at most\n", *most);
  }
  const Json* silent = pool.find("silent_gateways");
  if (silent != nullptr && silent->is_array()) {
    const Json* troubles = pool.find("gateway_troubles");
    for (const Json& one : silent->as_array()) {
      const std::string url = one.is_string() ? one.as_string() : "";
      const std::string why = troubles == nullptr ? "" : troubles->string(url).value_or("");
      text += fmt::format("gateway {} does not report{}: the last replica stays for it\n", url,
                          why.empty() ? "" : fmt::format(" ({})", why));
    }
  }
  const Json* outdated = pool.find("outdated");
  if (outdated != nullptr && outdated->is_object()) {
    for (const Json::Member& one : outdated->as_object()) {
      text += fmt::format("{} was started otherwise: {}\n", one.key,
                          one.value.is_string() ? one.value.as_string() : "");
    }
  }
  const Json* terms = pool.find("terms");
  if (terms == nullptr || !terms->is_object()) return text;
  for (const Json::Member& term : terms->as_object()) {
    text += fmt::format("  {:<20} {}\n", term.key, term.value.dump());
  }
  return text;
}

// The last decision of a pool with every term of the rule; of one of two roles, both.
Result<void> explain(const std::string& url, const std::string& key, const std::string& pool) {
  TRY_ASSIGN(const Json answer, ask_pools(url, key));
  const Json* pools = answer.find("pools");
  std::string names;
  std::string text;
  for (const Json& one :
       pools != nullptr && pools->is_array() ? pools->as_array() : Json::Array()) {
    const std::string name = one.string("pool").value_or("");
    const std::string role = one.string("role").value_or("");
    names += (names.empty() ? "" : ", ") + name;
    if (name != pool && one.string("served").value_or("") != pool) continue;
    text += (role.empty() ? "" : role + ": ") + explained(one);
  }
  if (!text.empty()) return write_text(text);
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

// No gateway obeys it: it needs no lead, and stands in the way of nobody who acts.
bool only_advises(const gateway::GatewayConfig& config, const cli::Arguments& arguments) {
  return arguments.has("--advise") ||
         std::ranges::none_of(config.pools, [](const gateway::PoolConfig& pool) {
           return pool.scaling && pool.scaling->launch && !pool.scaling->is_advised_only;
         });
}

// Whoever reaches it learns what runs and, of KEDA's, decides how much: no key is asked for.
Result<void> check_listeners(const gateway::AutoscalerConfig& autoscaler) {
  const auto check_one = [&](std::string_view key, const std::string& host,
                             int port) -> Result<void> {
    if (port < 0 || !net::is_ip_address(host) || net::is_loopback(host)) return {};
    return Error{
        ErrorCode::kBadConfig,
        fmt::format("{}[autoscaler]: '{}' {} lets anyone who reaches this machine see what "
                    "runs, as it asks for no key: give an address of the loopback "
                    "interface, or --open if that is meant",
                    autoscaler.place_of(key), key, host),
        "config"};
  };
  TRY(check_one("listen", autoscaler.host, autoscaler.port));
  return check_one("keda_listen", autoscaler.keda_host, autoscaler.keda_port);
}

Result<void> check(const gateway::GatewayConfig& config, bool is_open) {
  const auto bad = [&](std::string_view key, std::string_view what) {
    return Error{ErrorCode::kBadConfig,
                 fmt::format("{}[autoscaler] {}", config.autoscaler.place_of(key), what), "config"};
  };
  if (config.autoscaler.gateways.empty()) {
    return bad("gateways", "needs 'gateways': the URLs of their admin listeners");
  }
  if (config.autoscaler.lead == gateway::AutoscalerConfig::Lead::kEtcd &&
      config.etcd.endpoints.empty()) {
    return bad("lead", "lead = \"etcd\" needs [etcd] with its endpoints");
  }
  if (!is_open) TRY(check_listeners(config.autoscaler));
  TRY(check_launched(config));
  return GatewayScaling::check(config);
}

// GET /v1/autoscaler, /v1/whatif, /metrics, /health, and the console's pages.
std::unique_ptr<net::HttpServer> make_listener(const gateway::GatewayConfig& config,
                                               const net::AllowedHosts& hosts,
                                               const launch::FleetScaler& scaler,
                                               ComputedPages& computed, FleetConsole* console,
                                               base::Log& log) {
  return std::make_unique<net::HttpServer>(
      net::HttpServer::Options{.address = config.autoscaler.host,
                               .port = config.autoscaler.port,
                               .connections_max = 64,
                               .descriptors_spared = 0,
                               .hosts = hosts.at(config.autoscaler.host)},
      [&scaler, &computed, console](const net::HttpRequest& request,
                                    const std::shared_ptr<net::Exchange>& exchange) {
        if (console != nullptr && console->handle(request, exchange)) return;
        if (computed.handle(request, exchange)) return;
        exchange->send(launch::scaler_answer(request, scaler.states()));
      },
      log);
}

// Of one that does not lead, in a pod of its own: probes see that it is well, and whoever asks for
// decisions that it makes none. Null where it does not listen, or another process does there.
std::unique_ptr<net::HttpServer> listen_on_standby(const gateway::GatewayConfig& config,
                                                   base::Log& log) {
  const bool has_own_address =
      config.autoscaler.lead == gateway::AutoscalerConfig::Lead::kKubernetes;
  if (!has_own_address || config.autoscaler.port <= 0) return nullptr;
  auto listener = std::make_unique<net::HttpServer>(
      net::HttpServer::Options{.address = config.autoscaler.host,
                               .port = config.autoscaler.port,
                               .connections_max = 64,
                               .descriptors_spared = 0},
      [](const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange) {
        if (request.path == "/health") return exchange->send(launch::scaler_answer(request, {}));
        exchange->send(net::error_response(
            {.status = 503, .code = "stands_by", .message = "another autoscaler leads"}));
      },
      log);
  if (listener->start().ok()) return listener;
  return nullptr;
}

// Gateways and servers read their files anew at it, and a terminal that is closed sends it: whoever
// scales them goes on as it was.
void note_hang_up(base::Log& log) {
  if (!cli::take_hang_up()) return;
  log.warning(
      "SIGHUP is ignored: what has changed in the file takes a new start of the autoscaler");
}

// An autoscaler at work: where it decides, and for how long.
class Deciding {
 public:
  Deciding(const gateway::GatewayConfig& config, const cli::Arguments& arguments,
           const base::Clock& clock, base::Log& log)
      : config_(config), arguments_(arguments), clock_(clock), log_(log) {}

  // `lead`: null: nobody else is there. Errors: open_launcher()'s, kIo.
  Result<void> begin(launch::Lead* lead);
  // Until it is to end, another one is obeyed, or the lead is lost.
  Result<void> go_on(const cli::Interrupt& interrupt);

 private:
  Result<void> remember();
  Result<void> listen();
  void hand_over();
  void say_what_is_left() const;

  const gateway::GatewayConfig& config_;
  const cli::Arguments& arguments_;
  const base::Clock& clock_;
  base::Log& log_;
  launch::Lead* lead_ = nullptr;
  int64_t hand_over_ns_ = 0;  // when next
  DemandSignal demand_;
  std::unique_ptr<launch::LauncherSet> launcher_;
  std::unique_ptr<launch::FactsRecorder> recorder_;
  std::unique_ptr<launch::RemoteFleet> fleet_;
  std::unique_ptr<launch::FleetScaler> scaler_;
  std::unique_ptr<ComputedPages> computed_;
  std::unique_ptr<FleetConsole> console_;
  std::unique_ptr<net::HttpServer> listener_;
  std::unique_ptr<launch::KedaScaler> keda_;
};

// To gateways an epoch of whoever leads is newer than every one of somebody who does not, which is
// the time of its start.
uint64_t exchange_epoch(const launch::Lead* lead, const base::Clock& clock) {
  return lead != nullptr ? launch::OrderFence::kLed + lead->epoch()
                         : static_cast<uint64_t>(clock.unix_ms());
}

Result<void> Deciding::begin(launch::Lead* lead) {
  lead_ = lead;
  const uint64_t epoch = lead != nullptr ? lead->epoch() : 0;
  gateway::GatewayConfig config = config_;
  for (gateway::PoolConfig& pool : config.pools) {
    if (pool.scaling && arguments_.has("--advise")) pool.scaling->is_advised_only = true;
  }
  std::vector<launch::ScaledPool> pools = scaled_pools(config);
  launch::RemoteFleet::Options options{.gateways = config_.autoscaler.gateways,
                                       .epoch = exchange_epoch(lead, clock_),
                                       .advises = only_advises(config, arguments_)};
  TRY_ASSIGN(options.key, admin_key(arguments_));
  for (const launch::ScaledPool& pool : pools) {
    if (pool.computes_for.empty()) options.pools.push_back(pool.name);
  }
  TRY_ASSIGN(launcher_, open_launcher(config, epoch, clock_, log_));
  if (arguments_.has("--record-facts")) {
    TRY_ASSIGN(recorder_, launch::FactsRecorder::open(arguments_.text("--record-facts"),
                                                      launch::FactsRecorder::kBytesMax, log_));
  }
  options.on_demand = [this] { demand_.notify(); };
  fleet_ = std::make_unique<launch::RemoteFleet>(std::move(options), clock_, log_);
  scaler_ = std::make_unique<launch::FleetScaler>(std::move(pools), *launcher_, *fleet_, clock_,
                                                  log_, recorder_.get(), epoch);
  if (config_.autoscaler.gpus_max) scaler_->share_gpus(*config_.autoscaler.gpus_max);
  if (lead_ != nullptr) TRY(remember());
  return {};
}

Result<void> Deciding::remember() {
  TRY_ASSIGN(const std::vector<launch::FleetScaler::Memory> memories, lead_->memories());
  for (const launch::FleetScaler::Memory& one : memories) {
    const Result<void> remembered = scaler_->remember(one);
    if (remembered.ok()) {
      log_.info(fmt::format("pool '{}' is decided on with what was remembered of it", one.pool));
    } else {
      log_.warning(fmt::format("pool '{}': {}", one.pool, remembered.error().message));
    }
  }
  return {};
}

void Deciding::hand_over() {
  constexpr int64_t kEach_ns = 5'000'000'000;
  if (lead_ == nullptr || clock_.now_ns() < hand_over_ns_) return;
  hand_over_ns_ = clock_.now_ns() + kEach_ns;
  lead_->keep(scaler_->memories());
}

// Nobody stops them from here on: the one that is obeyed has them too, or knows nothing of them.
void Deciding::say_what_is_left() const {
  std::string names;
  for (const launch::LaunchedReplica& one : launcher_->list()) {
    if (one.state == launch::LaunchedReplica::State::kEnded) continue;
    names += fmt::format("{}{}-{}", names.empty() ? "" : ", ", one.order.pool, one.order.ordinal);
  }
  if (names.empty()) return;
  log_.warning(
      fmt::format("these replicas go on: {}; the autoscaler that is obeyed has them if it has this "
                  "state_dir, else whoever starts one with it again",
                  names));
}

Result<void> Deciding::listen() {
  if (config_.autoscaler.keda_port >= 0) {
    TRY_ASSIGN(keda_, launch::KedaScaler::open({.host = config_.autoscaler.keda_host,
                                                .port = config_.autoscaler.keda_port},
                                               [this] { return scaler_->states(); }));
    log_.info(fmt::format("KEDA's scaler listens on {}",
                          net::format_host_port(config_.autoscaler.keda_host, keda_->port())));
  }
  if (config_.autoscaler.port < 0) return {};
  TRY_ASSIGN(const net::AllowedHosts hosts, net::AllowedHosts::parse(config_.allowed_hosts));
  TRY_ASSIGN(std::string program, own_program());
  computed_ = std::make_unique<ComputedPages>(
      ComputedPages::Parts{.program = std::move(program),
                           .facts_file = arguments_.text("--record-facts"),
                           .capacity_file = {}});
  if (has_operators_console(arguments_)) {
    console_ = std::make_unique<FleetConsole>(
        FleetConsole::Parts{.gateway = nullptr,
                            .states = [this] { return scaler_->states(); },
                            .computed = computed_.get(),
                            .clock = clock_,
                            .log = log_});
  }
  listener_ = make_listener(config_, hosts, *scaler_, *computed_, console_.get(), log_);
  TRY(listener_->start());
  return write_output(
      fmt::format("listening on http://{}\n",
                  net::format_host_port(config_.autoscaler.host, listener_->port())));
}

Result<void> Deciding::go_on(const cli::Interrupt& interrupt) {
  const auto leads = [this] { return lead_ == nullptr || lead_->leads(); };
  const Error lost{ErrorCode::kIo,
                   "the lead is lost: it was not renewed in time, or another autoscaler decides",
                   {}};
  if (!leads()) return lost;
  // So that whoever asks when it listens finds a decision.
  std::chrono::milliseconds next = scaler_->turn(false);
  TRY(listen());
  while (!interrupt.pending() && !fleet_->is_superseded() && leads()) {
    note_hang_up(log_);
    hand_over();
    const bool asked = demand_.wait(next) == DemandSignal::Woken::kByDemand;
    if (leads()) next = scaler_->turn(asked);
  }
  keda_.reset();
  if (listener_ != nullptr) listener_->stop(std::chrono::milliseconds(0));
  if (!leads()) return lost;
  if (fleet_->is_superseded()) {
    say_what_is_left();
    return Error{ErrorCode::kUnavailable, "a newer autoscaler is obeyed by the gateways",
                 std::string(cli::kSuperseded)};
  }
  hand_over_ns_ = 0;
  hand_over();
  return {};
}

Result<std::unique_ptr<launch::LeadStore>> open_lead_store(const gateway::GatewayConfig& config,
                                                           std::chrono::seconds lease,
                                                           const base::Clock& clock) {
  if (config.autoscaler.lead == gateway::AutoscalerConfig::Lead::kKubernetes) {
    TRY_ASSIGN(cluster::KubernetesApi::Options api, kubernetes_api_options(config.kubernetes));
    // A call that hangs must leave time for another one before the lease is over.
    api.time_max = std::max<std::chrono::milliseconds>(std::chrono::milliseconds(lease) / 4,
                                                       std::chrono::milliseconds(500));
    return std::unique_ptr<launch::LeadStore>(std::make_unique<launch::KubernetesLeadStore>(
        launch::KubernetesLeadStore::Options{.api = std::move(api),
                                             .name_space = config.autoscaler.lease_namespace,
                                             .name = config.autoscaler.lease_name,
                                             .lease = lease},
        clock));
  }
  launch::EtcdLeadStore::Options options{.prefix = config.etcd.prefix, .lease = lease};
  TRY_ASSIGN(options.etcd, etcd_options(config.etcd));
  return std::unique_ptr<launch::LeadStore>(
      std::make_unique<launch::EtcdLeadStore>(std::move(options)));
}

Result<void> decide_until_stopped(const gateway::GatewayConfig& config,
                                  const cli::Arguments& arguments) {
  const base::SystemClock clock;
  base::Log log(clock, {.level = log_level(arguments), .json = arguments.has("--log-json")});
  warn_of_root(log);
  const cli::Interrupt interrupt(cli::Interrupt::HangUp::kReported);
  if (config.autoscaler.lead == gateway::AutoscalerConfig::Lead::kNone ||
      only_advises(config, arguments)) {
    Deciding deciding(config, arguments, clock, log);
    TRY(deciding.begin(nullptr));
    return deciding.go_on(interrupt);
  }
  launch::SharedClock shared;
  const std::chrono::seconds lease(config.autoscaler.lease_s);
  TRY_ASSIGN(std::unique_ptr<launch::LeadStore> store, open_lead_store(config, lease, shared));
  launch::Lead lead(std::move(store), lease, shared, log);
  std::unique_ptr<net::HttpServer> standby;
  for (bool is_first = true; !lead.try_to_lead(); is_first = false) {
    if (is_first) log.info("stands by: another autoscaler leads, or nobody says who does");
    if (standby == nullptr) standby = listen_on_standby(config, log);
    const auto until = std::chrono::steady_clock::now() + lead.look_again();
    constexpr std::chrono::milliseconds kSlice{100};
    while (std::chrono::steady_clock::now() < until && !interrupt.pending()) {
      note_hang_up(log);
      std::this_thread::sleep_for(kSlice);
    }
    if (interrupt.pending()) return {};
  }
  if (standby != nullptr) standby->stop(std::chrono::milliseconds(0));
  standby.reset();
  Deciding deciding(config, arguments, shared, log);
  TRY(deciding.begin(&lead));
  return deciding.go_on(interrupt);
}

Result<void> run_autoscale(const cli::Arguments& arguments) {
  if (arguments.has("--replay")) return replay(arguments.text("--replay"));
  gateway::GatewayConfig config;
  const bool has_config = arguments.has("--config");
  if (has_config) {
    TRY_ASSIGN(config, gateway::read_gateway_config(
                           arguments.text("--config"),
                           {.allows_empty = true, .open = arguments.has("--open")}));
  }
  if (arguments.has("--explain")) {
    TRY_ASSIGN(const std::string key, admin_key(arguments));
    return explain(explained_url(arguments, has_config ? &config : nullptr), key,
                   arguments.text("--explain"));
  }
  if (!has_config) {
    return Error{ErrorCode::kInvalidArgument,
                 "--config FILE says which gateways and pools there are", "config"};
  }
  TRY(check(config, arguments.has("--open")));
  if (arguments.has("--check")) {
    TRY(admin_key(arguments));
    return write_output("the configuration is sound\n");
  }
  return decide_until_stopped(config, arguments);
}

// Those that other listeners have, too.
void add_shared_flags(cli::Verb& verb) {
  Flag console = operators_console_flag();
  console.only_with = {{"--config"}};
  console.not_with = {{"--check"}};
  verb.flags.push_back(std::move(console));
  for (Flag& flag : life_flags()) {
    if (flag.name != "--log-level") continue;
    flag.only_with = {{"--config"}};
    flag.not_with = {{"--explain"}, {"--check"}};
    verb.flags.push_back(std::move(flag));
  }
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
                 .help =
                     "decide and say so in the log and metrics, and do nothing: beside one that "
                     "acts, too, with a state_dir and listeners of its own",
                 .kind = Flag::Kind::kSwitch,
                 .only_with = {{"--config"}},
                 .not_with = {{"--explain"}, {"--check"}}},
                {.name = "--explain",
                 .value = "POOL",
                 .help = "ask a running autoscaler for its last decision, with every term, and end",
                 .may_be_empty = false,
                 .not_with = {{"--replay"}}},
                {.name = "--admin",
                 .value = "URL",
                 .help =
                     "where that one listens; default: as --config says, or http://127.0.0.1:8091",
                 .only_with = {{"--explain"}}},
                {.name = "--admin-key-file",
                 .value = "FILE",
                 .help = "an operator's key, the file's first line: for gateways with --admin-keys",
                 .may_be_empty = false,
                 .not_with = {{"--replay"}}},
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
      .run = run_autoscale,
  };
  add_shared_flags(verb);
  return verb;
}

}  // namespace pelton::apps
