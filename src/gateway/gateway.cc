#include "gateway/gateway.h"

#include <algorithm>
#include <charconv>
#include <random>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "api/error.h"
#include "api/json_object.h"
#include "api/model_list.h"
#include "base/json_writer.h"
#include "base/random.h"
#include "gateway/admin_pages.h"
#include "gateway/client_headers.h"
#include "gateway/explanation.h"
#include "gateway/interruption.h"
#include "gateway/relay.h"
#include "net/url.h"

namespace pelton::gateway {
namespace {

constexpr int64_t kTimeoutMsMax = 86'400'000;

uint64_t random_seed() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

net::HttpResponse json_answer(int status, std::string body) {
  net::HttpResponse response{.status = status, .headers = {}, .body = std::move(body)};
  response.headers.add("Content-Type", "application/json");
  return response;
}

bool is_open(std::string_view path) {
  return path == "/health" || path == "/ready" || path == "/health/live" ||
         path == "/health/ready" || path == "/v1/health";
}

// What a worker says of itself (metrics, its kernels) is no client's business: the operator asks
// it.
bool is_forwarded(const net::HttpRequest& request) {
  return request.method == "POST" || request.path.starts_with("/v1/");
}

// As a request's own name may be: it stands in headers and log lines.
bool is_plain(std::string_view id) {
  if (id.empty() || id.size() > 128) return false;
  for (const char c : id) {
    if (c <= ' ' || c > '~' || c == '"' || c == '\\') return false;
  }
  return true;
}

// What the client gives the answer; of what is no number the worker says so.
std::optional<int64_t> time_left_ns(const net::HttpHeaders& headers) {
  const std::string_view text = headers.get("x-request-timeout-ms");
  int64_t ms = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ms);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || ms < 1 || ms > kTimeoutMsMax) return std::nullopt;
  return ms * 1'000'000;
}

// GW-03.
api::ApiError loop_detected() {
  return {.status = 508,
          .message =
              "the request has come through this gateway before, or through too many: one "
              "of its workers sends it back",
          .type = "server_error",
          .param = {},
          .code = "loop_detected"};
}

// By the body's "model", or the only pool there is; none: nobody answers to it.
const PoolConfig* pool_of(const GatewayConfig& config, const net::HttpRequest& request,
                          std::string& model) {
  if (!request.body.empty()) {
    const Result<std::string> asked = api::model_asked(request.body);
    if (asked.ok()) model = *asked;
  }
  for (const PoolConfig& pool : config.pools) {
    for (const std::string& name : pool.models) {
      if (name == model) return &pool;
    }
  }
  // What names no model means the only one; what is no JSON its worker refuses.
  return model.empty() && config.pools.size() == 1 ? &config.pools.front() : nullptr;
}

}  // namespace

Gateway::Gateway(Options options, const base::Clock& clock, base::Log& log)
    : trust_(std::move(options.trust)),
      config_(std::make_shared<const Settings>(
          Settings{.config = std::move(options.config), .texts = std::move(options.texts)})),
      name_(fmt::format("{:016x}", random_seed())),
      seed_(random_seed()),
      clock_(clock),
      log_(log),
      access_control_(std::move(options.keys), fmt::format("{:016x}", random_seed()), clock),
      quarantine_({.secret = fmt::format("{:016x}{:016x}", random_seed(), random_seed())}),
      fleet_({.gateway = name_,
              .trust = trust_,
              .block_seed = options.block_seed,
              .index_bytes = static_cast<size_t>(config_->config.index_bytes)},
             clock, log),
      client_({.threads = config_->config.threads, .idle_connections_max = 1024, .trust = trust_}),
      namer_(options.block_seed),
      dns_(
          {}, [this] { set_members(); }, log) {
  set_members();
  dns_.set_pools(config_->config.pools);
}

