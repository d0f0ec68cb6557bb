#include "gateway/config.h"

#include <algorithm>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/file.h"
#include "cli/toml_tree.h"
#include "net/allowed_hosts.h"
#include "net/ip_address.h"
#include "net/url.h"

namespace pelton::gateway {
namespace {

using cli::TomlNode;

constexpr size_t kWorkersMax = 4095;
constexpr size_t kNameMax = 64;
constexpr double kIndexBytesMin = 1 << 20;
constexpr double kIndexBytesMax = 1e12;
constexpr size_t kModelNameMax = 512;

// One table of the file, whose members are read by name.
class Table {
 public:
  Table(const TomlNode& node, std::string name, const std::string& file)
      : node_(node), name_(std::move(name)), file_(file) {}

  Result<void> expect_only(std::initializer_list<std::string_view> known) const {
    for (const cli::TomlMember& member : node_.members) {
      if (std::find(known.begin(), known.end(), member.name) != known.end()) continue;
      return cli::bad_toml(
          file_, member.line,
          fmt::format("{} has no key '{}'; it has {}", name_, member.name, fmt::join(known, ", ")));
    }
    return {};
  }

  Result<void> read(std::string_view key, std::string& into) const {
    const TomlNode* value = node_.find(key);
    if (value == nullptr) return {};
    if (value->kind != TomlNode::Kind::kText) return bad(key, "must be a text in quotes");
    into = value->text;
    return {};
  }

  Result<void> read_name(std::string_view key, std::string& into) const {
    TRY(read(key, into));
    if (into.empty()) return bad(key, "is missing or empty");
    if (into.size() <= kNameMax) return {};
    return bad(key, fmt::format("is longer than {} bytes", kNameMax));
  }

  struct Bounds {
    double least = 0;
    double most = 0;
  };
  template <typename Integer>
  requires std::is_integral_v<Integer> Result<void> read(std::string_view key, const Bounds& bounds,
                                                         Integer& into)
  const {
    const TomlNode* value = node_.find(key);
    if (value == nullptr) return {};
    const bool fits = value->kind == TomlNode::Kind::kInteger && value->number >= bounds.least &&
                      value->number <= bounds.most;
    if (!fits) {
      return bad(key,
                 fmt::format("must be a whole number from {} to {}", bounds.least, bounds.most));
    }
    into = static_cast<Integer>(value->integer);
    return {};
  }

  Result<void> read(std::string_view key, const Bounds& bounds, double& into) const {
    const TomlNode* value = node_.find(key);
    if (value == nullptr) return {};
    const bool is_number =
        value->kind == TomlNode::Kind::kInteger || value->kind == TomlNode::Kind::kNumber;
    if (!is_number || !(value->number >= bounds.least && value->number <= bounds.most)) {
      return bad(key, fmt::format("must be a number from {} to {}", bounds.least, bounds.most));
    }
    into = value->number;
    return {};
  }

  // A text, or a list of texts.
  Result<void> read(std::string_view key, std::vector<std::string>& into) const {
    const TomlNode* value = node_.find(key);
    if (value == nullptr) return {};
    if (value->kind == TomlNode::Kind::kText) {
      into.push_back(value->text);
      return {};
    }
    if (value->kind != TomlNode::Kind::kList) return bad(key, "must be a text or a list of texts");
    for (const TomlNode& one : value->items) {
      if (one.kind != TomlNode::Kind::kText) return bad(key, "must hold texts in quotes only");
      into.push_back(one.text);
    }
    return {};
  }

  Result<void> read_address(std::string_view key, std::string& host, int& port) const {
    std::string text;
    TRY(read(key, text));
    if (text.empty()) return {};
    const Result<net::HostPort> address = net::parse_host_port(text);
    if (!address.ok()) return bad(key, "must be ADDRESS:PORT, as in 127.0.0.1:8000");
    host = address->host;
    port = address->port;
    return {};
  }

  // The line of that key, or the table's own.
  Error bad(std::string_view key, std::string_view what) const {
    int line = node_.line;
    for (const cli::TomlMember& member : node_.members) {
      if (member.name == key) line = member.line;
    }
    return cli::bad_toml(file_, line, fmt::format("{}: '{}' {}", name_, key, what));
  }

