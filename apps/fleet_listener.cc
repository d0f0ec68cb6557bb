#include "apps/fleet_listener.h"

#include <csignal>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "apps/gateway_options.h"
#include "apps/kv_event_flags.h"
#include "apps/listener_flags.h"
#include "cluster/block_names.h"
#include "cluster/fleet_key.h"
#include "kv_transfer/peer_ticket.h"
#include "net/url.h"

namespace pelton::apps {
namespace {

using cli::Flag;

std::string own_host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "worker";
}

// What a worker is for, where it stands, and what routers of other makes hear of it.
std::vector<Flag> fleet_place_flags() {
  std::vector<Flag> flags = {
      {.name = "--fleet-role",
       .value = "ROLE",
       .help = "in pools that split requests: prefill computes prompts, decode goes on with "
               "answers; both of these need --kv-port",
       .default_text = "both",
       .choices = {"prefill", "decode", "both"},
       .only_with = {{"--fleet-port"}}},
      {.name = "--fleet-zone",
       .value = "NAME",
       .help = "where this worker stands, for gateways that prefer near ones",
       .only_with = {{"--fleet-port"}}},
      {.name = "--fleet-region",
       .value = "NAME",
       .help = "the region that this worker stands in, for keys and tenants that are tied to "
               "one; default its pool's",
       .only_with = {{"--fleet-port"}}}};
  for (Flag& flag : kv_event_flags()) flags.push_back(std::move(flag));
  return flags;
}

std::vector<Flag> fleet_reach_flags() {
  return {{.name = "--fleet-port",
           .value = "N",
           .help = "listen for this fleet's gateways there (pelton gateway); 0: any free port",
           .kind = Flag::Kind::kInteger,
           .most = 65535},
          {.name = "--fleet-host",
           .value = "ADDRESS",
           .help = "where that listens; beyond this machine only with --fleet-key-file",
           .default_text = "127.0.0.1",
           .only_with = {{"--fleet-port"}}},
          {.name = "--kv-port",
           .value = "N",
           .help = "exchange keys and values with this fleet's workers there; 0: any free port",
           .kind = Flag::Kind::kInteger,
           .most = 65535,
           .only_with = {{"--fleet-key-file"}},
           .not_with = {{"--enable-prefix-caching", {"false"}}}},
          {.name = "--fleet-key-file",
           .value = "FILE",
           .help = "the fleet's key (pelton gateway --new-key FILE): TLS, by it alone",
           .only_with = {{"--fleet-port"}}},
          {.name = "--fleet-name",
           .value = "NAME",
           .help = "what this worker is called; default the host's name and the port",
           .only_with = {{"--fleet-port"}}},
          {.name = "--fleet-etcd",
           .value = "HOST:PORT",
           .help = "register there, for gateways that look there for workers; may be given again: "
                   "members of one etcd",
           .many = true,
           .only_with = {{"--fleet-port"}}},
          {.name = "--fleet-etcd-prefix",
           .value = "PREFIX",
           .help = "what the fleet's keys there begin with",
           .default_text = "/pelton/v1/main",
           .only_with = {{"--fleet-etcd"}}},
          {.name = "--fleet-etcd-user",
           .value = "NAME",
           .help = "register as this user of etcd's, with --fleet-etcd-password-file",
           .only_with = {{"--fleet-etcd"}}},
          {.name = "--fleet-etcd-password-file",
           .value = "FILE",
           .help = "its password, the file's first line",
           .only_with = {{"--fleet-etcd-user"}}},
          {.name = "--fleet-etcd-tls",
           .help = "speak to etcd over TLS",
           .kind = Flag::Kind::kSwitch,
           .only_with = {{"--fleet-etcd"}}},
          {.name = "--fleet-etcd-ca",
           .value = "FILE",
           .help = "PEM: whom to believe then; default whom the system does",
           .only_with = {{"--fleet-etcd-tls"}}},
          {.name = "--fleet-etcd-cert",
           .value = "FILE",
           .help = "PEM: a certificate to show etcd, with --fleet-etcd-key",
           .only_with = {{"--fleet-etcd-tls"}}},
          {.name = "--fleet-etcd-key",
           .value = "FILE",
           .help = "PEM: the certificate's key",
           .only_with = {{"--fleet-etcd-cert"}}},
          {.name = "--fleet-pool",
           .value = "NAME",
           .help = "the gateways' pool that this worker is of",
           .only_with = {{"--fleet-etcd"}}},
          {.name = "--fleet-address",
           .value = "HOST:PORT",
           .help = "where gateways reach its fleet port; default --fleet-host and the port",
           .only_with = {{"--fleet-etcd"}}}};
}

}  // namespace

