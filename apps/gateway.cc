// pelton gateway: one address before many workers, until SIGTERM or Ctrl-C.
#include "gateway/gateway.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "access/admin_gate.h"
#include "access/audit_log.h"
#include "access/audit_metrics.h"
#include "access/audited_exchange.h"
#include "api/error.h"
#include "apps/audit_flags.h"
#include "apps/chains_flags.h"
#include "apps/computed_pages.h"
#include "apps/config_files.h"
#include "apps/config_worker.h"
#include "apps/console_flags.h"
#include "apps/fleet_console.h"
#include "apps/fleet_events.h"
#include "apps/gateway_chains.h"
#include "apps/gateway_reload.h"
#include "apps/gateway_scaling.h"
#include "apps/input.h"
#include "apps/life_cycle.h"
#include "apps/listener_flags.h"
#include "apps/own_server.h"
#include "apps/scaling_exchange.h"
#include "apps/verbs.h"
#include "apps/version.h"
#include "capacity/capacity_file.h"
#include "cli/interrupt.h"
#include "cluster/fleet_key.h"
#include "console/event_streams.h"
#include "console/pages.h"
#include "gateway/admin_audit.h"
#include "gateway/admin_scopes.h"
#include "gateway/config_text.h"
#include "gateway/grpc_listener.h"
#include "net/http_server.h"
#include "net/json_response.h"
#include "net/url.h"

