#include "apps/gateway_reload.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/audit_chain.h"
#include "access/audited_exchange.h"
#include "api/error.h"
#include "apps/input.h"
#include "apps/listener_flags.h"
#include "apps/scaled_pools.h"
#include "apps/version.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/json_writer.h"
#include "base/sync_path.h"
#include "chat/format_of.h"
#include "checkpoint/checkpoint.h"
#include "cluster/block_names.h"
#include "cluster/fleet_key.h"
#include "gateway/config_changes.h"
#include "gateway/config_edit.h"
#include "gateway/config_text.h"
#include "kv_transfer/peer_ticket.h"
#include "net/json_response.h"
#include "net/url.h"
#include "node/model_template.h"

namespace pelton::apps {
namespace {

constexpr std::chrono::milliseconds kLook{1'000};
constexpr size_t kConfigBytesMax = size_t{1} << 20;
constexpr size_t kSecretBytesMax = size_t{64} << 10;
constexpr size_t kPemBytesMax = size_t{4} << 20;
constexpr size_t kKeysBytesMax = size_t{1} << 24;
constexpr std::string_view kObjects = "/v1/config/";
// Of what there is one.
constexpr std::array<std::string_view, 5> kTables = {"gateway", "autoscaler", "etcd", "kubernetes",
                                                     "zones"};

net::HttpResponse refusal(const api::ApiError& error) {
  return net::json_response(api::error_body(error), error.status);
}

std::string etag_of(std::string_view text) {
  return "\"" + base::sha256(text).substr(0, 32) + "\"";
}

api::ApiError changed_meanwhile() {
  return {.status = 412,
          .message = "the file has changed since it was read; read it again",
          .type = "invalid_request_error",
          .param = {},
          .code = "config_changed"};
}

// The operator's file is read-only here: as a service's that may write nowhere, or a ConfigMap.
// `file`: what would have to be written.
api::ApiError not_writable(const std::string& file, std::string_view why) {
  return {.status = 409,
          .message = fmt::format(
              "the configuration is right, but the gateway may not write its file {} ({}), so "
              "nothing was changed. Change the file itself, which is read anew within two seconds: "
              "as its owner on that machine, or in Kubernetes the ConfigMap with kubectl apply. To "
              "let the gateway write it: docs/operations.md, \"Installed as a service\"",
              file, why),
          .type = "invalid_request_error",
          .param = {},
          .code = "config_not_writable"};
}

api::ApiError bad_config(const Error& error) {
  return {.status = 400,
          .message = error.message,
          .type = "invalid_request_error",
          .param = {},
          .code = "bad_config"};
}

Error keys_gone() {
  return Error{ErrorCode::kBadConfig,
               "'keys_file' is gone; a gateway that asks for keys goes on asking until it is "
               "started anew",
               "keys_file"};
}

api::ApiError from_a_page() {
  return {.status = 403,
          .message =
              "pages in a browser (the header 'Origin') change no configuration; use pelton "
              "fleet config put",
          .type = "invalid_request_error",
          .param = {},
          .code = "forbidden_origin"};
}

// What is not as it was asked for, of one object.
api::ApiError bad_edit(const Error& error) {
  api::ApiError shown = bad_config(error);
  if (error.code == ErrorCode::kIo) return api::api_error(error);
  if (error.code == ErrorCode::kInvalidArgument) shown.code = "bad_object";
  if (error.code != ErrorCode::kNotFound) return shown;
  shown.status = 404;
  shown.code = "object_not_found";
  return shown;
}

Error no_object(const gateway::ConfigPlace& place) {
  return {ErrorCode::kNotFound, fmt::format("the file has no {} {}", place.kind, place.name),
          "name"};
}

// Of "/v1/config/pool/NAME", whose name may have slashes; none: there is no such kind.
std::optional<gateway::ConfigPlace> place_of(std::string_view path) {
  path.remove_prefix(kObjects.size());
  const size_t slash = std::min(path.find('/'), path.size());
  gateway::ConfigPlace place{.kind = std::string(path.substr(0, slash)),
                             .name = std::string(path.substr(std::min(slash + 1, path.size())))};
  const bool is_table = std::ranges::find(kTables, place.kind) != kTables.end();
  if (is_table ? !place.name.empty() : !gateway::is_config_list(place.kind)) return std::nullopt;
  return place;
}

void write_changes(base::JsonWriter& w, const std::vector<gateway::ConfigChange>& changes) {
  w.key("changes").begin_array();
  for (const gateway::ConfigChange& one : changes) {
    w.begin_object().key("change").string(gateway::how_name(one.how));
    w.key("kind").string(one.kind).key("name").string(one.name).key("value").string(one.value);
    w.end_object();
  }
  w.end_array();
}

// Of each line of a file of keys the first digits of its key's SHA-256, and what it says more.
std::vector<std::string> keys_shown(const std::string& file) {
  constexpr size_t kDigits = 12;
  std::vector<std::string> shown;
  if (file.empty()) return shown;
  const Result<std::string> text = base::read_file(file, kKeysBytesMax);
  for (size_t begin = 0; text.ok() && begin < text->size();) {
    const size_t end = std::min(text->find('\n', begin), text->size());
    const std::string_view line = std::string_view(*text).substr(begin, end - begin);
    begin = end + 1;
    const size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string_view::npos || line[first] == '#') continue;
    const size_t over = std::min(line.find_first_of(" \t\r", first), line.size());
    std::string rest(line.substr(over));
    rest.resize(rest.find_last_not_of(" \t\r") + 1);
    shown.push_back(base::sha256(line.substr(first, over - first)).substr(0, kDigits) + rest);
  }
  std::ranges::sort(shown);
  return shown;
}

// What an audit line has room for; a digest that stands behind it must not be cut.
void leave_room_for_digest(std::vector<std::string>& detail) {
  constexpr size_t kRoom = access::AuditChain::kDetailMax - 256;
  size_t bytes = 0;
  for (size_t i = 0; i < detail.size(); ++i) {
    bytes += detail[i].size();
    if (bytes <= kRoom) continue;
    const size_t more = detail.size() - i;
    detail.resize(i);
    detail.push_back(fmt::format("and {} more", more));
    return;
  }
}

// "+ key 3fa1... acme rpm=5".
void add_changed_keys(const std::vector<std::string>& before, const std::vector<std::string>& after,
                      std::vector<std::string>& lines) {
  const auto add = [&](const char* mark, const std::vector<std::string>& some,
                       const std::vector<std::string>& others) {
    std::vector<std::string> only;
    std::ranges::set_difference(some, others, std::back_inserter(only));
    for (const std::string& one : only) lines.push_back(fmt::format("{} key {}", mark, one));
  };
  add("-", before, after);
  add("+", after, before);
}

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

Result<gateway::KeyScopes> key_scopes(const std::string& file) {
  TRY_ASSIGN(const std::string text, key_file(file));
  return gateway::KeyScopes::parse(text, file);
}

Result<gateway::Gateway::Options> gateway_options(gateway::GatewayConfig config,
                                                  TextsByFile& known) {
  TRY(check_launched(config));
  gateway::Gateway::Options options{.config = std::move(config), .version = kVersion};
  if (!options.config.keys_file.empty()) {
    const std::string& file = options.config.keys_file;
    // Read once: between two readings it may have become another, with keys that no scope is of.
    TRY_ASSIGN(const std::string text, key_file(file));
    TRY(options.keys.add_file(text, file));
    if (options.keys.empty()) return Error{ErrorCode::kBadConfig, file + ": holds no key", {}};
    TRY_ASSIGN(gateway::KeyScopes scopes, gateway::KeyScopes::parse(text, file));
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
  return options;
}

GatewayReload::GatewayReload(std::string file, const gateway::ConfigRules& rules,
                             const gateway::GatewayConfig& config, TextsByFile texts,
                             gateway::Gateway& gateway, const base::Clock& clock, base::Log& log)
    : file_(std::move(file)),
      rules_(rules),
      gateway_(gateway),
      clock_(clock),
      log_(log),
      texts_(std::move(texts)),
      keys_file_(config.keys_file),
      workers_file_(config.workers_file),
      read_(stamps()),
      seen_(read_),
      last_({.unix_ms = clock.unix_ms(), .why = "start", .error = {}, .takes_new_start = {}}),
      watcher_({.name = "pelton-reload", .interval = kLook}, [this] { look(); }) {}

GatewayReload::Stamp GatewayReload::stamp_of(const std::string& file) {
  struct stat status {};
  if (file.empty() || ::stat(file.c_str(), &status) != 0) return {};
  return {.inode = status.st_ino,
          .bytes = status.st_size,
          .changed_ns = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec};
}

void GatewayReload::look() {
  {
    std::lock_guard lock(mutex_);
    const Stamps now = stamps();
    const bool is_settled = now == std::exchange(seen_, now);
    if (!is_settled || now == read_ || now[0] == Stamp{}) return;
  }
  reload("its file has changed");
}

void GatewayReload::reload(std::string_view why) {
  std::lock_guard lock(mutex_);
  read_ = stamps();
  const std::string before = gateway_.effective_config();
  const Result<void> done = try_reload();
  note(why, done);
  audit({.who = why,
         .from = {},
         .before = before,
         .error = done.ok() ? std::string_view() : std::string_view(done.error().message)});
  if (done.ok()) return log_.info(fmt::format("{}: the configuration is read anew", why));
  gateway_.note_bad_reload();
  log_.error(fmt::format("{}: all stays as it was: {}", why, done.error().message));
}

net::HttpResponse GatewayReload::answer(const net::HttpRequest& request) {
  const bool is_state = request.path == "/v1/config/state";
  const bool is_object = !is_state && request.path.starts_with(kObjects);
  const bool changes =
      !is_state && (request.method == "PUT" || (is_object && request.method == "DELETE"));
  if (changes) {
    if (!request.headers.get("Origin").empty()) {
      audit_refusal("", access::address_of(request), from_a_page());
      return refusal(from_a_page());
    }
    return replace(request, "an operator");
  }
  if (request.method != "GET" && request.method != "HEAD") {
    net::HttpResponse refused = refusal(api::method_not_allowed(request.method, request.path));
    refused.headers.add("Allow", is_state    ? "GET, HEAD"
                                 : is_object ? "GET, HEAD, PUT, DELETE"
                                             : "GET, HEAD, PUT");
    return refused;
  }
  if (is_state) return state();
  return is_object ? read_objects(request) : read(request);
}

// Those of a kind, or one, as they stand in the file.
net::HttpResponse GatewayReload::read_objects(const net::HttpRequest& request) const {
  const std::optional<gateway::ConfigPlace> place = place_of(request.path);
  if (!place) return refusal(api::not_found(request.method, request.path));
  const Result<std::string> text = base::read_file(file_, kConfigBytesMax);
  if (!text.ok()) return refusal(api::api_error(text.error()));
  const auto parts = gateway::config_parts(*text, file_);
  if (!parts.ok()) return refusal(bad_edit(parts.error()));
  net::HttpResponse response;
  for (const gateway::ConfigPart& part : *parts) {
    if (part.kind != place->kind || (!place->name.empty() && part.name != place->name)) continue;
    if (!response.body.empty()) response.body += "\n";
    response.body += gateway::own_text(part.text) + "\n";
  }
  if (response.body.empty() && !place->name.empty()) return refusal(bad_edit(no_object(*place)));
  response.headers.add("Content-Type", "application/toml");
  response.headers.add("ETag", etag_of(*text));
  return response;
}

net::HttpResponse GatewayReload::read(const net::HttpRequest& request) const {
  const std::string form = net::query_value(request.query, "form").value_or("");
  net::HttpResponse response;
  response.headers.add("Content-Type", "application/toml");
  if (form == "effective") {
    response.body = gateway_.effective_config();
  } else if (form == "file") {
    const Result<gateway::GatewayConfig> config = gateway::read_gateway_config(file_, rules_);
    if (!config.ok()) return refusal(bad_config(config.error()));
    response.body = gateway::config_text(*config);
  } else if (!form.empty()) {
    return refusal(
        api::api_error(Error{ErrorCode::kInvalidArgument, "'form' is effective or file", "form"}));
  } else {
    const Result<std::string> text = base::read_file(file_, kConfigBytesMax);
    if (!text.ok()) return refusal(api::api_error(text.error()));
    response.body = *text;
    response.headers.add("ETag", etag_of(*text));
  }
  return response;
}

void GatewayReload::note(std::string_view why, const Result<void>& done) {
  last_.unix_ms = clock_.unix_ms();
  last_.why = why;
  last_.error = done.ok() ? "" : done.error().message;
}

// Of what is in force with all that its file leaves out: no key stands in it, only files that hold
// some. Its digest says, after a new start, whether it is the one that was in force before.
void GatewayReload::audit(const Change& change) {
  if (gateway_.audit() == nullptr) return;
  access::AuditEvent event{
      .who = std::string(change.who),
      .from = std::string(change.from),
      .what = "configure",
      .target = file_,
      .result = change.error.empty() ? "done" : fmt::format("refused: {}", change.error)};
  if (change.error.empty()) {
    const std::string after = gateway_.effective_config();
    const auto changes = gateway::config_changes(change.before, after);
    if (!changes.ok()) event.detail.push_back("not to be named: " + changes.error().message);
    if (changes.ok()) {
      for (const gateway::ConfigChange& one : *changes) event.detail.push_back(change_text(one));
    }
    std::vector<std::string> keys = keys_shown(keys_file_);
    add_changed_keys(keys_, keys, event.detail);
    keys_ = std::move(keys);
    leave_room_for_digest(event.detail);
    event.detail.push_back("config " + base::sha256(after));
  }
  gateway_.audit()->note(std::move(event));
}

void GatewayReload::audit_refusal(std::string_view who, std::string_view from,
                                  const api::ApiError& error) const {
  if (gateway_.audit() == nullptr) return;
  gateway_.audit()->note_often({.who = std::string(who),
                                .from = std::string(from),
                                .what = "configure",
                                .target = file_,
                                .result = fmt::format("refused: {} {}", error.status, error.code)});
}

void GatewayReload::audit_start() {
  if (gateway_.audit() == nullptr) return;
  std::lock_guard lock(mutex_);
  keys_ = keys_shown(keys_file_);
  gateway_.audit()->note({.what = "start",
                          .target = file_,
                          .result = fmt::format("version {}", kVersion),
                          .detail = {"config " + base::sha256(gateway_.effective_config())}});
}

net::HttpResponse GatewayReload::state() const {
  std::string body;
  base::JsonWriter w(body);
  std::lock_guard lock(mutex_);
  w.begin_object().key("file").string(file_).key("at").integer(last_.unix_ms);
  w.key("why").string(last_.why).key("error").string(last_.error);
  w.key("takes_new_start").begin_array();
  for (const std::string& key : last_.takes_new_start) w.string(key);
  w.end_array().end_object();
  return net::json_response(std::move(body));
}

// Nothing is written: a gateway that may not write reads as well.
net::HttpResponse GatewayReload::try_out(const std::string& text) {
  Result<gateway::GatewayConfig> config = gateway::complete_gateway_config(text, file_, rules_);
  if (!config.ok()) return refusal(bad_config(config.error()));
  if (!keys_file_.empty() && config->keys_file.empty()) return refusal(bad_config(keys_gone()));
  std::string body;
  base::JsonWriter w(body);
  const std::string after = gateway::config_text(*config);
  const auto changes = gateway::config_changes(gateway_.effective_config(), after);
  if (!changes.ok()) return refusal(bad_config(changes.error()));
  w.begin_object().key("file").string(after);
  write_changes(w, *changes);
  const std::vector<std::string_view> kept = gateway_.takes_new_start(*config);
  const Result<gateway::Gateway::Options> options = gateway_options(*std::move(config), texts_);
  if (!options.ok()) return refusal(bad_config(options.error()));
  w.key("takes_new_start").begin_array();
  for (const std::string_view key : kept) w.string(key);
  w.end_array().key("writable").boolean(is_writable()).end_object();
  return net::json_response(std::move(body));
}

// The whole file, as this request would have it.
Result<std::string> GatewayReload::text_asked(const net::HttpRequest& request,
                                              const Result<std::string>& before) const {
  if (!request.path.starts_with(kObjects)) return request.body;
  const std::optional<gateway::ConfigPlace> place = place_of(request.path);
  if (!place) return Error{ErrorCode::kNotFound, "there is nothing of that kind", "kind"};
  if (!before.ok()) return before.error();
  if (request.method == "DELETE") return gateway::without_object(*before, file_, *place);
  return gateway::with_object(*before, file_, *place, request.body);
}

net::HttpResponse GatewayReload::replace(const net::HttpRequest& request, std::string_view who) {
  const std::string dry_run = net::query_value(request.query, "dry_run").value_or("false");
  if (dry_run != "true" && dry_run != "false") {
    return refusal(api::api_error(
        Error{ErrorCode::kInvalidArgument, "'dry_run' is true or false", "dry_run"}));
  }
  if (request.body.size() > kConfigBytesMax) {
    return refusal(bad_config({ErrorCode::kBadConfig, "it has more than 1 MiB", {}}));
  }
  const std::string from = access::address_of(request);
  std::lock_guard lock(mutex_);
  const auto refused = [&](const api::ApiError& error) {
    if (dry_run != "true") audit_refusal(who, from, error);
    return refusal(error);
  };
  const Result<std::string> before = base::read_file(file_, kConfigBytesMax);
  const std::string_view wanted = request.headers.get("If-Match");
  if (!wanted.empty() && (!before.ok() || wanted != etag_of(*before))) {
    return refused(changed_meanwhile());
  }
  const Result<std::string> text = text_asked(request, before);
  if (!text.ok()) return refused(bad_edit(text.error()));
  return dry_run == "true" ? try_out(*text) : put_in_force(*text, who, from);
}

net::HttpResponse GatewayReload::put_in_force(const std::string& text, std::string_view who,
                                              std::string_view from) {
  const std::string before = gateway_.effective_config();
  // All that can fail comes before the file is another one.
  Result<Read> read = read_whole(text);
  if (!read.ok()) {
    note(fmt::format("{}'s", who), read.error());
    gateway_.note_bad_reload();
    audit({.who = who, .from = from, .before = before, .error = read.error().message});
    return refusal(bad_config(read.error()));
  }
  if (const auto error = write_in_place(text)) {
    log_.warning(fmt::format("{}'s configuration: {}", who, error->message));
    audit({.who = who, .from = from, .before = before, .error = error->code});
    return refusal(*error);
  }
  take(*std::move(read));
  note(fmt::format("{}'s", who), {});
  read_ = seen_ = stamps();
  log_.info(fmt::format("{} has replaced the configuration", who));
  audit({.who = who, .from = from, .before = before, .error = {}});
  std::string body;
  base::JsonWriter w(body);
  const auto changes = gateway::config_changes(before, gateway_.effective_config());
  w.begin_object();
  write_changes(w, changes.ok() ? *changes : std::vector<gateway::ConfigChange>{});
  w.key("takes_new_start").begin_array();
  for (const std::string& key : last_.takes_new_start) w.string(key);
  w.end_array().end_object();
  net::HttpResponse response = net::json_response(std::move(body));
  response.headers.add("ETag", etag_of(text));
  return response;
}

// Where a link leads.
std::string GatewayReload::whole_file() const {
  std::error_code unresolved;
  const std::filesystem::path whole = std::filesystem::canonical(file_, unresolved);
  return unresolved ? file_ : whole.string();
}

// The new one is written beside it first.
bool GatewayReload::is_writable() const {
  const std::filesystem::path folder = std::filesystem::path(whole_file()).parent_path();
  return ::access(folder.empty() ? "." : folder.c_str(), W_OK) == 0;
}

// The new file takes the place of what a link leads to, with its mode.
std::optional<api::ApiError> GatewayReload::write_in_place(const std::string& text) const {
  const std::string file = whole_file();
  const std::string fresh = file + ".new";
  if (const Result<void> written = base::write_file(fresh, text); !written.ok()) {
    const std::string& why = written.error().message;
    const size_t reason = why.rfind(": ");
    return not_writable(file, reason == std::string::npos ? why : why.substr(reason + 2));
  }
  struct stat status {};
  if (::stat(file.c_str(), &status) == 0) {
    ::chmod(fresh.c_str(), status.st_mode & 07777);  // its owner may: it has just been written
  }
  // What is said to be in force is there after a loss of power, too.
  const Result<void> on_disk = base::sync_path(fresh);
  if (on_disk.ok() && ::rename(fresh.c_str(), file.c_str()) == 0) {
    const Result<void> named = base::sync_name(file);
    if (!named.ok()) log_.warning(named.error().message);
    return std::nullopt;
  }
  const std::string why = on_disk.ok() ? std::strerror(errno) : on_disk.error().message;
  ::unlink(fresh.c_str());
  return not_writable(file, why);
}

Result<GatewayReload::Read> GatewayReload::read_whole(const std::string& text) {
  TRY_ASSIGN(gateway::GatewayConfig config, gateway::complete_gateway_config(text, file_, rules_));
  if (!keys_file_.empty() && config.keys_file.empty()) return keys_gone();
  TRY_ASSIGN(gateway::Gateway::Options options, gateway_options(std::move(config), texts_));
  return options;
}

Result<void> GatewayReload::try_reload() {
  const Result<std::string> text = base::read_file(file_, kConfigBytesMax);
  if (!text.ok()) return Error{ErrorCode::kBadConfig, text.error().message, {}};
  TRY_ASSIGN(Read read, read_whole(*text));
  take(std::move(read));
  return {};
}

// Cannot fail: it has been read whole.
void GatewayReload::take(Read options) {
  if (keys_file_ != options.config.keys_file || workers_file_ != options.config.workers_file) {
    keys_file_ = options.config.keys_file;
    workers_file_ = options.config.workers_file;
    read_ = seen_ = stamps();
  }
  const std::vector<std::string_view> kept =
      gateway_.reload(std::move(options.config), std::move(options.keys), std::move(options.texts));
  last_.takes_new_start.assign(kept.begin(), kept.end());
  if (!kept.empty()) {
    log_.warning(
        fmt::format("{}: changed in the file, which takes a new start", fmt::join(kept, ", ")));
  }
}

}  // namespace pelton::apps