std::vector<Flag> fleet_listener_flags() {
  std::vector<Flag> flags = fleet_reach_flags();
  for (Flag& flag : fleet_place_flags()) flags.push_back(std::move(flag));
  return flags;
}

Result<std::optional<uint64_t>> fleet_block_seed(const cli::Arguments& arguments) {
  if (!arguments.knows("--fleet-port") || !arguments.has("--fleet-port") ||
      !arguments.has("--fleet-key-file")) {
    return std::optional<uint64_t>();
  }
  TRY_ASSIGN(const cluster::FleetKey key,
             cluster::FleetKey::read(arguments.text("--fleet-key-file")));
  return std::optional(cluster::block_seed(key));
}

Result<void> read_kv_port(const cli::Arguments& arguments, node::LoadedModel::Options& options) {
  if (arguments.knows("--fleet-role") && arguments.text("--fleet-role") != "both" &&
      !arguments.has("--kv-port")) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--fleet-role {} needs --kv-port: keys and values go from one worker "
                             "to the other",
                             arguments.text("--fleet-role")),
                 "fleet-role"};
  }
  if (!arguments.knows("--kv-port") || !arguments.has("--kv-port")) return {};
  const auto refused = [](std::string why) {
    return Error{ErrorCode::kInvalidArgument, "--kv-port " + std::move(why), "kv-port"};
  };
  if (options.make_executor) {
    return refused("has no use: a modelled executor computes no keys and values");
  }
  if (options.executor.swap_bytes == 0) {
    return refused("needs --swap-space: what is fetched lands in the host's memory");
  }
  if (arguments.list("MODEL").size() > 1) return refused("is one model's; start a server for each");
  if (arguments.integer("--replicas") > 1) {
    return refused("is one replica's; start a server for each");
  }
  TRY_ASSIGN(const cluster::FleetKey key,
             cluster::FleetKey::read(arguments.text("--fleet-key-file")));
  options.executor.peers = {.address = arguments.text("--fleet-host"),
                            .port = static_cast<int>(arguments.integer("--kv-port")),
                            .keys = key.derive(kv_transfer::kPeerLabel)};
  return {};
}

Result<std::string> fleet_salt_secret(const cli::Arguments& arguments) {
  if (!arguments.has("--fleet-port") || !arguments.has("--fleet-key-file")) return std::string();
  TRY_ASSIGN(const cluster::FleetKey key,
             cluster::FleetKey::read(arguments.text("--fleet-key-file")));
  return cluster::salt_secret(key);
}

Result<void> FleetListener::open(const cli::Arguments& arguments, int replica, int http_threads,
                                 const server::FaultInjection& faults, access::AuditLog* audit) {
  if (!arguments.has("--fleet-port")) return {};
  host_ = arguments.text("--fleet-host");
  server::FleetServer::Options options{
      .address = host_,
      .port = port_of(arguments, "--fleet-port", replica),
      .threads = http_threads,
      .name = {},
      .zone = arguments.has("--fleet-zone") ? arguments.text("--fleet-zone") : std::string(),
      .region = arguments.has("--fleet-region") ? arguments.text("--fleet-region") : std::string(),
      .role = cluster::worker_role_named(arguments.text("--fleet-role"))
                  .value_or(cluster::WorkerRole::kBoth),
      .keys = {},
      .faults = &faults,
      .audit = audit};
  if (arguments.has("--fleet-key-file")) {
    Result<cluster::FleetKey> key = cluster::FleetKey::read(arguments.text("--fleet-key-file"));
    if (!key.ok()) {
      Error error = key.error();
      error.field = "fleet-key-file";
      return error;
    }
    options.keys = key->derive(cluster::kConnectionLabel);
    options.block_seed = cluster::block_seed(*key);
  } else if (!is_local(host_)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--fleet-host {} lets anyone who reaches this machine use the model: "
                             "give --fleet-key-file",
                             host_),
                 "fleet-host"};
  }
  options.name = arguments.has("--fleet-name")
                     ? arguments.text("--fleet-name")
                     : fmt::format("{}:{}", own_host_name(), options.port);
  if (arguments.integer("--replicas") > 1) options.name += fmt::format("-{}", replica);
  TRY(with_flag(server_.open(options), "fleet-host"));
  return arguments.has("--fleet-etcd") ? enroll(arguments, options) : Result<void>();
}

