// pelton posture: what a server or a gateway would be by what it is started with, before it is:
// where it listens, what it sends and keeps, who may what; and whether that meets a profile.
#include "apps/posture.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include "access/operator_keys.h"
#include "access/posture.h"
#include "apps/input.h"
#include "apps/verbs.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_writer.h"
#include "gateway/config.h"
#include "gateway/config_json.h"
#include "gateway/config_text.h"
#include "net/allowed_hosts.h"
#include "net/url.h"

namespace pelton::apps {
namespace {

using access::Posture;

constexpr size_t kKeysBytesMax = size_t{1} << 24;

// What is judged: its posture, and what it would run with.
struct Judged {
  std::string verb;
  Posture posture;
  std::vector<std::pair<std::string, std::string>> flags;  // but for defaults; no secrets
  std::string configuration;  // of a gateway, with all that its file leaves out
};

std::vector<std::string> command_words(std::string_view command) {
  std::vector<std::string> words;
  while (!command.empty()) {
    const size_t begin = std::min(command.find_first_not_of(" \t\n"), command.size());
    const size_t end = std::min(command.find_first_of(" \t\n", begin), command.size());
    if (end > begin) words.emplace_back(command.substr(begin, end - begin));
    command.remove_prefix(end);
  }
  if (!words.empty() && words.front() == "pelton") words.erase(words.begin());
  return words;
}

void add_secret(Posture& posture, std::string what, const std::string& file) {
  if (file.empty()) return;
  Posture::Secret secret{.what = std::move(what), .file = file, .mode = {}};
  struct stat status {};
  if (::stat(file.c_str(), &status) == 0) secret.mode = static_cast<int>(status.st_mode & 07777);
  posture.secrets.push_back(std::move(secret));
}

void add_listener(Posture& posture, std::string name, const std::string& host, int64_t port,
                  bool asks, bool has_tls) {
  posture.listeners.push_back({.name = std::move(name),
                               .address = net::format_host_port(host, static_cast<int>(port)),
                               .is_local = net::is_loopback(host),
                               .asks = asks,
                               .has_tls = has_tls});
}

// Of lines as access::ApiKeys reads them.
Result<void> count_keys(const std::string& file, Posture::Keys& keys) {
  if (file.empty()) return {};
  TRY_ASSIGN(const std::string text, base::read_file(file, kKeysBytesMax));
  std::string_view left = text;
  while (!left.empty()) {
    const size_t end = std::min(left.find('\n'), left.size() - 1) + 1;
    const std::vector<std::string> words = command_words(left.substr(0, end));
    left.remove_prefix(end);
    if (words.empty() || words.front().starts_with('#')) continue;
    access::OperatorRole role = access::OperatorRole::kNone;
    for (const std::string& word : words) role = access::role_word(word).value_or(role);
    int* const counts[] = {&keys.clients, &keys.viewers, &keys.operators, &keys.admins};
    ++*counts[static_cast<size_t>(role)];
  }
  return {};
}

void add_gateway_links(const gateway::GatewayConfig& config, Posture& posture) {
  const bool has_fleet_key = !config.fleet_key_file.empty();
  std::map<std::string, const gateway::PoolConfig*> pools;
  for (const gateway::PoolConfig& pool : config.pools) {
    pools[pool.name] = &pool;
    const bool finds =
        pool.dns_port >= 0 || !pool.dns_service.empty() || !pool.kubernetes_service.empty();
    if (!finds) continue;
    posture.links.push_back({.name = fmt::format("workers that pool '{}' finds", pool.name),
                             .is_encrypted = pool.is_foreign() ? pool.tls : has_fleet_key});
  }
  for (const gateway::WorkerConfig& worker : config.workers) {
    const auto pool = pools.find(worker.pool);
    if (net::is_loopback(worker.host) || pool == pools.end()) continue;
    const bool is_foreign = pool->second->is_foreign();
    posture.links.push_back(
        {.name = "worker " + net::format_host_port(worker.host, worker.port),
         .is_encrypted = is_foreign ? worker.tls || pool->second->tls : has_fleet_key});
  }
  for (const gateway::RegionConfig& region : config.regions.others) {
    if (net::is_loopback(region.host)) continue;
    posture.links.push_back({.name = "region " + region.name, .is_encrypted = region.tls});
  }
  for (const std::string& endpoint : config.etcd.endpoints) {
    posture.links.push_back({.name = "etcd " + endpoint, .is_encrypted = config.etcd.tls});
  }
  if (config.etcd.endpoints.empty()) return;
  posture.links.push_back(
      {.name = "workers that register themselves", .is_encrypted = has_fleet_key});
}

void add_gateway_secrets(const gateway::GatewayConfig& config, Posture& posture) {
  add_secret(posture, "keys_file", config.keys_file);
  add_secret(posture, "fleet_key_file", config.fleet_key_file);
  add_secret(posture, "region_secret_file", config.regions.secret_file);
  for (const gateway::RegionConfig& region : config.regions.others) {
    add_secret(posture, "key_file of region " + region.name, region.key_file);
  }
  for (const gateway::PoolConfig& pool : config.pools) {
    add_secret(posture, "api_key_file of pool " + pool.name, pool.api_key_file);
  }
  add_secret(posture, "password_file of [etcd]", config.etcd.password_file);
  add_secret(posture, "key_file of [etcd]", config.etcd.key_file);
}

Result<void> judge_gateway(const cli::Arguments& arguments, Judged& judged) {
  if (!arguments.has("--config")) {
    return Error{ErrorCode::kInvalidArgument, "the gateway has no --config", "COMMAND"};
  }
  const std::string& file = arguments.text("--config");
  // What nobody is asked for is found by a rule, not refused.
  TRY_ASSIGN(const gateway::GatewayConfig config,
             gateway::read_gateway_config(file, {.allows_empty = true, .open = true}));
  judged.configuration = gateway::config_text(config);
  Posture& posture = judged.posture;
  const bool asks = !config.keys_file.empty();
  add_listener(posture, "clients", config.host, config.port, asks, false);
  if (config.grpc_port >= 0) {
    add_listener(posture, "clients (gRPC)", config.grpc_host, config.grpc_port, asks, false);
  }
  if (config.admin_port >= 0) {
    add_listener(posture, "admin", config.admin_host, config.admin_port,
                 arguments.has("--admin-keys"), false);
  }
  add_gateway_links(config, posture);
  add_gateway_secrets(config, posture);
  add_secret(posture, "--audit-key-file", arguments.text("--audit-key-file"));
  posture.storage.push_back({.what = "configurations of before", .place = file + ".history"});
  for (const char* const flag : {"--audit-log", "--record-requests", "--record-facts"}) {
    if (!arguments.has(flag)) continue;
    posture.storage.push_back({.what = flag, .place = arguments.text(flag)});
  }
  posture.keeps_audit = arguments.has("--audit-log");
  posture.bounds_workers = !config.allowed_cidrs.empty();
  posture.finds_workers = !config.etcd.endpoints.empty();
  for (const gateway::PoolConfig& pool : config.pools) {
    const bool is_ordered = pool.scaling && !arguments.has("--with-autoscaler");
    posture.finds_workers = posture.finds_workers || is_ordered;
  }
  return count_keys(config.keys_file, posture.keys);
}

void add_server_listeners(const cli::Arguments& arguments, Posture& posture) {
  const bool has_tls = arguments.has("--tls-cert");
  const bool has_certificates = arguments.has("--tls-client-ca");
  const bool asks = has_certificates || arguments.has("--api-key") ||
                    arguments.has("--admin-api-key") || arguments.has("--api-key-file");
  const std::string& host = arguments.text("--host");
  if (arguments.has("--uds")) {
    posture.listeners.push_back(
        {.name = "clients", .address = arguments.text("--uds"), .asks = asks, .has_tls = has_tls});
  } else {
    add_listener(posture, "clients", host, arguments.integer("--port"), asks, has_tls);
  }
  if (arguments.has("--grpc-port")) {
    add_listener(posture, "clients (gRPC)", host, arguments.integer("--grpc-port"), asks, has_tls);
  }
  if (arguments.has("--admin-port")) {
    const bool admin_tls = has_tls && !arguments.has("--no-admin-tls");
    add_listener(posture, "admin", arguments.text("--admin-host"),
                 arguments.integer("--admin-port"),
                 arguments.has("--admin-keys") || (has_certificates && admin_tls), admin_tls);
  }
  const bool has_fleet_key = arguments.has("--fleet-key-file");
  if (!arguments.has("--fleet-port")) return;
  const std::string& fleet_host = arguments.text("--fleet-host");
  add_listener(posture, "fleet", fleet_host, arguments.integer("--fleet-port"), has_fleet_key,
               has_fleet_key);
  // Blocks go by tickets that the fleet's key has signed, as they are.
  if (!arguments.has("--kv-port")) return;
  add_listener(posture, "KV blocks", fleet_host, arguments.integer("--kv-port"), has_fleet_key,
               false);
}

void add_server_storage(const cli::Arguments& arguments, Posture& posture) {
  const bool is_encrypted = arguments.has("--store-key-file");
  constexpr std::string_view kFile = "sqlite:";
  const std::string& responses = arguments.text("--response-store");
  if (responses.starts_with(kFile)) {
    posture.storage.push_back({.what = "responses",
                               .place = responses.substr(kFile.size()),
                               .has_text = true,
                               .is_encrypted = is_encrypted});
  }
  if (arguments.has("--batches")) {
    posture.storage.push_back({.what = "files and batches",
                               .place = arguments.text("--batches"),
                               .has_text = true,
                               .is_encrypted = is_encrypted});
  }
  // By a secret of the process's own, where no file names one.
  if (arguments.has("--kv-disk")) {
    posture.storage.push_back({.what = "KV blocks",
                               .place = arguments.text("--kv-disk"),
                               .has_text = true,
                               .is_encrypted = true});
  }
  for (const char* const flag : {"--audit-log", "--access-log-file"}) {
    if (!arguments.has(flag)) continue;
    posture.storage.push_back({.what = flag, .place = arguments.text(flag)});
  }
}

Result<void> judge_server(const cli::Arguments& arguments, Judged& judged) {
  Posture& posture = judged.posture;
  add_server_listeners(arguments, posture);
  add_server_storage(arguments, posture);
  for (const char* const flag :
       {"--api-key-file", "--tls-key", "--store-key-file", "--kv-disk-key-file", "--fleet-key-file",
        "--reasoning-key-file", "--audit-key-file", "--fleet-etcd-password-file",
        "--fleet-etcd-key"}) {
    add_secret(posture, flag, arguments.text(flag));
  }
  for (const char* const flag : {"--api-key", "--admin-api-key"}) {
    if (!arguments.has(flag)) continue;
    int& count = std::string_view(flag) == "--api-key" ? posture.keys.clients : posture.keys.admins;
    count += static_cast<int>(arguments.list(flag).size());
    if (arguments.source(flag) != cli::Arguments::Source::kWord) continue;
    posture.secrets.push_back({.what = flag, .file = {}, .mode = {}});
  }
  for (const std::string& endpoint : arguments.list("--fleet-etcd")) {
    posture.links.push_back(
        {.name = "etcd " + endpoint, .is_encrypted = arguments.has("--fleet-etcd-tls")});
  }
  posture.keeps_audit = arguments.has("--audit-log");
  posture.leaves_core_dumps = arguments.has("--allow-core-dumps");
  return count_keys(arguments.text("--api-key-file"), posture.keys);
}

void add_flags(const cli::Verb& verb, const cli::Arguments& arguments, Judged& judged) {
  for (const cli::Flag& flag : verb.flags) {
    using Source = cli::Arguments::Source;
    if (!arguments.knows(flag.name) || !arguments.has(flag.name)) continue;
    if (arguments.source(flag.name) == Source::kDefault) continue;
    std::string value = flag.secret ? "(not shown)"
                        : flag.many ? fmt::format("{}", fmt::join(arguments.list(flag.name), " "))
                                    : arguments.text(flag.name);
    if (flag.kind == cli::Flag::Kind::kSwitch) value = "true";
    judged.flags.emplace_back(flag.name, std::move(value));
  }
}

Result<Judged> judge(const std::string& command) {
  const cli::CommandLine line(cli::CommandLine::Program{.name = "pelton"},
                              std::vector{serve_verb(), gateway_verb()});
  TRY_ASSIGN(const cli::CommandLine::Request request, line.parse(command_words(command)));
  if (request.verb == nullptr) {
    return Error{ErrorCode::kInvalidArgument, "that starts no server and no gateway", "COMMAND"};
  }
  Judged judged{.verb = request.verb->name, .posture = {}, .flags = {}, .configuration = {}};
  add_flags(*request.verb, request.arguments, judged);
  if (judged.verb == "gateway") {
    TRY(judge_gateway(request.arguments, judged));
  } else {
    TRY(judge_server(request.arguments, judged));
  }
  return judged;
}

void write_posture(base::JsonWriter& w, const Posture& posture) {
  w.key("listeners").begin_array();
  for (const Posture::Listener& one : posture.listeners) {
    w.begin_object().key("name").string(one.name).key("address").string(one.address);
    w.key("local").boolean(one.is_local).key("asks").boolean(one.asks);
    w.key("tls").boolean(one.has_tls).end_object();
  }
  w.end_array().key("links").begin_array();
  for (const Posture::Link& one : posture.links) {
    w.begin_object().key("name").string(one.name).key("encrypted").boolean(one.is_encrypted);
    w.end_object();
  }
  w.end_array().key("storage").begin_array();
  for (const Posture::Storage& one : posture.storage) {
    w.begin_object().key("what").string(one.what).key("place").string(one.place);
    w.key("has_text").boolean(one.has_text).key("encrypted").boolean(one.is_encrypted);
    w.end_object();
  }
  w.end_array().key("secrets").begin_array();
  for (const Posture::Secret& one : posture.secrets) {
    w.begin_object().key("what").string(one.what).key("file").string(one.file);
    w.key("mode").string(one.mode ? fmt::format("{:04o}", *one.mode) : "").end_object();
  }
  w.end_array().key("keys").begin_object().key("clients").integer(posture.keys.clients);
  w.key("view").integer(posture.keys.viewers).key("operate").integer(posture.keys.operators);
  w.key("admin").integer(posture.keys.admins).end_object();
}

Result<std::string> json_of(const Judged& judged, std::string_view profile,
                            const std::vector<access::PostureFinding>& findings, bool passes) {
  std::string text;
  base::JsonWriter w(text);
  w.begin_object().key("of").string(judged.verb).key("profile").string(profile);
  w.key("passes").boolean(passes).key("findings").begin_array();
  for (const access::PostureFinding& one : findings) {
    w.begin_object().key("rule").string(one.rule).key("passes").boolean(one.passes());
    w.key("why").string(one.why).end_object();
  }
  w.end_array();
  write_posture(w, judged.posture);
  w.key("flags").begin_object();
  for (const auto& [name, value] : judged.flags) w.key(name).string(value);
  w.end_object();
  if (!judged.configuration.empty()) {
    TRY_ASSIGN(const Json configuration,
               gateway::config_json(judged.configuration, "configuration"));
    w.key("configuration").value(configuration);
  }
  w.end_object();
  return text + "\n";
}

std::string text_of(const Judged& judged, const std::vector<access::PostureFinding>& findings) {
  std::string text;
  for (const Posture::Listener& one : judged.posture.listeners) {
    text += fmt::format(
        "{:<16} {}{}{}{}\n", one.name, one.address, one.is_local ? "  this machine only" : "",
        one.asks ? "  asks for a key or certificate" : "", one.has_tls ? "  TLS" : "");
  }
  for (const access::PostureFinding& one : findings) {
    text += one.passes() ? fmt::format("pass  {}\n", one.rule)
                         : fmt::format("FAIL  {}: {}\n", one.rule, one.why);
  }
  return text;
}

Result<void> run_posture(const cli::Arguments& arguments) {
  const std::string& name = arguments.text("--profile");
  const auto profile = access::posture_profile_named(name);
  if (!profile) return Error{ErrorCode::kInvalidArgument, "there is no such profile", "profile"};
  TRY_ASSIGN(const Judged judged, judge(arguments.text("COMMAND")));
  const std::vector<access::PostureFinding> findings =
      access::check_posture(judged.posture, *profile);
  const auto failed = std::ranges::count_if(
      findings, [](const access::PostureFinding& one) { return !one.passes(); });
  std::string text = text_of(judged, findings);
  if (arguments.has("--json")) {
    TRY_ASSIGN(text, json_of(judged, name, findings, failed == 0));
  }
  TRY(write_output(text));
  if (failed == 0) return {};
  return Error{
      ErrorCode::kIo,
      fmt::format("{} of {} rules of the profile '{}' are not met", failed, findings.size(), name),
      {}};
}

}  // namespace

cli::Verb posture_verb() {
  return {
      .name = "posture",
      .summary = "Says whether a server or a gateway meets a profile of settings.",
      .about =
          "COMMAND is what it is started with, in one pair of quotes; its words stand between\n"
          "blanks, and variables and configuration files count as they would. Nothing is\n"
          "started. Said is where it listens, what it asks over a network, what it keeps, which\n"
          "secrets it reads and what keys may; and of each rule of the profile whether it is\n"
          "met (docs/compliance.md lists them). Ends with 1 where one is not.",
      .positionals = {{.name = "COMMAND",
                       .help = "\"serve MODEL ...\" or \"gateway --config FILE ...\""}},
      .flags = {{.name = "--profile",
                 .value = "NAME",
                 .help = "local: one person's machine; shared: several tenants; regulated: and "
                         "nobody else may read what lies in files or goes over a wire",
                 .default_text = "shared",
                 .choices = {std::begin(access::kPostureProfiles),
                             std::end(access::kPostureProfiles)}},
                {.name = "--json",
                 .help = "all of it as JSON, with the settings that are in effect",
                 .kind = cli::Flag::Kind::kSwitch}},
      .examples = {"pelton posture \"gateway --config gateway.toml --admin-keys\"",
                   "pelton posture \"serve pelton-box --api-key-file keys\" --profile regulated "
                   "--json"},
      .run = run_posture};
}

}  // namespace pelton::apps
