#include "apps/scaled_pools.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apps/own_server.h"
#include "apps/verbs.h"
#include "base/random.h"
#include "launch/kubernetes_site.h"
#include "launch/simulated_provider.h"
#include "launch/site_launcher.h"
#include "launch/slurm_site.h"
#include "net/allowed_hosts.h"
#include "net/ip_address.h"
#include "net/tls_trust.h"
#include "net/url.h"
#include "node/model_names.h"

namespace pelton::apps {
namespace {

// The replicas that compute prompts for a pool are a pool of their own to whoever launches them. No
// pool of a configuration has such a name.
std::string prefill_name(const std::string& pool) {
  return pool + ":prefill";
}

bool is_split(const gateway::PoolConfig& pool) {
  return pool.split.mode != gateway::SplitConfig::Mode::kOff;
}

// Of one that exchanges keys and values with the other role's.
std::vector<std::string> with_role(std::vector<std::string> words, std::string_view role) {
  const bool has_port = std::ranges::any_of(words, [](const std::string& word) {
    return word == "--kv-port" || word.starts_with("--kv-port=");
  });
  if (!has_port) words.insert(words.end(), {"--kv-port", "0"});
  words.insert(words.end(), {"--fleet-role", std::string(role)});
  return words;
}

// What a replica's command line says of its models' names.
struct ServedNames {
  bool are_known = false;  // else another file says them, or adapters have names of their own
  bool are_given = false;  // by --served-model-name or --alias
  bool is_one_model = false;
  std::vector<std::string> names;
};

Result<ServedNames> served_names(const std::vector<std::string>& serve) {
  std::vector<std::string> words = {"serve"};
  words.insert(words.end(), serve.begin(), serve.end());
  const cli::CommandLine line(cli::CommandLine::Program{.name = "pelton"}, {serve_verb()});
  TRY_ASSIGN(const cli::CommandLine::Request request, line.parse(words));
  ServedNames served;
  if (request.verb == nullptr) return served;
  const cli::Arguments& arguments = request.arguments;
  for (const char* flag : {"--config", "--enable-lora", "--lora-modules", "--lora-folder"}) {
    if (arguments.knows(flag) && arguments.has(flag)) return served;
  }
  node::GivenNames given{.models = arguments.list("MODEL"), .served_names = {}, .aliases = {}};
  if (given.models.empty()) return served;
  if (arguments.has("--served-model-name")) {
    given.served_names = arguments.list("--served-model-name");
  }
  given.aliases = arguments.list("--alias");
  TRY_ASSIGN(const std::vector<node::NamedModel> models, node::name_models(given));
  served = {.are_known = true,
            .are_given = !given.served_names.empty() || !given.aliases.empty(),
            .is_one_model = models.size() == 1};
  for (const node::NamedModel& one : models) {
    served.names.push_back(one.id);
    served.names.insert(served.names.end(), one.aliases.begin(), one.aliases.end());
  }
  return served;
}

// A model of the pool's that none of its replicas would answer to; empty: there is none.
std::string unserved(const std::vector<std::string>& models, const ServedNames& served) {
  const auto missing = std::ranges::find_if(models, [&](const std::string& model) {
    return std::ranges::find(served.names, model) == served.names.end();
  });
  return !served.are_known || missing == models.end() ? "" : *missing;
}

// A folder is seldom called as clients call its model: its replicas are, where nobody has named
// them.
std::vector<std::string> naming_words(const gateway::PoolConfig& pool) {
  const Result<ServedNames> served = served_names(pool.scaling->launch->serve);
  if (!served.ok() || unserved(pool.models, *served).empty()) return {};
  if (served->are_given || !served->is_one_model) return {};  // check_launched() refuses it
  std::vector<std::string> words = {"--served-model-name"};
  words.insert(words.end(), pool.models.begin(), pool.models.end());
  return words;
}

std::vector<std::string> serve_arguments(const gateway::PoolConfig& pool,
                                         const std::string& fleet_key_file) {
  const gateway::LaunchConfig& launch = *pool.scaling->launch;
  std::vector<std::string> words = {"serve"};
  words.insert(words.end(), launch.serve.begin(), launch.serve.end());
  const std::vector<std::string> names = naming_words(pool);
  words.insert(words.end(), names.begin(), names.end());
  for (const char* word : {"--port", "0", "--fleet-port", "0", "--fleet-name", "{name}"}) {
    words.emplace_back(word);
  }
  if (fleet_key_file.empty()) return words;
  words.emplace_back("--fleet-key-file");
  words.push_back(fleet_key_file);
  return words;
}

using Kind = gateway::LaunchConfig::Kind;
using PoolNames = std::vector<std::string>;

// A site of pods or jobs mends what it sees: it is opened for pools only that are acted for.
const gateway::LaunchConfig* launch_of(const gateway::PoolConfig& pool, Kind kind) {
  if (!pool.scaling || !pool.scaling->launch || pool.scaling->launch->kind != kind) return nullptr;
  const bool is_of_others = kind == Kind::kKubernetes || kind == Kind::kSlurm;
  const bool is_left_alone = pool.scaling->is_advised_only && is_of_others;
  return is_left_alone ? nullptr : &*pool.scaling->launch;
}

PoolNames pools_of(const gateway::GatewayConfig& config, Kind kind) {
  PoolNames names;
  for (const gateway::PoolConfig& pool : config.pools) {
    if (launch_of(pool, kind) == nullptr) continue;
    names.push_back(pool.name);
    if (is_split(pool)) names.push_back(prefill_name(pool.name));
  }
  return names;
}

// Which lead's epochs count here, in one word.
std::string lead_of(const gateway::GatewayConfig& config) {
  std::string all;
  if (config.autoscaler.lead == gateway::AutoscalerConfig::Lead::kKubernetes) {
    all = fmt::format("kubernetes {} {} {}", config.kubernetes.api,
                      config.autoscaler.lease_namespace, config.autoscaler.lease_name);
  } else {
    all = fmt::format("etcd {}", config.etcd.prefix);
    std::vector<std::string> endpoints = config.etcd.endpoints;
    std::ranges::sort(endpoints);
    for (const std::string& one : endpoints) all += " " + one;
  }
  return fmt::format("{:016x}", base::fnv1a64(all));
}

Result<std::unique_ptr<launch::LocalLauncher>> open_local(const gateway::GatewayConfig& config,
                                                          uint64_t epoch, const base::Clock& clock,
                                                          base::Log& log, Kind kind,
                                                          const std::string& folder) {
  launch::LocalLauncher::Options options{.folder = folder, .epoch = epoch, .lead = lead_of(config)};
  for (const gateway::PoolConfig& pool : config.pools) {
    const gateway::LaunchConfig* launch = launch_of(pool, kind);
    if (launch == nullptr) continue;
    const std::vector<std::string> words = serve_arguments(pool, config.fleet_key_file);
    options.pools[pool.name] = is_split(pool) ? with_role(words, "decode") : words;
    if (is_split(pool)) options.pools[prefill_name(pool.name)] = with_role(words, "prefill");
  }
  TRY_ASSIGN(options.program, own_program());
  return launch::LocalLauncher::open(std::move(options), clock, log);
}

launch::ProvidedMachines machines_of(const gateway::SimulatedConfig& config) {
  launch::ProvidedMachines machines{.quota = config.quota,
                                    .lead_s = config.lead_s,
                                    .lead_p90_s = config.lead_p90_s.value_or(0),
                                    .stock_outs = {},
                                    .reclaim_after_s = config.reclaim_after_s,
                                    .reclaim_notice_s = config.reclaim_notice_s};
  for (const gateway::SimulatedConfig::StockOut& one : config.stock_outs) {
    machines.stock_outs.push_back({.at_s = one.at_s, .for_s = one.for_s});
  }
  return machines;
}

Result<std::unique_ptr<launch::SimulatedProvider>> open_simulated(
    const gateway::GatewayConfig& config, uint64_t epoch, const base::Clock& clock,
    base::Log& log) {
  // Beside those of this machine that no provider stands before.
  TRY_ASSIGN(std::unique_ptr<launch::LocalLauncher> processes,
             open_local(config, epoch, clock, log, Kind::kSimulated,
                        config.autoscaler.state_dir + "/simulated"));
  std::map<std::string, launch::ProvidedMachines> pools;
  for (const gateway::PoolConfig& pool : config.pools) {
    const gateway::LaunchConfig* launch = launch_of(pool, Kind::kSimulated);
    if (launch == nullptr) continue;
    pools[pool.name] = machines_of(launch->simulated);
    if (is_split(pool)) pools[prefill_name(pool.name)] = machines_of(launch->simulated);
  }
  return std::make_unique<launch::SimulatedProvider>(std::move(pools), std::move(processes), clock,
                                                     log);
}

launch::KubernetesSite::Kind site_kind(gateway::LaunchConfig::Workload workload) {
  switch (workload) {
    case gateway::LaunchConfig::Workload::kDeployment:
      return launch::KubernetesSite::Kind::kDeployment;
    case gateway::LaunchConfig::Workload::kStatefulSet:
      return launch::KubernetesSite::Kind::kStatefulSet;
    case gateway::LaunchConfig::Workload::kLeaderWorkerSet:
      return launch::KubernetesSite::Kind::kLeaderWorkerSet;
  }
  return {};
}

Result<std::unique_ptr<launch::Launcher>> open_site(std::unique_ptr<launch::ReplicaSite> site,
                                                    const base::Clock& clock, base::Log& log) {
  TRY_ASSIGN(std::unique_ptr<launch::SiteLauncher> launcher,
             launch::SiteLauncher::open(std::move(site), {}, clock, log));
  return std::unique_ptr<launch::Launcher>(std::move(launcher));
}

Result<std::unique_ptr<launch::Launcher>> open_kubernetes(const gateway::GatewayConfig& config,
                                                          uint64_t epoch, const base::Clock& clock,
                                                          base::Log& log) {
  launch::KubernetesSite::Options options{.epoch = epoch};
  TRY_ASSIGN(options.api, kubernetes_api_options(config.kubernetes));
  for (const gateway::PoolConfig& pool : config.pools) {
    const gateway::LaunchConfig* launch = launch_of(pool, Kind::kKubernetes);
    if (launch == nullptr) continue;
    options.workloads.push_back({.pool = pool.name,
                                 .name_space = launch->name_space,
                                 .kind = site_kind(launch->workload),
                                 .name = launch->workload_name,
                                 .port = launch->port});
  }
  return open_site(std::make_unique<launch::KubernetesSite>(std::move(options), clock, log), clock,
                   log);
}

Result<std::unique_ptr<launch::Launcher>> open_slurm(const gateway::GatewayConfig& config,
                                                     uint64_t epoch, const base::Clock& clock,
                                                     base::Log& log) {
  launch::SlurmSite::Options options{.folder = config.autoscaler.state_dir, .epoch = epoch};
  TRY_ASSIGN(const std::string program, own_program());
  for (const gateway::PoolConfig& pool : config.pools) {
    const gateway::LaunchConfig* launch = launch_of(pool, Kind::kSlurm);
    if (launch == nullptr) continue;
    std::vector<std::string> words = serve_arguments(pool, config.fleet_key_file);
    words.insert(words.begin(), program);
    words.insert(words.end(), {"--fleet-host", "0.0.0.0"});
    launch::SlurmSite::Pool jobs{.words = is_split(pool) ? with_role(words, "decode") : words,
                                 .sbatch = launch->sbatch,
                                 .start_s = launch->start_s,
                                 .drain_s = launch->drain_s};
    options.pools[pool.name] = jobs;
    if (!is_split(pool)) continue;
    jobs.words = with_role(words, "prefill");
    options.pools[prefill_name(pool.name)] = jobs;
  }
  TRY_ASSIGN(std::unique_ptr<launch::SlurmSite> site,
             launch::SlurmSite::open(std::move(options), clock, log));
  return open_site(std::move(site), clock, log);
}

bool is_ready(cluster::WorkerState state) {
  return state == cluster::WorkerState::kReady || state == cluster::WorkerState::kDraining;
}

bool is_silent(cluster::WorkerState state) {
  return state == cluster::WorkerState::kDown || state == cluster::WorkerState::kSuspect;
}

}  // namespace

Result<cluster::KubernetesApi::Options> kubernetes_api_options(
    const gateway::KubernetesConfig& config) {
  cluster::KubernetesApi::Options options{.api = config.api, .token_file = config.token_file};
  if (config.api.starts_with("https://") && !config.ca_file.empty()) {
    TRY_ASSIGN(options.trust,
               net::TlsTrust::load({.ca = config.ca_file, .certificate = {}, .key = {}}));
  }
  return options;
}

// Requests name the pool's models, so its replicas have to answer to them.
Result<void> check_names(const gateway::PoolConfig& pool) {
  const gateway::LaunchConfig& launch = *pool.scaling->launch;
  const Result<ServedNames> served = served_names(launch.serve);
  if (!served.ok()) return {};  // a file that is missing here may be there
  const std::string missing = unserved(pool.models, *served);
  if (missing.empty() || (!served->are_given && served->is_one_model)) return {};
  return Error{ErrorCode::kBadConfig,
               fmt::format("{}: [[pool]]: 'launch': 'serve' calls its models '{}', and the pool's "
                           "'model' is '{}': no request would find a replica; name it with "
                           "--served-model-name or --alias",
                           launch.place, fmt::join(served->names, "', '"), missing),
               "config"};
}

Result<void> check_launched(const gateway::GatewayConfig& config) {
  std::optional<cli::CommandLine> line;
  for (const gateway::PoolConfig& pool : config.pools) {
    if (!pool.scaling || !pool.scaling->launch || pool.scaling->launch->serve.empty()) continue;
    const gateway::LaunchConfig& launch = *pool.scaling->launch;
    TRY(check_names(pool));
    std::vector<std::string> words = serve_arguments(pool, config.fleet_key_file);
    if (is_split(pool)) words = with_role(std::move(words), "decode");
    if (!line) line.emplace(cli::CommandLine::Program{.name = "pelton"}, std::vector{serve_verb()});
    const auto parsed = line->parse(words);
    if (parsed.ok() || parsed.error().code != ErrorCode::kInvalidArgument) continue;
    return Error{ErrorCode::kBadConfig,
                 fmt::format("{}: [[pool]]: 'launch': 'serve': pelton serve says: {}", launch.place,
                             parsed.error().message),
                 "config"};
  }
  return {};
}

// Those that compute prompts for the last of these. They decide nothing: what bounds them is the
// other one's decision.
void add_prefill(std::vector<launch::ScaledPool>& pools) {
  launch::ScaledPool prefill = pools.back();
  prefill.computes_for = prefill.name;
  prefill.name = prefill_name(prefill.name);
  prefill.policy.replicas_min = 0;
  prefill.policy.replicas_max = prefill.policy.prefill->replicas_max;
  prefill.policy.prefill.reset();
  prefill.policy.schedules.clear();
  pools.push_back(std::move(prefill));
}

bool is_decided_on(const gateway::PoolConfig& pool) {
  return pool.scaling && (pool.scaling->launch || pool.scaling->is_advised_only);
}

namespace {

// It says who has of a budget first.
Result<void> check_priority(const gateway::GatewayConfig& config) {
  for (const gateway::PoolConfig& pool : config.pools) {
    if (!is_decided_on(pool) || pool.scaling->priority == 0) continue;
    const bool shares = config.autoscaler.gpus_max && pool.scaling->policy.gpus_each > 0;
    if (shares) continue;
    return Error{ErrorCode::kBadConfig,
                 fmt::format("{}: [[pool]]: 'scale': 'priority' says nothing without {}",
                             pool.scaling->place,
                             config.autoscaler.gpus_max ? "'gpus'" : "'max_gpus' of [autoscaler]"),
                 "config"};
  }
  return {};
}

}  // namespace

Result<void> check_gpus(const gateway::GatewayConfig& config) {
  TRY(check_priority(config));
  if (!config.autoscaler.gpus_max) return {};
  const auto bad = [&](std::string what) {
    return Error{
        ErrorCode::kBadConfig,
        fmt::format("{}[autoscaler]: 'max_gpus' {}", config.autoscaler.place_of("max_gpus"), what),
        "config"};
  };
  int64_t least = 0;
  bool is_counted = false;
  for (const gateway::PoolConfig& pool : config.pools) {
    if (!is_decided_on(pool) || pool.scaling->policy.gpus_each == 0) continue;
    is_counted = true;
    const autoscaler::PoolPolicy& policy = pool.scaling->policy;
    if (is_split(pool)) {
      return bad(
          fmt::format("cannot be kept for pool '{}', whose replicas have two roles: give it "
                      "a 'max_gpus' of its own, and no 'gpus' here",
                      pool.name));
    }
    int replicas = policy.replicas_min;
    for (const autoscaler::Schedule& one : policy.schedules) {
      replicas = std::max(replicas, one.replicas_min.value_or(0));
    }
    least += int64_t{replicas + policy.standby} * policy.gpus_each;
  }
  if (!is_counted) return bad("says nothing: no pool says how many 'gpus' a replica takes");
  if (least <= *config.autoscaler.gpus_max) return {};
  return bad(fmt::format("({}) is less than what 'min' and 'standby' of all pools take ({})",
                         *config.autoscaler.gpus_max, least));
}

std::vector<launch::ScaledPool> scaled_pools(const gateway::GatewayConfig& config) {
  std::vector<launch::ScaledPool> pools;
  for (const gateway::PoolConfig& pool : config.pools) {
    if (!is_decided_on(pool)) continue;
    const gateway::LaunchConfig launch = pool.scaling->launch.value_or(gateway::LaunchConfig());
    pools.push_back({.name = pool.name,
                     .policy = pool.scaling->policy,
                     .start_s = launch.start_s,
                     .progress_s = launch.progress_s,
                     .stop_grace_s = launch.stop_grace_s,
                     .is_advised_only = pool.scaling->is_advised_only,
                     .rolls = launch.rolls,
                     .priority = pool.scaling->priority});
    if (is_split(pool)) add_prefill(pools);
  }
  return pools;
}

Result<std::unique_ptr<launch::LauncherSet>> open_launcher(const gateway::GatewayConfig& config,
                                                           uint64_t epoch, const base::Clock& clock,
                                                           base::Log& log) {
  auto all = std::make_unique<launch::LauncherSet>();
  if (const PoolNames pools = pools_of(config, Kind::kLocal); !pools.empty()) {
    TRY_ASSIGN(std::unique_ptr<launch::LocalLauncher> launcher,
               open_local(config, epoch, clock, log, Kind::kLocal, config.autoscaler.state_dir));
    all->add_local(pools, std::move(launcher));
  }
  if (const PoolNames pools = pools_of(config, Kind::kSimulated); !pools.empty()) {
    TRY_ASSIGN(std::unique_ptr<launch::SimulatedProvider> launcher,
               open_simulated(config, epoch, clock, log));
    all->add_simulated(pools, std::move(launcher));
  }
  if (const PoolNames pools = pools_of(config, Kind::kKubernetes); !pools.empty()) {
    TRY_ASSIGN(std::unique_ptr<launch::Launcher> launcher,
               open_kubernetes(config, epoch, clock, log));
    all->add(pools, std::move(launcher));
  }
  if (const PoolNames pools = pools_of(config, Kind::kSlurm); !pools.empty()) {
    TRY_ASSIGN(std::unique_ptr<launch::Launcher> launcher, open_slurm(config, epoch, clock, log));
    all->add(pools, std::move(launcher));
  }
  return all;
}

// One of another kind says nothing of its steps.
autoscaler::ReplicaModel model_of(const gateway::Fleet::Row& row) {
  if (row.kind != gateway::WorkerKind::kPelton) return {};
  const cluster::WorkerLoad& load = row.load;
  return {.fixed_s = load.costs.fixed_s,
          .prefill_token_s = load.costs.prefill_token_s,
          .row_s = load.costs.row_s,
          .context_token_s = load.costs.context_token_s,
          .slots = std::max(row.record.slots, 1),
          .step_tokens = row.record.batch_tokens};
}

std::vector<launch::ScaledFleet::Worker> scaled_workers(const gateway::Gateway& gateway,
                                                        const std::string& pool) {
  std::vector<launch::ScaledFleet::Worker> workers;
  for (const gateway::Fleet::Row& row : gateway.workers()) {
    const Result<net::HostPort> address = net::parse_host_port(row.url);
    if (row.pool != pool || !address.ok()) continue;
    workers.push_back({.host = address->host,
                       .port = address->port,
                       .is_ready = is_ready(row.state),
                       .is_silent = is_silent(row.state),
                       .lacks = row.lacks,
                       .slots = row.record.slots,
                       .open = row.open,
                       .running = row.load.running,
                       .waiting = row.load.waiting,
                       .kv_used = row.load.kv_used,
                       .model = model_of(row)});
  }
  return workers;
}

// Replicas are called by a machine's name where a queue of jobs says on which they run. Where that
// is not said here, the autoscaler's own file may.
launch::OrderRules order_rules(const gateway::GatewayConfig& config) {
  launch::OrderRules rules;
  for (const gateway::PoolConfig& pool : config.pools) {
    if (!pool.scaling) continue;
    const std::optional<gateway::LaunchConfig>& launch = pool.scaling->launch;
    const auto is = [&](gateway::LaunchConfig::Kind kind) {
      return launch && launch->kind == kind;
    };
    rules.pools[pool.name] = {
        .takes_names = !launch || is(gateway::LaunchConfig::Kind::kSlurm),
        .port = is(gateway::LaunchConfig::Kind::kKubernetes) ? launch->port : 0};
  }
  rules.may_stand = [&config](const std::string& address) {
    if (gateway::may_be_worker(address, config.allowed_cidrs)) return true;
    if (!config.allowed_cidrs.empty()) return false;
    return !net::is_ip_address(address) || net::is_loopback(address) || address == "0.0.0.0" ||
           address == "::";
  };
  rules.is_declared = [&config](const launch::ScaledFleet::Address& address) {
    return std::ranges::any_of(config.workers, [&](const gateway::WorkerConfig& one) {
      return one.host == address.host && one.port == address.port;
    });
  };
  return rules;
}

std::vector<gateway::WorkerConfig> launched_workers(
    const std::vector<launch::ScaledFleet::Address>& addresses) {
  std::vector<gateway::WorkerConfig> workers;
  for (const launch::ScaledFleet::Address& one : addresses) {
    workers.push_back({.pool = one.pool, .host = one.host, .port = one.port});
  }
  return workers;
}

}  // namespace pelton::apps
