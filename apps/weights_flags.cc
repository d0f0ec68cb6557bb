#include "apps/weights_flags.h"

#include <utility>

#include <fmt/format.h>

#include "apps/listener_flags.h"
#include "apps/loading.h"
#include "apps/model_fetch.h"
#include "base/digest.h"
#include "cli/human_size.h"
#include "net/url.h"

namespace pelton::apps {
namespace {

using cli::Flag;

// Whether that is the key, or what is made of it; how long it takes says nothing of either.
bool fits(std::string_view token, const std::string& key, const std::string& digest) {
  const std::string hash = base::sha256(token);
  return hash == base::sha256(key) || hash == base::sha256(weights::peer_key(key, digest));
}

}  // namespace

std::vector<Flag> weights_source_flags() {
  std::vector<Flag> flags = {
      {.name = "--weights-key",
       .value = "KEY",
       .help = "what http(s) places of weights are shown as bearer token; for s3:// AWS_* are read",
       .secret = true,
       .may_be_empty = false},
      {.name = "--weights-endpoint",
       .value = "URL",
       .help = "where s3:// is, other than Amazon's, as http://127.0.0.1:9000; as "
               "AWS_ENDPOINT_URL_S3",
       .may_be_empty = false},
      {.name = "--weights-connections",
       .value = "N",
       .help = "chunks at a time, from the origin and from peers each",
       .kind = Flag::Kind::kInteger,
       .default_text = "8",
       .least = 1,
       .most = 64},
      {.name = "--weights-share-port",
       .value = "N",
       .help =
           "give others what has come, from this port on; the origin lists it to those that fetch "
           "the same; 0: any free port",
       .kind = Flag::Kind::kInteger,
       .most = 65535},
      {.name = "--weights-share-host",
       .value = "ADDRESS",
       .help = "where that listens; beyond this machine only with --weights-key",
       .default_text = "127.0.0.1",
       .only_with = {{"--weights-share-port"}}}};
  return flags;
}

Result<weights::FetchOptions> weights_fetch_options(const cli::Arguments& arguments,
                                                    const std::vector<std::string>& from,
                                                    const base::Clock& clock, base::Log& log) {
  weights::FetchOptions options;
  if (arguments.has("--weights-key")) {
    TRY(check_key(arguments.text("--weights-key"), arguments.origin("--weights-key")));
  }
  TRY_ASSIGN(options.access, weights::place_access(arguments.text("--weights-key"),
                                                   arguments.text("--weights-endpoint")));
  for (const std::string& one : from) {
    TRY_ASSIGN(weights::Place place, weights::parse_place(one, options.access));
    options.peers.push_back(std::move(place));
  }
  CHECK(!options.peers.empty());
  options.origin = std::move(options.peers.back());
  options.peers.pop_back();
  options.connections = static_cast<int>(arguments.integer("--weights-connections"));
  options.retry.on_retry =
      retry_lines(clock, [&log](const std::string& line) { log.warning(line); });
  options.say = [&log](const std::string& line) { log.warning(line); };
  return options;
}

Result<std::unique_ptr<weights::ShareServer>> open_weights_share(const cli::Arguments& arguments,
                                                                 weights::FetchOptions& options,
                                                                 const base::Clock& clock,
                                                                 base::Log& log) {
  if (!arguments.has("--weights-share-port")) return std::unique_ptr<weights::ShareServer>();
  const std::string& host = arguments.text("--weights-share-host");
  const std::string key = options.access.key;
  if (!is_local(host) && key.empty()) {
    return Error{ErrorCode::kBadConfig,
                 fmt::format("--weights-share-host {} gives the weights to anyone who reaches this "
                             "machine: give --weights-key",
                             host),
                 "weights-share-host"};
  }
  options.id = fmt::format("{:016x}", system_seed());
  weights::ShareServer::Options share{
      .address = host,
      .port = static_cast<int>(arguments.integer("--weights-share-port")),
      .hosts = net::AllowedHosts().at(host),
      .id = options.id};
  if (!key.empty()) {
    share.allows = [key](std::string_view token, const std::string& digest) {
      return fits(token, key, digest);
    };
  }
  auto server = std::make_unique<weights::ShareServer>(share, clock, log);
  TRY(with_flag(server->start(), "weights-share-host"));
  options.share_port = server->port();
  log.info(fmt::format("weights are given on at http://{}",
                       net::format_host_port(host, server->port())));
  return server;
}

std::string_view weights_phase(const weights::MirrorProgress& progress) {
  using Phase = weights::MirrorProgress::Phase;
  if (progress.total == 0) return "";
  return progress.phase == Phase::kChecking ? "checking what is there" : "fetching weights";
}

std::string weights_report(const weights::MirrorReport& report) {
  const auto human = [](int64_t bytes) { return cli::format_bytes(static_cast<double>(bytes)); };
  if (report.was_there) return human(report.bytes) + ", all there already";
  return fmt::format("{}: {} from the origin, {} from peers, {} were there", human(report.bytes),
                     human(report.fetch.bytes_from_origin), human(report.fetch.bytes_from_peers),
                     human(report.fetch.bytes_kept));
}

}  // namespace pelton::apps
