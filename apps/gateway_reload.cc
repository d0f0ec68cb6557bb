#include "apps/gateway_reload.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include "apps/input.h"
#include "apps/listener_flags.h"
#include "apps/version.h"
#include "chat/format_of.h"
#include "checkpoint/checkpoint.h"
#include "cluster/block_names.h"
#include "cluster/fleet_key.h"
#include "node/model_template.h"

namespace pelton::apps {
namespace {

constexpr std::chrono::milliseconds kLook{1'000};

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

}  // namespace

Result<gateway::Gateway::Options> gateway_options(gateway::GatewayConfig config,
                                                  TextsByFile& known) {
  gateway::Gateway::Options options{.config = std::move(config), .version = kVersion};
  if (!options.config.keys_file.empty()) {
    const std::string& file = options.config.keys_file;
    TRY(add_key_file(file, options.keys));
    if (options.keys.have_limits()) {
      return Error{ErrorCode::kBadConfig,
                   file +
                       ": rpm=, tpm= and concurrent= are not kept by a gateway yet; leave them "
                       "out here and give them to the workers",
                   "keys_file"};
    }
  }
  if (!options.config.fleet_key_file.empty()) {
    TRY_ASSIGN(const cluster::FleetKey key, cluster::FleetKey::read(options.config.fleet_key_file));
    options.trust = net::TlsTrust::of_shared_keys(key.derive(cluster::kConnectionLabel));
    options.block_seed = cluster::block_seed(key);
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
                             gateway::Gateway& gateway, base::Log& log)
    : file_(std::move(file)),
      rules_(rules),
      gateway_(gateway),
      log_(log),
      texts_(std::move(texts)),
      keys_file_(config.keys_file),
      workers_file_(config.workers_file),
      read_(stamps()),
      seen_(read_),
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
  const Result<void> done = try_reload();
  if (done.ok()) return log_.info(fmt::format("{}: the configuration is read anew", why));
  gateway_.note_bad_reload();
  log_.error(fmt::format("{}: all stays as it was: {}", why, done.error().message));
}

// All or nothing: what can fail comes first.
Result<void> GatewayReload::try_reload() {
  TRY_ASSIGN(gateway::GatewayConfig config, gateway::read_gateway_config(file_, rules_));
  if (!keys_file_.empty() && config.keys_file.empty()) {
    return Error{ErrorCode::kBadConfig,
                 "'keys_file' is gone; a gateway that asks for keys goes on asking until it is "
                 "started anew",
                 "keys_file"};
  }
  TRY_ASSIGN(gateway::Gateway::Options options, gateway_options(std::move(config), texts_));
  if (keys_file_ != options.config.keys_file || workers_file_ != options.config.workers_file) {
    keys_file_ = options.config.keys_file;
    workers_file_ = options.config.workers_file;
    read_ = seen_ = stamps();
  }
  const std::vector<std::string_view> kept =
      gateway_.reload(std::move(options.config), std::move(options.keys), std::move(options.texts));
  if (!kept.empty()) {
    log_.warning(
        fmt::format("{}: changed in the file, which takes a new start", fmt::join(kept, ", ")));
  }
  return {};
}

}  // namespace pelton::apps