void Gateway::set_members() {
  std::lock_guard lock(members_mutex_);
  const Config settings = config();
  std::vector<WorkerConfig> workers = settings->config.workers;
  for (WorkerConfig& found : dns_.found()) {
    const bool is_known = std::ranges::any_of(workers, [&](const WorkerConfig& other) {
      return other.host == found.host && other.port == found.port;
    });
    if (!is_known) workers.push_back(std::move(found));
  }
  fleet_.set_members(settings->config.pools, workers);
}

Gateway::Config Gateway::config() const {
  std::lock_guard lock(mutex_);
  return config_;
}

std::vector<std::string_view> Gateway::reload(GatewayConfig config, access::ApiKeys keys,
                                              ModelTexts texts) {
  const Config settings = this->config();
  const GatewayConfig* const old = &settings->config;
  std::vector<std::string_view> kept;
  if (config.host != old->host || config.port != old->port) kept.emplace_back("listen");
  const bool same_admin =
      config.admin_host == old->admin_host && config.admin_port == old->admin_port;
  if (!same_admin) kept.emplace_back("admin");
  if (config.index_bytes != old->index_bytes) kept.emplace_back("index_bytes");
  if (config.threads != old->threads) kept.emplace_back("threads");
  if (config.fleet_key_file != old->fleet_key_file) kept.emplace_back("fleet_key_file");
  access_control_.replace_keys(std::move(keys));
  auto changed = std::make_shared<const Settings>(
      Settings{.config = std::move(config), .texts = std::move(texts)});
  {
    std::lock_guard lock(mutex_);
    config_ = std::move(changed);
  }
  set_members();
  dns_.set_pools(this->config()->config.pools);
  ++counters_.reloads;
  return kept;
}

uint64_t Gateway::draw() {
  return base::random_bits(seed_, draws_.fetch_add(1));
}

void Gateway::handle(net::HttpRequest request, const std::shared_ptr<net::Exchange>& exchange) {
  const std::string_view asked = request.headers.get("x-request-id");
  const std::string request_id =
      is_plain(asked) ? std::string(asked) : fmt::format("req_{:016x}", draw());
  const auto refuse = [&](const api::ApiError& error) {
    exchange->send(error_answer(request.path, error, request_id));
  };
  std::optional<access::Principal> principal =
      access_control_.identify(access::AccessControl::credentials_of(request.headers));
  if (!principal && !is_open(request.path)) return refuse(api::bad_api_key());
  if (std::optional<net::HttpResponse> own = own_answer(request)) {
    return exchange->send(*std::move(own));
  }
  if (!is_forwarded(request)) return refuse(api::not_found(request.method, request.path));
  if (goes_in_circles(request.headers, name_)) return refuse(loop_detected());
  const Config settings = this->config();
  const GatewayConfig& config = settings->config;
  std::string model;
  const PoolConfig* pool = pool_of(config, request, model);
  if (pool == nullptr) return refuse(api::model_not_found(model));
  const auto relayed =
      std::make_shared<Relay::Request>(Relay::Request{.http = std::move(request),
                                                      .pool = pool->name,
                                                      .model = std::move(model),
                                                      .request_id = request_id,
                                                      .principal = *std::move(principal),
                                                      .seed = draw(),
                                                      .created_ms = clock_.unix_ms()});
  if (const auto left_ns = time_left_ns(relayed->http.headers)) {
    relayed->deadline_ns = clock_.now_ns() + *left_ns;
  }
  const Relay::Services services{
      .fleet = fleet_,
      .client = client_,
      .clock = clock_,
      .log = log_,
      .counters = counters_,
      .quarantine = quarantine_,
      .retry_budget = retry_budget_,
      .gateway = name_,
      .retries_max = config.retries_max,
      .resume_budget_ns = static_cast<int64_t>(config.resume_budget_s * 1e9)};
  // Whose blocks are salted by a secret of its worker's own has no names here.
  PromptNamer::Naming naming;
  if (relayed->principal.tenant.empty()) {
    naming = naming_of(*settings, *pool, relayed->created_ms);
  }
  namer_.name_beside(relayed->http, std::move(naming), exchange,
                     [relayed, exchange, services](RoutedPrompt prompt) {
                       relayed->prompt = std::move(prompt);
                       Relay::start(std::move(*relayed), exchange, services);
                     });
}

