#include "apps/fleet_listener.h"

#include <fmt/format.h>
#include <unistd.h>

#include "apps/listener_flags.h"
#include "cluster/block_names.h"
#include "cluster/fleet_key.h"
#include "net/url.h"

namespace pelton::apps {
namespace {

using cli::Flag;

std::string own_host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "worker";
}

}  // namespace

std::vector<Flag> fleet_listener_flags() {
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
          {.name = "--fleet-key-file",
           .value = "FILE",
           .help = "the fleet's key (pelton gateway --new-key FILE): TLS, by it alone",
           .only_with = {{"--fleet-port"}}},
          {.name = "--fleet-name",
           .value = "NAME",
           .help = "what this worker is called; default the host's name and the port",
           .only_with = {{"--fleet-port"}}},
          {.name = "--fleet-zone",
           .value = "NAME",
           .help = "where this worker stands, for gateways that prefer near ones",
           .only_with = {{"--fleet-port"}}}};
}

Result<std::optional<uint64_t>> fleet_block_seed(const cli::Arguments& arguments) {
  if (!arguments.has("--fleet-port") || !arguments.has("--fleet-key-file")) {
    return std::optional<uint64_t>();
  }
  TRY_ASSIGN(const cluster::FleetKey key,
             cluster::FleetKey::read(arguments.text("--fleet-key-file")));
  return std::optional(cluster::block_seed(key));
}

Result<void> FleetListener::open(const cli::Arguments& arguments, int http_threads) {
  if (!arguments.has("--fleet-port")) return {};
  host_ = arguments.text("--fleet-host");
  server::FleetServer::Options options{
      .address = host_,
      .port = static_cast<int>(arguments.integer("--fleet-port")),
      .threads = http_threads,
      .name = {},
      .zone = arguments.has("--fleet-zone") ? arguments.text("--fleet-zone") : std::string(),
      .keys = {}};
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
  return with_flag(server_.open(options), "fleet-host");
}

std::string FleetListener::line() const {
  if (server_.port() == 0) return "";
  return fmt::format("fleet on {}\n", net::format_host_port(host_, server_.port()));
}

}  // namespace pelton::apps