namespace pelton::apps {
namespace {

using cli::Flag;

constexpr std::chrono::seconds kLastTime{2};
constexpr std::chrono::seconds kStopTime{10};  // for replicas, which have nothing to do then

// Closed before the gateway goes.
struct Listeners {
  std::unique_ptr<net::HttpServer> http;
  std::unique_ptr<net::HttpServer> admin;       // null: there is none
  std::unique_ptr<gateway::GrpcListener> grpc;  // likewise
};

// The page of whoever may ask: it holds nothing, and asks for a key where the API does.
void send_chat(const net::HttpRequest& request, net::Exchange& exchange, bool has_chains) {
  console::Config config{.version = kVersion, .pages = {"chat", "models"}};
  if (has_chains) config.pages.emplace_back("chains");
  const bool reads = request.method == "GET" || request.method == "HEAD";
  exchange.send(reads ? console::console_reply(request, config)
                      : console::only_for_reading(request));
}

// What they answer with.
struct Answering {
  gateway::Gateway& gateway;
  GatewayReload& reload;
  const ConfigFiles& config_files;
  ConfigWorker& config_worker;  // what calls these two
  ScalingExchange& others;
  ComputedPages& computed;
  GatewayChains* chains = nullptr;          // null: there are none
  const GatewayScaling* scaling = nullptr;  // null: nobody scales here
  FleetConsole* console = nullptr;          // null: there is none
  FleetEvents* events = nullptr;            // null: nobody could ask for them
  bool has_chat = false;
  const access::AdminGate& gate;
};

// Who asks, by a key or by having signed in at the console; or why he may not.
std::variant<std::string, api::ApiError> admitted(const Answering& with,
                                                  const net::HttpRequest& request) {
  const access::OperatorRole needed = gateway::role_needed(request);
  if (with.gate.asks() && needed == access::OperatorRole::kView && with.console != nullptr) {
    if (std::optional<std::string> name = with.console->signed_in(request)) return *std::move(name);
  }
  return with.gate.admit(request, needed);
}

// Whether what is streamed to whoever asks may go on: keys go, and sessions end.
console::EventStreams::MayGoOn still_admitted(const Answering& with,
                                              const net::HttpRequest& request) {
  net::HttpRequest head{.method = request.method,
                        .path = request.path,
                        .query = request.query,
                        .headers = request.headers,
                        .body = {},
                        .remote = request.remote,
                        .tls = request.tls};
  return [with, head = std::move(head)] {
    return std::holds_alternative<std::string>(admitted(with, head));
  };
}

// Of a request that whoever asks may not: a line of the audit log, and what he is answered.
net::HttpResponse refused_answer(const Answering& with, const net::HttpRequest& request,
                                 const api::ApiError& why) {
  gateway::audit_refusal(request, why, with.gateway.audit());
  net::HttpResponse answer = net::json_response(api::error_body(why), why.status);
  if (why.status == 401) answer.headers.add("WWW-Authenticate", "Bearer");
  return answer;
}

// On the worker's thread. Since the request came its key may have gone.
net::HttpResponse config_answer(const Answering& with, const net::HttpRequest& request,
                                const std::string& who) {
  if (!access::is_reading(request)) {
    const auto still = with.gate.admit(request, gateway::role_needed(request));
    if (const auto* why = std::get_if<api::ApiError>(&still))
      return refused_answer(with, request, *why);
  }
  return ConfigFiles::is_one(request.path) ? with.config_files.answer(request)
                                           : with.reload.answer(request, who);
}

void answer_config(const Answering& with, const net::HttpRequest& request,
                   const std::shared_ptr<net::Exchange>& exchange, const std::string& who) {
  if (std::optional<net::HttpResponse> large = GatewayReload::refused_at_once(request)) {
    return exchange->send(*std::move(large));
  }
  with.config_worker.answer(exchange,
                            [with, request, who] { return config_answer(with, request, who); });
}

void answer_operator(const Answering& with, const net::HttpRequest& request,
                     std::shared_ptr<net::Exchange> exchange) {
  const std::variant<std::string, api::ApiError> who = admitted(with, request);
  if (const auto* why = std::get_if<api::ApiError>(&who)) {
    return exchange->send(refused_answer(with, request, *why));
  }
  const std::string& name = std::get<std::string>(who);
  exchange = gateway::audited(request, exchange, with.gateway.audit(), name);
  if (with.events != nullptr &&
      with.events->handle(request, exchange, with.gate.asks() ? name : std::string(),
                          still_admitted(with, request))) {
    return;
  }
  if (with.console != nullptr &&
      with.console->handle(request, exchange, still_admitted(with, request))) {
    return;
  }
  if (with.computed.handle(request, exchange)) return;
  if (request.path == "/v1/config" || request.path.starts_with("/v1/config/")) {
    return answer_config(with, request, exchange, name);
  }
  if (with.scaling != nullptr && request.path == "/v1/autoscaler") {
    return exchange->send(with.scaling->page());
  }
  // One that is in this process is the only one.
  if (with.scaling == nullptr && with.others.handle(request, exchange, name)) return;
  with.gateway.handle_admin(request, exchange, [&](telemetry::PrometheusText& text) {
    if (with.scaling != nullptr) with.scaling->add_metrics(text);
    if (with.chains != nullptr) with.chains->add_metrics(text);
    access::add_audit_metrics(with.gateway.audit(), text);
  });
}

Result<Listeners> open_listeners(const gateway::GatewayConfig& config, const Answering& with,
                                 base::Log& log) {
  TRY_ASSIGN(const net::AllowedHosts hosts, net::AllowedHosts::parse(config.allowed_hosts));
  Listeners listeners;
  listeners.http = std::make_unique<net::HttpServer>(
      net::HttpServer::Options{
          .address = config.host,
          .port = config.port,
          .threads = config.threads,
          .connections_max = 16'384,
          .hosts = hosts.at(config.host),
          .http2 = config.http2,
          .takes_body =
              [with](const net::HttpRequest& head) { return with.gateway.takes_body(head); }},
      [with](net::HttpRequest request, const std::shared_ptr<net::Exchange>& exchange) {
        if (with.has_chat && console::is_console_path(request.path)) {
          return send_chat(request, *exchange, with.chains != nullptr);
        }
        if (with.chains != nullptr && with.chains->handle(request, exchange)) return;
        with.gateway.handle(std::move(request), exchange);
      },
      log);
  TRY(listeners.http->start());
  if (with.console != nullptr && with.has_chat) {
    with.console->set_chat_port(listeners.http->port());
  }
  if (config.grpc_port >= 0) {
    listeners.grpc = std::make_unique<gateway::GrpcListener>(
        [with](net::HttpRequest request, const std::shared_ptr<net::Exchange>& exchange) {
          with.gateway.handle_grpc(std::move(request), exchange);
        },
        [with](const net::HttpRequest& head) { return with.gateway.takes_body(head); }, log);
    TRY(listeners.grpc->open({.address = config.grpc_host,
                              .port = config.grpc_port,
                              .hosts = hosts.at(config.grpc_host)}));
  }
  if (config.admin_port < 0) return listeners;
  listeners.admin = std::make_unique<net::HttpServer>(
      net::HttpServer::Options{.address = config.admin_host,
                               .port = config.admin_port,
                               .connections_max = 64,
                               .descriptors_spared = 0,
                               .hosts = hosts.at(config.admin_host),
                               .body_bytes_max = size_t{32} << 20},
      [with](const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange) {
        answer_operator(with, request, exchange);
      },
      log);
  TRY(listeners.admin->start());
  return listeners;
}

// Null: nobody could see it.
std::unique_ptr<FleetConsole> operators_console(
    const gateway::GatewayConfig& config, gateway::Gateway& gateway, const access::AdminGate& gate,
    GatewayReload& reload, ConfigWorker& config_worker, const GatewayScaling* scaling,
    const ComputedPages& computed, bool has_chains, const base::Clock& clock, base::Log& log) {
  if (config.admin_port < 0) return nullptr;
  FleetConsole::Parts parts{.gateway = &gateway,
                            .states = nullptr,
                            .reload = &reload,
                            .config_worker = &config_worker,
                            .computed = &computed,
                            .gate = &gate,
                            .has_chains = has_chains,
                            .clock = clock,
                            .log = log};
  if (scaling != nullptr) parts.states = [scaling] { return scaling->states(); };
  return std::make_unique<FleetConsole>(std::move(parts));
}

std::unique_ptr<FleetEvents> fleet_events(const gateway::GatewayConfig& config,
                                          gateway::Gateway& gateway, const GatewayReload& reload,
                                          const GatewayScaling* scaling,
                                          const FleetConsole* console, const base::Clock& clock) {
  if (config.admin_port < 0) return nullptr;
  FleetEvents::Parts parts{.gateway = gateway, .reload = reload, .clock = clock};
  if (scaling != nullptr) parts.states = [scaling] { return scaling->states(); };
  if (console != nullptr) parts.conditions = [console] { return console->conditions(); };
  return std::make_unique<FleetEvents>(std::move(parts));
}

Result<std::unique_ptr<ComputedPages>> computed_pages(const cli::Arguments& arguments) {
  TRY_ASSIGN(std::string program, own_program());
  return std::make_unique<ComputedPages>(
      ComputedPages::Parts{.program = std::move(program),
                           .facts_file = arguments.text("--record-facts"),
                           .capacity_file = arguments.text("--capacity")});
}

ConfigFiles files_beside(const cli::Arguments& arguments) {
  return ConfigFiles(
      {.capacity_file = arguments.text("--capacity"), .chains_folder = arguments.text("--chains")});
}

// A gateway's own autoscaler starts replicas of its machine, and is the only one.
Result<void> check_alone(const gateway::GatewayConfig& config) {
  TRY(GatewayScaling::check(config));
  const auto refused = [&](std::string_view key, std::string_view why) {
    return Error{ErrorCode::kBadConfig,
                 fmt::format("{}[autoscaler]: '{}' is for pelton autoscale: a gateway's own "
                             "autoscaler {}",
                             config.autoscaler.place_of(key), key, why),
                 "with-autoscaler"};
  };
  if (config.autoscaler.port >= 0) {
    return refused("listen", "answers where 'admin' of [gateway] does");
  }
  if (config.autoscaler.keda_port >= 0) {
    return refused("keda_listen", "starts replicas of its machine");
  }
  if (config.autoscaler.lead != gateway::AutoscalerConfig::Lead::kNone) {
    return refused("lead", "is alone");
  }
  return {};
}

// What is kept of what is asked and changed; null: none is.
struct Kept {
  std::unique_ptr<gateway::RequestLog> requests;
  std::unique_ptr<access::AuditLog> audit;
};
Result<Kept> open_kept(const cli::Arguments& arguments, const base::Clock& clock, base::Log& log) {
  Kept kept;
  if (arguments.has("--record-requests")) {
    TRY_ASSIGN(kept.requests,
               gateway::RequestLog::open(arguments.text("--record-requests"), {}, log));
  }
  TRY_ASSIGN(kept.audit, open_audit(arguments, clock, log));
  return kept;
}

// What is under way may end by itself for 'drain_seconds'; what has not then ends with an error
// that says so, for which there is kLastTime.
void stop_serving(gateway::Gateway& gateway, Listeners& listeners) {
  using std::chrono::steady_clock;
  gateway.drain();
  const std::chrono::milliseconds drain = gateway.drain_time();
  const auto end = steady_clock::now() + drain + kLastTime;
  std::jthread last([&gateway, drain](const std::stop_token& stopped) {
    std::mutex mutex;
    std::condition_variable_any over;
    std::unique_lock lock(mutex);
    over.wait_for(lock, stopped, drain, [] { return false; });
    if (!stopped.stop_requested()) gateway.interrupt();
  });
  const auto left = [&end] {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - steady_clock::now());
    return std::max(left, std::chrono::milliseconds(0));
  };
  if (listeners.grpc != nullptr) listeners.grpc->close(left());
  listeners.http->stop(left());
}

void note_oddities(const gateway::Gateway::Options& options, const gateway::GatewayConfig& config,
                   base::Log& log) {
  warn_of_root(log);
  if (options.keys.have_limits() && config.etcd.endpoints.empty()) {
    log.info("limits of keys are this gateway's own: others are found by [etcd] only");
  }
}

// Why it would let nobody in.
Result<void> check_operators(const cli::Arguments& arguments, const gateway::GatewayConfig& config,
                             const access::OperatorKeys& operators) {
  if (!arguments.has("--admin-keys")) return {};
  const auto refused = [](std::string_view why) {
    return Error{ErrorCode::kBadConfig, fmt::format("--admin-keys: {}", why), "admin-keys"};
  };
  if (config.admin_port < 0) return refused("the configuration has no 'admin' listener");
  if (operators.empty()) {
    return refused(
        "no key of 'keys_file' has a role: role=view, role=operate or role=admin behind it");
  }
  return {};
}

// What flags ask of the configuration, at the start and of each that is to be in force later.
Result<void> check_flags(const cli::Arguments& arguments, const gateway::GatewayConfig& config,
                         const access::OperatorKeys& operators) {
  TRY(check_operators(arguments, config, operators));
  return arguments.has("--with-autoscaler") ? check_alone(config) : Result<void>();
}

// On stdout: where it listens.
void announce(const Listeners& listeners, const gateway::GatewayConfig& config, base::Log& log) {
  std::string lines = fmt::format("listening on http://{}\n",
                                  net::format_host_port(config.host, listeners.http->port()));
  if (listeners.grpc != nullptr) {
    lines += fmt::format("grpc on {}\n",
                         net::format_host_port(config.grpc_host, listeners.grpc->port()));
  }
  if (listeners.admin != nullptr) {
    lines += fmt::format("admin on http://{}\n",
                         net::format_host_port(config.admin_host, listeners.admin->port()));
  }
  const Result<void> written = write_output(lines);
  if (!written) log.warning(written.error().message);  // nobody reads stdout; serving matters more
}

// What is known before anything is opened.
struct Beginning {
  std::string file;
  gateway::ConfigRules rules;
  gateway::GatewayConfig config;
  TextsByFile texts;
  GatewayOptions read;
};
Result<Beginning> read_files(const cli::Arguments& arguments) {
  Beginning begun{
      .file = arguments.text("--config"),
      .rules = {.allows_empty = arguments.has("--allow-empty"), .open = arguments.has("--open")}};
  TRY_ASSIGN(begun.config, gateway::read_gateway_config(begun.file, begun.rules));
  TRY_ASSIGN(begun.read, gateway_options(begun.config, begun.texts));
  TRY(check_flags(arguments, begun.config, begun.read.operators));
  TRY(check_chains(arguments));
  if (arguments.has("--capacity")) TRY(capacity::read_needs(arguments.text("--capacity")));
  return begun;
}

Result<void> serve(const cli::Arguments& arguments, Beginning begun, const base::Clock& clock,
                   base::Log& log) {
  const std::string& file = begun.file;
  const gateway::GatewayConfig& config = begun.config;
  gateway::Gateway::Options& options = begun.read.gateway;
  const bool scales = arguments.has("--with-autoscaler");
  access::AdminGate gate(admin_keys(arguments));
  gate.set_keys(std::move(begun.read.operators));
  note_oddities(options, config, log);
  TRY_ASSIGN(const Kept kept, open_kept(arguments, clock, log));
  options.requests = kept.requests.get();
  options.audit = kept.audit.get();
  const cli::Interrupt interrupt(cli::Interrupt::HangUp::kReported);
  DemandSignal demand;
  DemandCount demand_count;
  options.on_demand = [&demand, &demand_count] {
    demand.notify();
    demand_count.notify();
  };
  gateway::Gateway gateway(std::move(options), clock, log);
  GatewayReload reload(
      file, begun.rules, config, std::move(begun.texts),
      [&arguments](const gateway::GatewayConfig& fresh, const access::OperatorKeys& operators) {
        return check_flags(arguments, fresh, operators);
      },
      gateway, gate, clock, log);
  reload.audit_start();
  const ConfigFiles config_files = files_beside(arguments);
  ConfigWorker config_worker;
  std::unique_ptr<GatewayScaling> scaling;  // null: replicas are others' business
  if (scales) {
    TRY_ASSIGN(scaling, GatewayScaling::make(config, arguments.text("--record-facts"), gateway,
                                             demand, clock, log));
  }
  ScalingExchange others(gateway, demand_count, clock);
  TRY_ASSIGN(const std::unique_ptr<GatewayChains> chains,
             GatewayChains::open(arguments, gateway, clock));
  TRY_ASSIGN(const std::unique_ptr<ComputedPages> computed, computed_pages(arguments));
  std::unique_ptr<FleetConsole> console;  // null: nobody could see it, or should
  if (has_operators_console(arguments)) {
    console = operators_console(config, gateway, gate, reload, config_worker, scaling.get(),
                                *computed, chains != nullptr, clock, log);
  }
  const std::unique_ptr<FleetEvents> events =
      fleet_events(config, gateway, reload, scaling.get(), console.get(), clock);
  TRY_ASSIGN(Listeners listeners, open_listeners(config,
                                                 {.gateway = gateway,
                                                  .reload = reload,
                                                  .config_files = config_files,
                                                  .config_worker = config_worker,
                                                  .others = others,
                                                  .computed = *computed,
                                                  .chains = chains.get(),
                                                  .scaling = scaling.get(),
                                                  .console = console.get(),
                                                  .events = events.get(),
                                                  .has_chat = has_console(arguments),
                                                  .gate = gate},
                                                 log));
  if (scales) scaling->start();
  announce(listeners, config, log);

  while (interrupt.next() == cli::Interrupt::Event::kHangUp) reload.reload("SIGHUP");
  stop_serving(gateway, listeners);
  if (scaling != nullptr) scaling->stop(kStopTime);
  if (listeners.admin != nullptr) listeners.admin->stop(std::chrono::milliseconds(0));
  config_worker.stop();  // beyond this point nobody changes the configuration
  if (kept.audit != nullptr) kept.audit->note({.what = "stop", .target = file});
  return {};
}

Result<void> run_gateway(const cli::Arguments& arguments) {
  if (arguments.has("--new-key")) return cluster::FleetKey::create(arguments.text("--new-key"));
  if (!arguments.has("--config")) {
    return Error{ErrorCode::kInvalidArgument, "--config FILE says which workers there are",
                 "config"};
  }
  TRY_ASSIGN(Beginning begun, read_files(arguments));
  const base::SystemClock clock;
  base::Log log(clock, {.level = log_level(arguments), .json = arguments.has("--log-json")});
  if (arguments.has("--print-config")) return write_output(gateway::config_text(begun.config));
  if (arguments.has("--check")) return write_output("the configuration is sound\n");
  return serve(arguments, std::move(begun), clock, log);
}

Flag admin_keys_flag() {
  return {.name = "--admin-keys",
          .help =
              "ask for operators' keys at the admin listener: those of keys_file with "
              "role=view, role=operate or role=admin",
          .kind = Flag::Kind::kSwitch,
          .only_with = {{"--config"}}};
}

// Files beside the configuration: what it keeps of what it hears, and what machines there are.
std::vector<Flag> file_flags() {
  std::vector<Flag> flags =
      audit_flags("changes of the configuration, operators' commands and refusals by residency");
  flags.front().not_with = {{"--check"}, {"--print-config"}};
  Flag own[] = {
      {.name = "--capacity",
       .value = "FILE",
       .help = "machines, variants and demands, as docs/capacity.md has it: the console's page "
               "Capacity, and /v1/capacity at the admin listener",
       .may_be_empty = false,
       .only_with = {{"--config"}}},
      {.name = "--record-facts",
       .value = "FILE",
       .help = "keep the facts that the autoscaler hears and what it decides, for pelton "
               "autoscale --replay; at 64 MiB it becomes FILE.1",
       .may_be_empty = false,
       .only_with = {{"--with-autoscaler"}}},
      {.name = "--record-requests",
       .value = "FILE",
       .help = "keep when requests came, how long they were and what became of them, no "
               "text, for pelton simulate --requests; at 256 MiB it becomes FILE.1",
       .may_be_empty = false,
       .only_with = {{"--config"}},
       .not_with = {{"--check"}, {"--print-config"}}}};
  for (Flag& flag : own) flags.push_back(std::move(flag));
  return flags;
}

}  // namespace

