// pelton fleet init: all that hosts reached over SSH need to be a fleet, written into a folder, and
// a script that takes it to them. Nothing is sent by this verb.
#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <sys/stat.h>

#include "apps/input.h"
#include "apps/units.h"
#include "apps/verbs.h"
#include "base/authenticated_cipher.h"
#include "base/file.h"
#include "base/json_writer.h"
#include "cluster/fleet_key.h"

namespace pelton::apps {
namespace {

namespace fs = std::filesystem;
using cli::Flag;

// As ssh takes it: USER@NAME or NAME. What gateways and folders call it is the name.
struct Host {
  std::string target;
  std::string name;
};

Error wrong(std::string message, std::string field) {
  return {ErrorCode::kInvalidArgument, std::move(message), std::move(field)};
}

// It goes into a script, a path and an address: letters, digits and little else.
Result<Host> parse_host(const std::string& text) {
  const size_t at = text.find('@');
  Host host{.target = text, .name = at == std::string::npos ? text : text.substr(at + 1)};
  const auto is_plain = [](std::string_view part) {
    const auto fits = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '.' || c == '-' || c == '_';
    };
    return !part.empty() && part.size() <= 253 && part.front() != '-' && part.front() != '.' &&
           std::ranges::all_of(part, fits);
  };
  const bool is_user = at == std::string::npos || is_plain(text.substr(0, at));
  if (is_user && is_plain(host.name)) return host;
  return wrong(fmt::format("'{}' is no host as NAME or USER@NAME, with letters, digits, '.', '-', "
                           "'_'; IPv6 addresses want a name",
                           text),
               "HOST");
}

Result<std::vector<Host>> parse_hosts(const cli::Arguments& arguments) {
  std::vector<Host> hosts;
  for (const std::string& text : arguments.list("HOST")) {
    TRY_ASSIGN(Host host, parse_host(text));
    if (std::ranges::count(hosts, host.name, &Host::name) > 0) {
      return wrong(fmt::format("{} is there twice", host.name), "HOST");
    }
    hosts.push_back(std::move(host));
  }
  return hosts;
}

std::string quoted(const std::string& text) {  // a JSON string is one of TOML's, too
  std::string out;
  base::JsonWriter(out).string(text);
  return out;
}

// A folder that is not there, or has nothing in it: what was written before stays.
Result<void> make_new_folder(const std::string& folder) {
  std::error_code error;
  if (fs::exists(folder, error) &&
      !(fs::is_directory(folder, error) && fs::is_empty(folder, error))) {
    return wrong(fmt::format("{} is there already, and may hold a fleet's keys", folder), "out");
  }
  fs::create_directories(folder, error);
  fs::permissions(folder, fs::perms::owner_all, error);
  if (error) return Error{ErrorCode::kIo, fmt::format("{}: {}", folder, error.message()), "out"};
  return {};
}

Result<void> write(const std::string& file, std::string_view text, mode_t mode = 0644) {
  std::error_code error;
  fs::create_directories(fs::path(file).parent_path(), error);
  TRY(base::write_file(file, text));
  if (::chmod(file.c_str(), mode) == 0) return {};
  return Error{ErrorCode::kIo, fmt::format("{}: its mode cannot be set", file), "out"};
}

std::string worker_file(const cli::Arguments& arguments, const Host& host) {
  const int64_t port = arguments.integer("--fleet-port");
  std::string out =
      "# Written by pelton fleet init. The API is for this host only: clients ask the gateway.\n";
  out += fmt::format("model = {}\n", quoted(arguments.text("--model")));
  out += fmt::format("served-model-name = [{}]\n", quoted(arguments.text("--name")));
  out += "host = \"127.0.0.1\"\nport = 8001\nconsole = \"off\"\n";
  out += fmt::format("fleet-host = \"0.0.0.0\"\nfleet-port = {}\n", port);
  out += "fleet-key-file = \"/etc/pelton/fleet.key\"\n";
  out += fmt::format("fleet-name = {}\n", quoted(host.name));
  return out;
}

std::string gateway_file(const cli::Arguments& arguments, const std::vector<Host>& hosts) {
  std::string out =
      "# Written by pelton fleet init. docs/gateway.md has all keys; changes are read at "
      "once.\n[gateway]\n";
  out += fmt::format("listen = \"0.0.0.0:{}\"\nadmin = \"127.0.0.1:8091\"\n",
                     arguments.integer("--port"));
  out += "fleet_key_file = \"/etc/pelton/fleet.key\"\nkeys_file = \"/etc/pelton/keys\"\n";
  out += fmt::format("\n[[pool]]\nname = \"main\"\nmodel = {}\n", quoted(arguments.text("--name")));
  for (const Host& host : hosts) {
    out += fmt::format("\n[[worker]]\npool = \"main\"\nurl = \"http://{}:{}\"\n", host.name,
                       arguments.integer("--fleet-port"));
  }
  return out;
}

constexpr std::string_view kScript = R"sh(#!/usr/bin/env bash
# Takes each host's files there over SSH, and starts what they are for. Written by pelton fleet init.
#
#   ./install.sh --dry-run   prints what it would do
#   ./install.sh             does it; again after a change, which is then in force (what an operator has put at the gateway since is replaced)
#   ./install.sh --remove    stops and disables the services, and removes the keys
#
# Wants: SSH to each host as root, or as one who may sudo without a word; there /usr/bin/pelton (the .deb, or the binary).
# SSH: "ssh" and options, as in SSH="ssh -i key". Keys go over SSH only.
set -euo pipefail
cd "$(dirname "$0")"
read -ra ssh <<<"${SSH:-ssh -o BatchMode=yes}"
what=${1:-install}

on() { # HOST SCRIPT: as root there, with our standard input
  if [[ $what == --dry-run ]]; then
    cat >/dev/null
    printf '%s: %s\n' "$1" "$2"
  else
    "${ssh[@]}" "$1" "if [ \"\$(id -u)\" = 0 ]; then sh -c '$2'; else sudo -n sh -c '$2'; fi"
  fi
}

host() { # TARGET FOLDER UNIT...
  local target=$1 folder=$2 units=("${@:3}")
  if [[ $what == --remove ]]; then
    on "$target" "systemctl disable --now ${units[*]}; rm -f /etc/pelton/fleet.key /etc/pelton/keys" </dev/null
    return
  fi
  on "$target" "getent passwd pelton >/dev/null || useradd --system --user-group --home-dir /var/lib/pelton --shell /usr/sbin/nologin pelton" </dev/null
  tar -C "hosts/$folder" --owner=root:0 --group=pelton:65532 -c . | on "$target" "umask 077 && tar -C / -x --no-overwrite-dir"
  # Its own, to write what an operator puts there.
  if [[ " ${units[*]} " == *" pelton-gateway "* ]]; then on "$target" "chown -R pelton: /etc/pelton/gateway" </dev/null; fi
  on "$target" "test -x /usr/bin/pelton && systemctl daemon-reload && systemctl enable ${units[*]} && systemctl restart ${units[*]}" </dev/null
}

)sh";