 private:
  const TomlNode& node_;
  const std::string name_;
  const std::string& file_;
};

// Beyond this machine.
bool is_exposed(const std::string& host) {
  return net::is_ip_address(host) && !net::is_loopback(host);
}

bool is_any_address(const std::string& host) {
  return host == "0.0.0.0" || host == "::";
}

Result<void> check_listeners(const Table& table, const GatewayConfig& config,
                             const ConfigRules& rules) {
  if (config.admin_port > 0 && config.admin_port == config.port &&
      (config.admin_host == config.host || is_any_address(config.host) ||
       is_any_address(config.admin_host))) {
    return table.bad("admin", "is where 'listen' is, too: they are two listeners");
  }
  if (rules.open) return {};
  if (is_exposed(config.host) && config.keys_file.empty()) {
    return table.bad("listen",
                     fmt::format("{} lets anyone who reaches this machine use the models, and "
                                 "nobody is asked for a key: give 'keys_file', or --open if that "
                                 "is meant",
                                 config.host));
  }
  if (config.admin_port < 0 || !is_exposed(config.admin_host)) return {};
  return table.bad("admin", fmt::format("{} lets anyone who reaches this machine command the "
                                        "fleet, as it asks for no key: give an address of the "
                                        "loopback interface, or --open if that is meant",
                                        config.admin_host));
}

Result<void> read_gateway(const Table& table, const ConfigRules& rules, GatewayConfig& config) {
  TRY(table.expect_only({"listen", "admin", "threads", "keys_file", "workers_file",
                         "fleet_key_file", "retries", "resume_budget", "index_bytes"}));
  TRY(table.read_address("listen", config.host, config.port));
  TRY(table.read_address("admin", config.admin_host, config.admin_port));
  TRY(table.read("threads", {1, 64}, config.threads));
  TRY(table.read("keys_file", config.keys_file));
  TRY(table.read("workers_file", config.workers_file));
  TRY(table.read("fleet_key_file", config.fleet_key_file));
  TRY(table.read("retries", {0, 8}, config.retries_max));
  TRY(table.read("resume_budget", {0, 600}, config.resume_budget_s));
  TRY(table.read("index_bytes", {kIndexBytesMin, kIndexBytesMax}, config.index_bytes));
  return check_listeners(table, config, rules);
}

Result<void> read_pool(const Table& table, GatewayConfig& config) {
  TRY(table.expect_only({"name", "model", "kind", "tokenizer", "dns"}));
  PoolConfig pool;
  TRY(table.read_name("name", pool.name));
  TRY(table.read("model", pool.models));
  std::string kind = "pelton";
  TRY(table.read("kind", kind));
  if (kind != "pelton" && kind != "openai") return table.bad("kind", "must be pelton or openai");
  pool.is_foreign = kind == "openai";
  TRY(table.read("tokenizer", pool.tokenizer));
  TRY(table.read_address("dns", pool.dns_host, pool.dns_port));
  if (pool.dns_port == 0) return table.bad("dns", "has the port 0");
  if (pool.models.empty()) return table.bad("model", "is missing: requests find the pool by it");
  for (const std::string& model : pool.models) {
    if (model.empty() || model.size() > kModelNameMax) {
      return table.bad("model", fmt::format("must be names of 1 to {} bytes", kModelNameMax));
    }
    if (std::ranges::count(pool.models, model) > 1) {
      return table.bad("model", fmt::format("has '{}' twice", model));
    }
  }
  for (const PoolConfig& other : config.pools) {
    if (other.name == pool.name) return table.bad("name", "is another pool's too");
    for (const std::string& model : pool.models) {
      if (std::ranges::find(other.models, model) == other.models.end()) continue;
      return table.bad("model", fmt::format("'{}' is the pool '{}''s too", model, other.name));
    }
  }
  config.pools.push_back(std::move(pool));
  return {};
}

Result<void> read_worker_url(const Table& table, WorkerConfig& worker) {
  constexpr std::string_view kScheme = "http://";
  std::string text;
  TRY(table.read("url", text));
  if (text.starts_with("https://")) {
    return table.bad("url",
                     "must begin with http://: to workers there is TLS by 'fleet_key_file', which "
                     "asks for no certificates");
  }
  const Result<net::HttpUrl> url = net::parse_http_url(text);
  if (!url.ok() || url->target != "/") {
    return table.bad("url", "must be http://HOST:PORT, the worker's --fleet-port");
  }
  const std::string_view authority = std::string_view(text).substr(kScheme.size());
  if (!net::parse_host_port(authority.substr(0, authority.find('/'))).ok()) {
    return table.bad("url", "has no port: give the worker's --fleet-port");
  }
  if (url->port < 1) return table.bad("url", "has the port 0");
  worker.host = url->host;
  worker.port = url->port;
  return {};
}

Result<void> read_worker(const Table& table, GatewayConfig& config) {
  TRY(table.expect_only({"pool", "url", "zone"}));
  WorkerConfig worker;
  TRY(table.read_name("pool", worker.pool));
  TRY(table.read("zone", worker.zone));
  const bool is_pool = std::ranges::any_of(
      config.pools, [&](const PoolConfig& pool) { return pool.name == worker.pool; });
  if (!is_pool) return table.bad("pool", fmt::format("names no [[pool]]: '{}'", worker.pool));
  TRY(read_worker_url(table, worker));
  for (const WorkerConfig& other : config.workers) {
    if (other.host == worker.host && other.port == worker.port) {
      return table.bad("url", "is another worker's too");
    }
  }
  if (config.workers.size() == kWorkersMax) {
    return table.bad("url", fmt::format("is one too many: at most {} workers", kWorkersMax));
  }
  config.workers.push_back(std::move(worker));
  return {};
}

using ReadTable = Result<void> (*)(const Table& table, GatewayConfig& config);

Result<void> read_tables(const TomlNode& tree, std::string_view key, const std::string& file,
                         ReadTable read, GatewayConfig& config) {
  const TomlNode* list = tree.find(key);
  if (list == nullptr) return {};
  for (const TomlNode& item : list->items) {
    if (item.kind != TomlNode::Kind::kTable) break;
    TRY(read(Table(item, fmt::format("[[{}]]", key), file), config));
  }
  const bool is_list = list->kind == TomlNode::Kind::kList &&
                       std::ranges::all_of(list->items, [](const TomlNode& item) {
                         return item.kind == TomlNode::Kind::kTable;
                       });
  if (is_list) return {};
  return cli::bad_toml(file, list->line, fmt::format("'{}' is written [[{}]]", key, key));
}

}  // namespace

Result<GatewayConfig> parse_gateway_config(std::string_view text, const std::string& file,
                                           const ConfigRules& rules) {
  TRY_ASSIGN(const TomlNode tree, cli::parse_toml(text, file));
  GatewayConfig config;
  TRY(Table(tree, "the file", file).expect_only({"gateway", "pool", "worker"}));
  if (const TomlNode* gateway = tree.find("gateway")) {
    if (gateway->kind != TomlNode::Kind::kTable) {
      return cli::bad_toml(file, gateway->line, "'gateway' is a table: [gateway]");
    }
    TRY(read_gateway(Table(*gateway, "[gateway]", file), rules, config));
  }
  TRY(read_tables(tree, "pool", file, read_pool, config));
  TRY(read_tables(tree, "worker", file, read_worker, config));
  const bool finds_some =
      !config.workers_file.empty() ||
      std::ranges::any_of(config.pools, [](const PoolConfig& pool) { return pool.dns_port > 0; });
  if (config.workers.empty() && !finds_some && !rules.allows_empty) {
    return cli::bad_toml(file, 1, "there is no [[worker]]; --allow-empty starts without");
  }
  return config;
}

Result<void> add_workers(std::string_view text, const std::string& file, GatewayConfig& config) {
  TRY_ASSIGN(const TomlNode tree, cli::parse_toml(text, file));
  TRY(Table(tree, "the file", file).expect_only({"worker"}));
  GatewayConfig found{.pools = config.pools};
  TRY(read_tables(tree, "worker", file, read_worker, found));
  for (WorkerConfig& worker : found.workers) {
    const bool is_known = std::ranges::any_of(config.workers, [&](const WorkerConfig& other) {
      return other.host == worker.host && other.port == worker.port;
    });
    if (is_known) continue;
    if (config.workers.size() == kWorkersMax) {
      return cli::bad_toml(file, 1, fmt::format("at most {} workers", kWorkersMax));
    }
    config.workers.push_back(std::move(worker));
  }
  return {};
}

Result<GatewayConfig> read_gateway_config(const std::string& file, const ConfigRules& rules) {
  const Result<std::string> text = base::read_file(file, size_t{1} << 20);
  if (!text.ok()) return Error{ErrorCode::kBadConfig, text.error().message, {}};
  TRY_ASSIGN(GatewayConfig config, parse_gateway_config(*text, file, rules));
  if (config.workers_file.empty()) return config;
  const Result<std::string> more = base::read_file(config.workers_file, size_t{1} << 20);
  if (!more.ok()) return Error{ErrorCode::kBadConfig, more.error().message, {}};
  TRY(add_workers(*more, config.workers_file, config));
  if (config.workers.empty() && !rules.allows_empty) {
    return cli::bad_toml(config.workers_file, 1,
                         "there is no [[worker]]; --allow-empty goes on without");
  }
  return config;
}

}  // namespace pelton::gateway