cli::Verb gateway_verb() {
  cli::Verb verb{
      .name = "gateway",
      .summary = "Puts one address before many workers.",
      .about =
          "Sends each request to the worker of its model's pool where it costs the least time, by\n"
          "load and by what workers hold of its prompt, and relays the answer. When a worker "
          "fails, its answers go on at others from the last token: the\n"
          "client sees no gap and no error. Workers are pelton serve with --fleet-port. Prints\n"
          "'listening on URL' on stdout once it answers. The file is read anew on SIGHUP, and "
          "when\n"
          "it has changed. docs/gateway.md has its keys, docs/images.md those of pools whose\n"
          "workers make images and videos.",
      .flags = {{.name = "--config", .value = "FILE", .help = "pools and workers, as TOML"},
                {.name = "--check",
                 .help = "read the configuration, say whether it is sound, and end",
                 .kind = Flag::Kind::kSwitch,
                 .only_with = {{"--config"}}},
                {.name = "--print-config",
                 .help = "print the configuration with all that it leaves out, and end",
                 .kind = Flag::Kind::kSwitch,
                 .only_with = {{"--config"}}},
                {.name = "--allow-empty",
                 .help = "start without a worker",
                 .kind = Flag::Kind::kSwitch,
                 .only_with = {{"--config"}}},
                {.name = "--with-autoscaler",
                 .help =
                     "start and stop replicas on this machine, as [pool.scale] and [pool.launch] "
                     "say (docs/scaling.md)",
                 .kind = Flag::Kind::kSwitch,
                 .only_with = {{"--config"}}},
                {.name = "--open",
                 .help = "listen beyond this machine though nobody is asked for a key",
                 .kind = Flag::Kind::kSwitch,
                 .only_with = {{"--config"}}},
                {.name = "--new-key",
                 .value = "FILE",
                 .help = "write a new fleet key there, for gateways and workers, and end"},
                {.name = "--log-json",
                 .help = "log lines as JSON",
                 .kind = Flag::Kind::kSwitch,
                 .only_with = {{"--config"}}}},
      .exclusive = {{"--config", "--new-key"}, {"--check", "--print-config"}},
      .examples = {"pelton gateway --new-key fleet.key",
                   "pelton gateway --config gateway.toml --check",
                   "pelton gateway --config gateway.toml",
                   "pelton gateway --config gateway.toml --record-requests requests.jsonl",
                   "pelton gateway --config gateway.toml --capacity capacity.toml"},
      .run = run_gateway,
  };
  verb.flags.push_back(admin_keys_flag());
  for (Flag& flag : file_flags()) verb.flags.push_back(std::move(flag));
  for (Flag& flag : console_flags("operators")) {
    flag.only_with = {{"--config"}};
    flag.not_with = {{"--check"}, {"--print-config"}};
    verb.flags.push_back(std::move(flag));
  }
  for (Flag& flag : chains_flags()) {
    if (flag.only_with.empty()) flag.only_with = {{"--config"}};
    verb.flags.push_back(std::move(flag));
  }
  for (Flag& flag : life_flags()) {
    if (flag.name != "--log-level") continue;
    flag.only_with = {{"--config"}};
    verb.flags.push_back(std::move(flag));
  }
  return verb;
}

}  // namespace pelton::apps