std::string script(const std::vector<Host>& hosts, const Host& gateway) {
  std::string out(kScript);
  const auto line = [&](const Host& host, std::string_view units) {
    out += fmt::format("host {} {} {}\n", host.target, host.name, units);
  };
  for (const Host& host : hosts) {
    line(host, host.name == gateway.name ? "pelton@worker pelton-gateway" : "pelton@worker");
  }
  if (std::ranges::count(hosts, gateway.name, &Host::name) == 0) line(gateway, "pelton-gateway");
  return out;
}

// Below hosts/NAME, as it lies on the host.
Result<void> write_hosts(const cli::Arguments& arguments, const std::vector<Host>& hosts,
                         const Host& gateway, const std::string& folder) {
  TRY_ASSIGN(const std::string key, base::read_file(folder + "/fleet.key"));
  TRY_ASSIGN(const std::string keys, base::read_file(folder + "/keys"));
  constexpr mode_t kSecret = 0640;
  const auto of = [&](const Host& host) { return folder + "/hosts/" + host.name; };
  for (const Host& host : hosts) {
    TRY(write(of(host) + "/etc/pelton/worker.toml", worker_file(arguments, host)));
    TRY(write(of(host) + "/etc/pelton/fleet.key", key, kSecret));
    TRY(write(of(host) + "/etc/systemd/system/pelton@.service", kWorkerUnit));
  }
  TRY(write(of(gateway) + "/etc/pelton/gateway/gateway.toml", gateway_file(arguments, hosts)));
  TRY(write(of(gateway) + "/etc/pelton/fleet.key", key, kSecret));
  TRY(write(of(gateway) + "/etc/pelton/keys", keys, kSecret));
  return write(of(gateway) + "/etc/systemd/system/pelton-gateway.service", kGatewayUnit);
}

