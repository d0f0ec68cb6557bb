#include "apps/gateway_options.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "apps/input.h"
#include "apps/scaled_pools.h"
#include "apps/version.h"
#include "base/file.h"
#include "chat/format_of.h"
#include "checkpoint/checkpoint.h"
#include "cluster/block_names.h"
#include "cluster/fleet_key.h"
#include "kv_transfer/peer_ticket.h"
#include "node/model_template.h"

namespace pelton::apps {
namespace {

constexpr size_t kSecretBytesMax = size_t{64} << 10;
constexpr size_t kPemBytesMax = size_t{4} << 20;
constexpr size_t kKeysBytesMax = size_t{1} << 24;

Result<std::shared_ptr<const gateway::ModelText>> read_text(const gateway::PoolConfig& pool) {
  auto text = std::make_shared<gateway::ModelText>();
  Result<tokenizer::Tokenizer> tokenizer = load_tokenizer(pool.tokenizer);
  if (!tokenizer.ok()) {
    return Error{
        ErrorCode::kBadConfig,
        fmt::format("the pool '{}': 'tokenizer': {}", pool.name, tokenizer.error().message),
        "tokenizer"};
  }
  text->tokenizer = std::make_unique<const tokenizer::Tokenizer>(*std::move(tokenizer));
  std::optional<chat::TemplateSource> source;
  if (const Result<checkpoint::Checkpoint> checkpoint =
          checkpoint::Checkpoint::open(pool.tokenizer);
      checkpoint.ok()) {
    TRY_ASSIGN(source, node::read_model_template(*checkpoint, ""));
  }
  // One without has no conversations; its workers say so to those who ask for some.
  const auto format =
      chat::format_of({.tokenizer = *text->tokenizer, .chat_template = std::move(source)});
  if (format.ok()) text->chat = *format;
  return std::shared_ptr<const gateway::ModelText>(std::move(text));
}

// An error of a file says by which key of the configuration it is read.
Error of_key(std::string_view key, const Error& error) {
  return Error{ErrorCode::kBadConfig, fmt::format("'{}': {}", key, error.message),
               std::string(key)};
}

// Its first line, as keys and passwords stand in files.
Result<std::string> read_secret(const std::string& file, std::string_view field) {
  Result<std::string> text = base::read_file(file, kSecretBytesMax);
  if (!text.ok()) return of_key(field, text.error());
  text->resize(std::min(text->find_first_of("\r\n"), text->size()));
  if (text->empty()) {
    return of_key(field, Error{ErrorCode::kBadConfig, file + ": is empty", {}});
  }
  return text;
}

// Keys and certificates of workers of other kinds.
Result<void> read_foreign_access(gateway::GatewayConfig& config) {
  for (gateway::PoolConfig& pool : config.pools) {
    if (!pool.is_foreign()) continue;
    if (!pool.api_key_file.empty()) {
      TRY_ASSIGN(pool.api_key, read_secret(pool.api_key_file, "api_key_file"));
    }
    const bool has_tls =
        pool.tls || !pool.ca_file.empty() ||
        std::ranges::any_of(config.workers, [&](const gateway::WorkerConfig& worker) {
          return worker.pool == pool.name && worker.tls;
        });
    if (!has_tls) continue;
    auto trust = net::TlsTrust::load({.ca = pool.ca_file, .certificate = {}, .key = {}});
    if (!trust.ok()) return of_key("ca_file", trust.error());
    pool.trust = *std::move(trust);
  }
  return {};
}

// Keys, certificates and the secret of regions.
Result<void> read_region_access(gateway::RegionsConfig& regions) {
  constexpr size_t kSecretBytesMin = 32;
  if (!regions.secret_file.empty()) {
    TRY_ASSIGN(regions.secret, read_secret(regions.secret_file, "region_secret_file"));
    if (regions.secret.size() < kSecretBytesMin) {
      return of_key("region_secret_file",
                    Error{ErrorCode::kBadConfig,
                          fmt::format("{}: a secret has {} bytes at least: openssl rand -hex 32",
                                      regions.secret_file, kSecretBytesMin),
                          {}});
    }
  }
  for (gateway::RegionConfig& region : regions.others) {
    TRY_ASSIGN(region.api_key, read_secret(region.key_file, "key_file"));
    if (!region.tls) continue;
    auto trust = net::TlsTrust::load({.ca = region.ca_file, .certificate = {}, .key = {}});
    if (!trust.ok()) return of_key("ca_file", trust.error());
    region.trust = *std::move(trust);
  }
  return {};
}

}  // namespace

Result<cluster::EtcdClient::Options> etcd_options(const gateway::EtcdConfig& etcd) {
  cluster::EtcdClient::Options options{.endpoints = etcd.endpoints, .user = etcd.user};
  if (etcd.user.empty() != etcd.password_file.empty()) {
    return Error{ErrorCode::kBadConfig, "etcd: a user and a password file go together", {}};
  }
  if (etcd.certificate_file.empty() != etcd.key_file.empty()) {
    return Error{ErrorCode::kBadConfig, "etcd: a certificate and its key go together", {}};
  }
  if (!etcd.password_file.empty()) {
    TRY_ASSIGN(options.password, read_secret(etcd.password_file, "password_file"));
  }
  options.tls = etcd.tls;
  const auto read = [](std::string_view key, const std::string& file,
                       std::string& into) -> Result<void> {
    if (file.empty()) return {};
    Result<std::string> text = base::read_file(file, kPemBytesMax);
    if (!text.ok()) return of_key(key, text.error());
    into = *std::move(text);
    return {};
  };
  TRY(read("ca_file", etcd.ca_file, options.ca));
  TRY(read("certificate_file", etcd.certificate_file, options.certificate));
  TRY(read("key_file", etcd.key_file, options.key));
  return options;
}

namespace {

Result<std::string> key_file(const std::string& file) {
  Result<std::string> text = base::read_file(file, kKeysBytesMax);
  if (!text.ok()) return of_key("keys_file", text.error());
  return text;
}

}  // namespace

Result<GatewayOptions> gateway_options(gateway::GatewayConfig config, TextsByFile& known) {
  TRY(check_launched(config));
  GatewayOptions read{.gateway = {.config = std::move(config), .version = kVersion}};
  gateway::Gateway::Options& options = read.gateway;
  if (!options.config.keys_file.empty()) {
    const std::string& file = options.config.keys_file;
    // Read once: between two readings it may have become another, with keys that no scope is of.
    TRY_ASSIGN(const std::string text, key_file(file));
    TRY(options.keys.add_file(text, file));
    if (options.keys.empty()) return Error{ErrorCode::kBadConfig, file + ": holds no key", {}};
    TRY_ASSIGN(gateway::KeyScopes scopes, gateway::KeyScopes::parse(text, file));
    read.operators.add_file(text);
    options.config.key_scopes = std::make_shared<const gateway::KeyScopes>(std::move(scopes));
  }
  TRY(read_foreign_access(options.config));
  TRY(read_region_access(options.config.regions));
  TRY_ASSIGN(options.etcd, etcd_options(options.config.etcd));
  if (!options.config.fleet_key_file.empty()) {
    const auto key = cluster::FleetKey::read(options.config.fleet_key_file);
    if (!key.ok()) return of_key("fleet_key_file", key.error());
    options.trust = net::TlsTrust::of_shared_keys(key->derive(cluster::kConnectionLabel));
    options.block_seed = cluster::block_seed(*key);
    options.salt_secret = cluster::salt_secret(*key);
    options.peer_key = key->derive(kv_transfer::kPeerLabel).front();
    options.limit_secret = key->derive("limits").front();
    options.resume_secret = key->derive("stream tickets").front();
  }
  const bool has_services = std::ranges::any_of(
      options.config.pools,
      [](const gateway::PoolConfig& pool) { return !pool.kubernetes_service.empty(); });
  const gateway::KubernetesConfig& api = options.config.kubernetes;
  if (has_services && api.api.starts_with("https://") && !api.ca_file.empty()) {
    auto trust = net::TlsTrust::load({.ca = api.ca_file, .certificate = {}, .key = {}});
    if (!trust.ok()) return of_key("ca_file", trust.error());
    options.kubernetes_trust = *std::move(trust);
  }
  for (const gateway::PoolConfig& pool : options.config.pools) {
    if (pool.tokenizer.empty()) continue;
    std::shared_ptr<const gateway::ModelText>& text = known[pool.tokenizer];
    if (text == nullptr) {
      TRY_ASSIGN(text, read_text(pool));
    }
    options.texts[pool.name] = text;
  }
  return read;
}

}  // namespace pelton::apps