// Into the registry.
Result<void> FleetListener::enroll(const cli::Arguments& arguments,
                                   const server::FleetServer::Options& options) {
  const auto bad = [](std::string_view flag, std::string why) {
    return Error{ErrorCode::kInvalidArgument, std::move(why), std::string(flag)};
  };
  const auto text = [&](const char* flag) {
    return arguments.has(flag) ? arguments.text(flag) : std::string();
  };
  TRY_ASSIGN(const cluster::EtcdClient::Options etcd,
             etcd_options({.endpoints = arguments.list("--fleet-etcd"),
                           .user = text("--fleet-etcd-user"),
                           .password_file = text("--fleet-etcd-password-file"),
                           .tls = arguments.has("--fleet-etcd-tls"),
                           .ca_file = text("--fleet-etcd-ca"),
                           .certificate_file = text("--fleet-etcd-cert"),
                           .key_file = text("--fleet-etcd-key")}));
  cluster::EtcdRegistrar::Options registrar{.etcd = etcd,
                                            .prefix = arguments.text("--fleet-etcd-prefix"),
                                            .registration = {.name = options.name,
                                                             .incarnation = server_.incarnation(),
                                                             .host = host_,
                                                             .port = server_.port(),
                                                             .pool = {},
                                                             .zone = options.zone},
                                            .taken = [this] {
                                              is_name_taken_ = true;
                                              ::kill(::getpid(), SIGTERM);
                                            }};
  for (const std::string& endpoint : registrar.etcd.endpoints) {
    const Result<net::HostPort> parsed = net::parse_host_port(endpoint);
    if (!parsed.ok() || parsed->port == 0) {
      return bad("fleet-etcd", fmt::format("--fleet-etcd is HOST:PORT, not '{}'", endpoint));
    }
  }
  if (!arguments.has("--fleet-pool")) {
    return bad("fleet-pool", "--fleet-etcd needs --fleet-pool: the gateways' pool that this is of");
  }
  registrar.registration.pool = arguments.text("--fleet-pool");
  if (arguments.has("--fleet-address")) {
    const Result<net::HostPort> address = net::parse_host_port(arguments.text("--fleet-address"));
    if (!address.ok() || address->port == 0) {
      return bad("fleet-address", "--fleet-address is HOST:PORT");
    }
    registrar.registration.host = address->host;
    registrar.registration.port = address->port;
  } else if (host_ == "0.0.0.0" || host_ == "::") {
    return bad("fleet-address",
               fmt::format("--fleet-host {} is no address that a gateway reaches: give "
                           "--fleet-address",
                           host_));
  }
  registrar_ = std::make_unique<cluster::EtcdRegistrar>(std::move(registrar), log_);
  return {};
}

Result<void> FleetListener::fate() const {
  if (!is_name_taken_) return {};
  return Error{ErrorCode::kUnavailable,
               "another worker is registered under this name; give --fleet-name another one",
               "fleet-name"};
}

std::string FleetListener::line() const {
  if (server_.port() == 0) return "";
  return fmt::format("fleet on {}\n", net::format_host_port(host_, server_.port()));
}

}  // namespace pelton::apps