Result<void> run_fleet_init(const cli::Arguments& arguments) {
  TRY_ASSIGN(const std::vector<Host> hosts, parse_hosts(arguments));
  Host gateway = hosts.front();
  if (arguments.has("--gateway")) {
    TRY_ASSIGN(gateway, parse_host(arguments.text("--gateway")));
    const auto same = std::ranges::find(hosts, gateway.name, &Host::name);
    if (same != hosts.end()) gateway = *same;
  }
  if (arguments.text("--name").empty()) return wrong("--name is empty", "name");
  const std::string& folder = arguments.text("--out");
  TRY(make_new_folder(folder));
  TRY(cluster::FleetKey::create(folder + "/fleet.key"));
  const std::string client = base::random_hex(24);
  TRY(write(folder + "/keys",
            fmt::format("{} clients\n{} operator role=admin\n", client, base::random_hex(24)),
            0600));
  TRY(write_hosts(arguments, hosts, gateway, folder));
  TRY(write(folder + "/install.sh", script(hosts, gateway), 0755));
  return write_text(fmt::format(
      "{0}: {1} workers and a gateway on {2}\n"
      "  {0}/install.sh --dry-run   says what it does over SSH; without --dry-run it does it\n"
      "  {0}/keys                   clients' and an operator's key, just drawn; whoever has the "
      "folder has the fleet\n"
      "then: curl http://{2}:{3}/v1/chat/completions -H \"Authorization: Bearer $(head -c 48 "
      "{0}/keys)\" "
      "-H 'Content-Type: application/json' -d '{{\"model\": {4}, \"messages\": [{{\"role\": "
      "\"user\", \"content\": \"Hello\"}}]}}'\n",
      folder, hosts.size(), gateway.name, arguments.integer("--port"),
      quoted(arguments.text("--name"))));
}

}  // namespace

cli::Verb fleet_init_verb() {
  return {
      .name = "fleet init",
      .summary = "Writes keys, units and configuration for a fleet over SSH into a folder.",
      .about =
          "Each HOST is to run a worker, one of them or another the gateway. Nothing is sent:\n"
          "FOLDER/install.sh takes each host's files there when it is run, and starts the\n"
          "services. docs/gateway.md has it step by step.",
      .positionals = {{.name = "HOST", .help = "NAME or USER@NAME, as ssh takes it", .many = true}},
      .flags = {{.name = "--model",
                 .value = "MODEL",
                 .help = "a folder that is there on each host, or a hub id",
                 .default_text = "/usr/share/pelton/models/pelton-box"},
                {.name = "--name",
                 .value = "NAME",
                 .help = "what clients call it",
                 .default_text = "pelton-box"},
                {.name = "--gateway",
                 .value = "HOST",
                 .help = "where the gateway runs; default the first",
                 .may_be_empty = false},
                {.name = "--port",
                 .value = "N",
                 .help = "of clients",
                 .kind = Flag::Kind::kInteger,
                 .default_text = "8000",
                 .least = 1,
                 .most = 65535},
                {.name = "--fleet-port",
                 .value = "N",
                 .help = "where the gateway finds workers",
                 .kind = Flag::Kind::kInteger,
                 .default_text = "9101",
                 .least = 1,
                 .most = 65535},
                {.name = "--out",
                 .value = "FOLDER",
                 .help = "where to write; refused if something is there",
                 .default_text = "pelton-fleet",
                 .may_be_empty = false}},
      .examples = {"pelton fleet init gpu-1 gpu-2 gpu-3",
                   "pelton fleet init ann@gpu-1 ann@gpu-2 --gateway ann@front --model "
                   "openai/gpt-oss-20b --name gpt-oss-20b --out fleet"},
      .run = run_fleet_init};
}

}  // namespace pelton::apps