PromptNamer::Naming Gateway::naming_of(const Settings& settings, const PoolConfig& pool,
                                       int64_t created_ms) const {
  const auto text = settings.texts.find(pool.name);
  if (text == settings.texts.end()) return {};
  Fleet::Naming known = fleet_.naming(pool.name);
  return {.text = text->second,
          .block_tokens = known.block_tokens,
          .date = known.date.empty() ? base::local_date(created_ms) : std::move(known.date)};
}

net::HttpResponse Gateway::explain(const net::HttpRequest& request) {
  const Config settings = config();
  const std::optional<std::string> path = net::query_value(request.query, "path");
  const net::HttpRequest asked{.method = "POST",
                               .path = path.value_or("/v1/chat/completions"),
                               .query = {},
                               .headers = {},
                               .body = request.body,
                               .remote = {}};
  std::string model;
  const PoolConfig* pool = pool_of(settings->config, asked, model);
  if (pool == nullptr) return error_answer("/", api::model_not_found(model), "");
  const RoutedPrompt prompt = namer_.name(asked, naming_of(*settings, *pool, clock_.unix_ms()));
  const std::vector<Fleet::Considered> considered = fleet_.explain(
      {.pool = pool->name, .model = model, .excluded = {}, .prompt = prompt, .draw = draw()});
  return json_answer(200, explanation_body({.pool = pool->name,
                                            .prompt = prompt,
                                            .output_tokens = fleet_.expected_output(pool->name),
                                            .considered = considered}));
}

std::optional<net::HttpResponse> Gateway::own_answer(const net::HttpRequest& request) const {
  if (request.method != "GET" && request.method != "HEAD") return std::nullopt;
  if (request.path == "/health/live") return json_answer(200, R"({"status":"ok"})");
  if (is_open(request.path)) return health();
  if (request.path == "/v1/models") return models();
  return std::nullopt;
}

// Ready: there are pools, and each has workers that take requests for its models.
net::HttpResponse Gateway::health() const {
  if (draining_) return json_answer(503, R"({"status":"draining"})");
  const Config settings = config();
  const std::vector<PoolConfig>& pools = settings->config.pools;
  if (pools.empty()) return json_answer(503, R"({"status":"no pool"})");
  for (const PoolConfig& pool : pools) {
    if (fleet_.serves(pool)) continue;
    std::string body;
    base::JsonWriter w(body);
    w.begin_object().key("status").string("no worker").key("pool").string(pool.name).end_object();
    return json_answer(503, std::move(body));
  }
  return json_answer(200, R"({"status":"ok"})");
}

net::HttpResponse Gateway::models() const {
  std::vector<api::ModelCard> cards;
  const Config settings = config();
  const std::vector<Fleet::Row> rows = fleet_.rows();
  for (const PoolConfig& pool : settings->config.pools) {
    int64_t context = 0;
    for (const Fleet::Row& row : rows) {
      if (row.pool == pool.name && row.record.context_tokens > 0) {
        context = context == 0 ? row.record.context_tokens
                               : std::min<int64_t>(context, row.record.context_tokens);
      }
    }
    for (const std::string& model : pool.models) {
      cards.push_back({.id = model, .root = pool.models.front(), .context_max = context});
    }
  }
  return json_answer(200, api::model_list_body(cards));
}

void Gateway::handle_admin(const net::HttpRequest& request,
                           const std::shared_ptr<net::Exchange>& exchange) {
  if (request.method == "GET" && is_open(request.path)) {
    return exchange->send(request.path == "/health/live" ? *own_answer(request) : health());
  }
  if (request.method == "POST" && request.path == "/v1/explain") {
    return exchange->send(explain(request));
  }
  exchange->send(admin_answer(request, fleet_, counters_));
}

}  // namespace pelton::gateway
