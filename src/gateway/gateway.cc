#include "gateway/gateway.h"

#include <algorithm>
#include <array>
#include <random>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "api/error.h"
#include "api/model_list.h"
#include "base/json_writer.h"
#include "base/random.h"
#include "gateway/admin_pages.h"
#include "gateway/asked.h"
#include "gateway/client_headers.h"
#include "gateway/config_text.h"
#include "gateway/foreign_pair.h"
#include "gateway/gateway_errors.h"
#include "gateway/interruption.h"
#include "gateway/response_socket.h"
#include "gateway/rollout_page.h"
#include "net/json_response.h"
#include "net/url.h"
#include "net/websocket.h"
#include "rpc/grpc_frame.h"

namespace pelton::gateway {
namespace {

constexpr std::chrono::milliseconds kRelease{50};
// So long after its start a gateway waits for each pool's first workers before it is ready.
constexpr int64_t kFirstWorkersNs = 30'000'000'000;

constexpr std::string_view kModels = "/v1/models";
constexpr std::string_view kCards = "/v1/model_cards/";

uint64_t random_seed() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

bool is_open(std::string_view path) {
  return path == "/health" || path == "/ready" || path == "/health/live" ||
         path == "/health/ready" || path == "/v1/health";
}

// What a worker says of itself (metrics, its kernels) is no client's business: the operator asks
// it.
bool is_forwarded(const net::HttpRequest& request) {
  constexpr std::array<std::string_view, 4> kOfOtherApis = {"/api/version", "/version", "/props",
                                                            "/ping"};
  return request.method == "POST" || request.path.starts_with("/v1/") ||
         std::ranges::find(kOfOtherApis, request.path) != kOfOtherApis.end();
}

// A path that is not there, or not by this method.
net::HttpResponse unknown_route(const net::HttpRequest& request, std::string_view request_id) {
  const std::string_view methods = methods_of_path(request.path);
  if (methods.empty()) {
    return error_answer(request.path, api::not_found(request.method, request.path), request_id);
  }
  net::HttpResponse refused =
      error_answer(request.path, api::method_not_allowed(request.method, request.path), request_id);
  refused.headers.add("Allow", std::string(methods));
  return refused;
}

// As a request's own name may be: it stands in headers and log lines.
bool is_plain(std::string_view id) {
  if (id.empty() || id.size() > 128) return false;
  for (const char c : id) {
    if (c <= ' ' || c > '~' || c == '"' || c == '\\') return false;
  }
  return true;
}

Result<std::string> model_for(const GatewayConfig& config, const Asker& asker,
                              const net::HttpRequest& request) {
  if (is_multipart(request) && !names_model_in_form(request) &&
      is_limited_to_models(config, asker)) {
    return Error{ErrorCode::kInvalidArgument,
                 "this key is for some models only, and which one a multipart body asks for is not "
                 "read here",
                 "model"};
  }
  TRY_ASSIGN(std::string model, asked_model(request));
  const std::optional<MediaKind> kind = media_kind_of(request);
  const bool is_open = model.empty() && kind && makes_media(*kind) && !asked_by_id(request);
  return is_open ? media_model(config, asker, *kind) : std::move(model);
}

// Of pools that make images or videos alone: of others it is answered that they make none.
bool wakes_a_maker(const net::HttpRequest& request, const PoolConfig& pool) {
  const std::optional<MediaKind> kind = media_kind_of(request);
  return kind && makes_media(*kind) && makes(pool.media, *kind) && !asked_by_id(request);
}

bool is_foreign(const GatewayConfig& config, const std::string& pool) {
  const PoolConfig* const found = pool_named(config, pool);
  return found != nullptr && found->is_foreign();
}

// Ready or not: a worker that is away has files and batches of its own all the same.
bool has_several_workers(const Fleet& fleet, const std::string& pool) {
  const std::vector<Fleet::Row> rows = fleet.rows();
  return std::ranges::count_if(rows, [&](const Fleet::Row& row) {
           return row.pool == pool && row.kind != WorkerKind::kRegion && cluster::decodes(row.role);
         }) > 1;
}

bool asks_why(const net::HttpRequest& request, const Asker& asker) {
  return asker.scope != nullptr && asker.scope->may_explain && request.method == "POST" &&
         is_explained_path(request.path) && request.headers.get("x-pelton-explain") == "1";
}

access::Principal weighted(const GatewayConfig& config, const Asker& asker,
                           access::Principal principal) {
  const double weight = weight_of(config, asker);
  if (weight > 0) principal.weight = weight;
  return principal;
}

// Where keys and values go or come from no client says (KV-10); our own workers refuse it too.
std::optional<Error> client_mistake(const GatewayConfig& config, const net::HttpRequest& request) {
  if (const Result<void> said = check_cold_start(request.headers); !said.ok()) return said.error();
  if (std::ranges::none_of(config.pools, &PoolConfig::is_foreign)) return std::nullopt;
  const std::string field = transfer_field_of(request.body);
  if (field.empty()) return std::nullopt;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("'{}' is between workers and their gateway only", field), field};
}

}  // namespace

Gateway::Gateway(Options options, const base::Clock& clock, base::Log& log)
    : trust_(std::move(options.trust)),
      kubernetes_trust_(std::move(options.kubernetes_trust)),
      config_(std::make_shared<const Settings>(
          Settings{.config = std::move(options.config), .texts = std::move(options.texts)})),
      name_(fmt::format("{:016x}", random_seed())),
      seed_(random_seed()),
      block_seed_(options.block_seed.value_or(random_seed())),
      clock_(clock),
      log_(log),
      begun_ns_(clock.now_ns()),
      begun_s_(clock.unix_ms() / 1000),
      knows_salts_(!options.salt_secret.empty()),
      resume_secret_(std::move(options.resume_secret)),
      access_control_(
          std::move(options.keys),
          knows_salts_ ? std::move(options.salt_secret) : fmt::format("{:016x}", random_seed()),
          clock),
      requests_(options.requests),
      audit_(options.audit),
      quarantine_({.secret = fmt::format("{:016x}{:016x}", random_seed(), random_seed())}),
      fleet_({.gateway = name_,
              .trust = trust_,
              .block_seed = block_seed_,
              .peer_key = options.peer_key,
              .index_bytes = static_cast<size_t>(config_->config.index_bytes),
              .on_ready =
                  [this](const std::string& pool) {
                    for (const auto& [held, gate] : gates()) {
                      if (held == pool) gate->release(fleet_.supply(pool));
                    }
                  }},
             clock, log),
      region_watch_(fleet_, clock),
      rollouts_({.has_workers = [this](const std::string& pool) { return serves(pool); },
                 .on_event =
                     [audit = options.audit](const access::AuditEvent& event) {
                       if (audit != nullptr) audit->note_often(event);
                     },
                 .clock = clock,
                 .log = log}),
      client_({.threads = config_->config.threads, .idle_connections_max = 1024, .trust = trust_}),
      namer_(block_seed_),
      on_demand_(options.on_demand ? std::move(options.on_demand) : [] {}),
      dns_(
          {}, [this] { set_members(); }, log),
      shadow_({.fleet = fleet_,
               .client = client_,
               .clock = clock_,
               .log = log_,
               .arms = arms_,
               .gateway = name_}),
      releaser_({.name = "pelton-release", .interval = kRelease}, [this] {
        release_held();
        shadow_.yield();
      }) {
  add_gates(config_->config);
  set_queues(config_->config);
  retry_budget_.set_share(config_->config.retry_budget);
  const EtcdConfig& etcd = config_->config.etcd;
  if (!etcd.endpoints.empty()) {
    limit_shares_ = std::make_unique<LimitShares>(
        LimitShares::Options{.etcd = options.etcd,
                             .prefix = etcd.prefix,
                             .gateway = name_,
                             .secret = std::move(options.limit_secret)},
        log_);
    rollout_shares_ = std::make_unique<RolloutShares>(
        RolloutShares::Options{.etcd = options.etcd, .prefix = etcd.prefix, .gateway = name_},
        rollouts_, log_);
    etcd_ = std::make_unique<EtcdSource>(
        EtcdSource::Options{.etcd = std::move(options.etcd),
                            .prefix = etcd.prefix,
                            .is_gone = [this](const std::string& host,
                                              int port) { return fleet_.is_gone(host, port); },
                            .changed = [this] { set_members(); }},
        log_);
  }
  watch_services(config_->config);
  set_members();
  rollouts_.set(config_->config);
  dns_.set_pools(config_->config.pools, config_->config.dns_server);
}

Gateway::Config Gateway::config() const {
  std::lock_guard lock(mutex_);
  return config_;
}

std::chrono::milliseconds Gateway::drain_time() const {
  return std::chrono::milliseconds(static_cast<int64_t>(config()->config.drain_s * 1e3));
}

uint64_t Gateway::draw() {
  return base::random_bits(seed_, draws_.fetch_add(1));
}

// By which it is known in logs and answers: what its client calls it, if that may stand there.
std::string Gateway::request_id_of(const net::HttpRequest& request) {
  const std::string_view asked = request.headers.get("x-request-id");
  return is_plain(asked) ? std::string(asked) : fmt::format("req_{:016x}", draw());
}

bool Gateway::takes_body(const net::HttpRequest& head) const {
  return access_control_.identify(access::AccessControl::credentials_of(head.headers)).has_value();
}

Gateway::Caller Gateway::caller_of(const net::HttpHeaders& headers) const {
  std::lock_guard lock(mutex_);
  return {.principal = access_control_.identify(access::AccessControl::credentials_of(headers)),
          .settings = config_};
}

void Gateway::handle(net::HttpRequest request, const std::shared_ptr<net::Exchange>& exchange) {
  const std::string request_id = request_id_of(request);
  const auto refuse = [&](const api::ApiError& error) {
    exchange->send(error_answer(request.path, error, request_id));
  };
  Caller caller = caller_of(request.headers);
  if (!caller.principal && !is_open(request.path)) return refuse(api::bad_api_key());
  const Asker asker =
      caller.principal ? Asker::of(caller.settings->config, *caller.principal) : Asker{};
  if (std::optional<net::HttpResponse> own = own_answer(request, asker)) {
    if (!own->headers.has("x-request-id")) own->headers.add("x-request-id", request_id);
    return exchange->send(*std::move(own));
  }
  if (is_open(request.path)) return exchange->send(unknown_route(request, request_id));
  if (!caller.principal) return refuse(api::bad_api_key());
  if (!is_forwarded(request) || rpc::is_grpc_method(request.path)) {
    return exchange->send(unknown_route(request, request_id));
  }
  if (request.method == "GET" && request.path == "/v1/responses") {
    return open_socket(std::move(request), exchange);
  }
  if (opens_live_session(request)) {
    return open_live(std::move(request), exchange, std::move(caller));
  }
  if (watch_video(request, exchange, caller)) return;
  if (list_videos(request, exchange, caller, asker)) return;
  relay(std::move(request), exchange, std::move(caller), Way::kHttp);
}

void Gateway::handle_grpc(net::HttpRequest request,
                          const std::shared_ptr<net::Exchange>& exchange) {
  Caller caller = caller_of(request.headers);
  if (!caller.principal) {
    const std::string request_id = request_id_of(request);
    return exchange->send(error_answer(request.path, api::bad_api_key(), request_id));
  }
  relay(std::move(request), exchange, std::move(caller), Way::kGrpc);
}

// A page of another site may not speak to a server in its visitor's name: browsers send handshakes
// anywhere. Programs say no origin.
std::optional<net::HttpResponse> Gateway::refused_handshake(const net::HttpRequest& request) const {
  if (const auto reject = net::check_websocket_request(request)) {
    return net::error_response(*reject);
  }
  if (!request.headers.get("Origin").empty()) {
    return net::error_response(
        {403, "foreign_origin", "pages in a browser may not use this gateway's WebSocket"});
  }
  if (draining_) return health();
  return std::nullopt;
}

void Gateway::open_socket(net::HttpRequest request,
                          const std::shared_ptr<net::Exchange>& exchange) {
  if (!request.headers.has("Upgrade")) {
    return exchange->send(net::error_response({426, "upgrade_required",
                                               "GET here is the handshake of a WebSocket "
                                               "('Upgrade: websocket'); POST makes a response"}));
  }
  if (auto refused = refused_handshake(request)) return exchange->send(*std::move(refused));
  ResponseSocket::open(std::move(request), exchange,
                       [this](net::HttpRequest turn, const std::shared_ptr<net::Exchange>& answer) {
                         relay_turn(std::move(turn), answer);
                       });
}

void Gateway::relay_turn(net::HttpRequest turn, const std::shared_ptr<net::Exchange>& answer) {
  Caller caller = caller_of(turn.headers);
  if (!caller.principal) {
    return answer->send(error_answer(turn.path, api::bad_api_key(), request_id_of(turn)));
  }
  relay(std::move(turn), answer, std::move(caller), Way::kSocket);
}

void Gateway::relay(net::HttpRequest request, const std::shared_ptr<net::Exchange>& exchange,
                    Caller caller, Way way, std::shared_ptr<LiveUplink> uplink) {
  const int64_t received_ns = clock_.now_ns();
  const std::string request_id = request_id_of(request);
  const auto refuse = [&](const api::ApiError& error) {
    exchange->send(error_answer(request.path, error, request_id));
  };
  if (goes_in_circles(request.headers, name_)) return refuse(loop_detected());
  const Config settings = caller.settings;
  const GatewayConfig& config = settings->config;
  const std::optional<std::string> id = asked_by_id(request);
  const auto home = id ? home_of(*id) : std::nullopt;
  if (const auto error = anothers_video(request, home, caller)) return refuse(*error);
  const Result<ForRegion> from = for_region(request.headers, caller);
  if (!from.ok()) return refuse(api::api_error(from.error()));
  Asker asker = Asker::of(config, *caller.principal);
  const Result<std::string> region = region_asked(config, asker, request.headers, *from);
  if (!region.ok()) return refuse(noted(request, asker, region_not_allowed(region.error())));
  asker.region = *region;
  const Result<std::string> model = model_for(config, asker, request);
  if (!model.ok()) return refuse(api::api_error(model.error()));
  std::optional<Routed> routed = route(config, request, *model, asker, home);
  if (!routed && id) routed = route_by_id(config, request, asker, home);
  if (!routed) return refuse(api::model_not_found(*model));
  if (routed->pool == nullptr) return refuse(noted(request, asker, no_worker_in_region()));
  // What starts no replica is none of the demand either, wherever one is there to answer it.
  const bool wakes = wakes_a_replica(request) || wakes_a_maker(request, *routed->pool);
  if (const auto error = unanswerable(request, routed->pool->name, wakes)) return refuse(*error);
  // Of several arms here another region knows nothing.
  const bool stays = from->comes || uplink || routed->arm || stays_here(request, config, asker);
  const bool is_explained = way == Way::kHttp && asks_why(request, asker);
  const PoolConfig* pool = routed->pool;
  if (uplink && pool->is_foreign()) return refuse(no_live_sessions_there());
  if (const auto error = client_mistake(config, request)) return refuse(api::api_error(*error));
  const Result<std::optional<int64_t>> left_ns = time_left_ns(request.headers);
  if (!left_ns.ok()) return refuse(api::api_error(left_ns.error()));
  Result<std::optional<Relay::Request::Media>> media = media_of(request, *pool);
  if (!media.ok()) return refuse(api::api_error(media.error()));
  const auto relayed = std::make_shared<Relay::Request>(
      Relay::Request{.http = std::move(request),
                     .pool = pool->name,
                     .model = std::move(routed->model),
                     .region = *region,
                     .stays_here = stays,
                     .request_id = request_id,
                     .principal = weighted(config, asker, *caller.principal),
                     .seed = draw(),
                     .created_ms = clock_.unix_ms(),
                     .received_ns = received_ns,
                     .arm = std::move(routed->arm),
                     .rollout = std::move(routed->rollout),
                     .served = counters_.served.find(pool->name, pool->models.front()),
                     .media = *std::move(media),
                     .uplink = std::move(uplink)});
  if (*left_ns) relayed->deadline_ns = clock_.now_ns() + **left_ns;
  const auto stale = way == Way::kHttp ? set_resume(*relayed, config, *pool) : std::nullopt;
  if (stale) return exchange->send(error_answer(relayed->http.path, *stale, request_id));
  if (!admit(*relayed, exchange)) return;
  relayed->names_adapter = routed->is_adapter;
  if (is_explained) return explain_beside(relayed, exchange, settings, *pool);
  relayed->speaks_of_id = id.has_value();
  (id ? relayed->other_pools : relayed->fallback) =
      std::move(id ? routed->other_pools : routed->fallback);
  drop_unfit_fallbacks(config, *relayed);
  if (home && home->pool == pool->name) relayed->home = {home->worker, home->serial};
  if (wakes) relayed->gate = gate_for(*relayed);
  if (relayed->gate != nullptr) relayed->keep_alive = keep_alive_of(*relayed, way, from->comes);
  start_relay(relayed, exchange, settings, *pool, routed->shadow);
}

// Another region's gateway reads a status, so it gets no head before there is one.
Relay::Request::KeepAlive Gateway::keep_alive_of(const Relay::Request& request, Way way,
                                                 bool comes_from_region) {
  using KeepAlive = Relay::Request::KeepAlive;
  if (way == Way::kGrpc) return KeepAlive::kMetadata;
  if (way == Way::kSocket) return KeepAlive::kPings;
  const StreamForm form = stream_form(request.http);
  if (form == StreamForm::kEvents) return KeepAlive::kComments;
  if (form == StreamForm::kLines) return KeepAlive::kLineBlanks;
  const bool may = request.gate->hold().sends_blanks && !comes_from_region && !request.media &&
                   answers_in_json(request.http);
  return may ? KeepAlive::kBlanks : KeepAlive::kNone;
}

void Gateway::start_relay(const std::shared_ptr<Relay::Request>& request,
                          const std::shared_ptr<net::Exchange>& exchange, const Config& settings,
                          const PoolConfig& pool, const ShadowConfig* shadow) {
  namer_.name_beside(request->http, naming_of(*settings, pool, named_for(*request)), exchange,
                     [this, request, exchange, settings, shadow](RoutedPrompt prompt) {
                       // Of pictures no token counts.
                       if (!request->media) request->prompt = std::move(prompt);
                       if (!reserve(*request, exchange)) return;
                       offer_shadow(settings->config, shadow, *request);
                       Relay::start(std::move(*request), exchange, services(settings->config));
                     });
}

std::optional<api::ApiError> Gateway::unanswerable(const net::HttpRequest& request,
                                                   const std::string& pool, bool wakes) const {
  if (is_list_of_workers_own(request) && has_several_workers(fleet_, pool)) {
    return lists_are_workers_own();
  }
  if (fleet_.supply(pool).ready > 0) return std::nullopt;
  // As a worker would refuse it, were there one.
  const Config settings = config();
  const PoolConfig* const of = pool_named(settings->config, pool);
  const bool is_text_alone =
      of != nullptr && !of->is_foreign() && !of->media.any() && !opens_live_session(request);
  if (auto missing = is_text_alone ? modality_missing(request.path) : std::nullopt) return missing;
  if (lacks_its_body(request)) return api::api_error(Json::parse(request.body).error());
  if (!wakes && gate_of(pool)) return no_replica_for_this();
  return std::nullopt;
}

Relay::Services Gateway::services(const GatewayConfig& config) {
  return {.fleet = fleet_,
          .client = client_,
          .clock = clock_,
          .log = log_,
          .counters = counters_,
          .quarantine = quarantine_,
          .retry_budget = retry_budget_,
          .homes = homes_,
          .running = running_,
          .gateway = name_,
          .retries_max = config.retries_max,
          .resume_budget_ns = static_cast<int64_t>(config.resume_budget_s * 1e9),
          .requests = requests_,
          .audit = audit_,
          .ends = &ends_};
}

void Gateway::offer_shadow(const GatewayConfig& config, const ShadowConfig* shadow,
                           const Relay::Request& request) {
  if (shadow == nullptr) return;
  shadow_.offer({.to = *shadow,
                 .is_foreign = is_foreign(config, shadow->pool),
                 .output_tokens = fleet_.expected_output(shadow->pool)},
                request);
}

// One that goes on from a stored response stays with the arm that has it.
std::optional<Gateway::Routed> Gateway::route(const GatewayConfig& config,
                                              const net::HttpRequest& request, std::string model,
                                              const Asker& asker, const Home& home) {
  using Sticky = RouteConfig::Sticky;
  const RouteConfig* const known = find_route(config, model, asker);
  const bool is_split = known != nullptr && (known->arms.size() > 1 || known->shadow);
  std::string session;
  std::string user;
  if (is_split && known->sticky == Sticky::kSession) session = asked_session(request);
  if (is_split && known->sticky == Sticky::kUser) user = asked_user(request);
  const std::string home_pool = home ? home->pool : std::string();
  RouteKey key{.model = model,
               .asker = asker,
               .session = session,
               .user = user,
               .home = home_pool,
               .draw = draw()};
  const Rollouts::Draw rollout = draw_rollout(known, key);
  key.rollout = rollout.share;
  const auto choice = choose_route(config, key);
  if (!choice) return route_adapter(config, std::move(model), asker);
  if (choice->pool == nullptr) return Routed{};
  std::vector<std::string> fallback = fallback_of(config, key, *choice);
  Routed routed{.pool = choice->pool, .model = std::move(model), .fallback = std::move(fallback)};
  if (choice->arm == nullptr) return routed;
  routed.arm = arms_.find(routed.model, choice->arm->name, ArmTable::Traffic::kClients);
  routed.rollout = begin_rollout(request, *choice, rollout);
  if (choice->is_shadowed) routed.shadow = &*choice->route->shadow;
  if (home) return routed;
  for (const PoolConfig& pool : config.pools) {
    const bool is_arms = std::ranges::find(choice->route->arms, pool.name, &RouteArm::pool) !=
                         choice->route->arms.end();
    if (!is_arms || &pool == routed.pool || !may_use(config, asker, pool, routed.model)) continue;
    routed.other_pools.push_back(pool.name);
  }
  return routed;
}

// What no pool is configured for may be an adapter that a pool's workers have.
std::optional<Gateway::Routed> Gateway::route_adapter(const GatewayConfig& config, std::string name,
                                                      const Asker& asker) const {
  for (const PoolConfig& pool : config.pools) {
    if (name.empty() || !may_use(config, asker, pool, name)) continue;
    if (!fleet_.has_adapter(pool.name, name)) continue;
    return Routed{.pool = &pool, .model = std::move(name), .is_adapter = true};
  }
  return std::nullopt;
}

bool Gateway::admit(Relay::Request& request, const std::shared_ptr<net::Exchange>& exchange) {
  if (!request.principal.limits.any() || !asks_for_work(request.http)) return true;
  if (limit_shares_ != nullptr) {
    request.principal.limits = limit_shares_->limits_for(request.principal);
  }
  auto admitted = access_control_.admit(request.principal, refusals_);
  if (auto* refused = std::get_if<api::ApiError>(&admitted)) {
    refuse_limited(request, *refused, *exchange);
    return false;
  }
  request.ticket = std::make_unique<access::AdmissionTicket>(
      std::get<access::AdmissionTicket>(std::move(admitted)));
  return true;
}

// Its prompt, and as many output tokens as answers lately had.
bool Gateway::reserve(Relay::Request& request, const std::shared_ptr<net::Exchange>& exchange) {
  if (request.ticket == nullptr) return true;
  constexpr int64_t kNoBound = int64_t{1} << 40;
  const int64_t tokens = request.prompt.tokens + access_control_.expected_output(kNoBound);
  if (limit_shares_ != nullptr) limit_shares_->note_tokens(request.principal, tokens);
  if (const auto refused = access_control_.reserve(*request.ticket, tokens, refusals_)) {
    request.ticket.reset();
    access_control_.refund_request(request.principal);
    refuse_limited(request, *refused, *exchange);
    return false;
  }
  access_control_.add_limits(request.principal, request.limits);
  return true;
}

void Gateway::refuse_limited(const Relay::Request& request, const api::ApiError& error,
                             net::Exchange& exchange) const {
  net::HttpResponse answer = error_answer(request.http.path, error, request.request_id);
  access_control_.add_limits(request.principal, answer.headers);
  exchange.send(std::move(answer));
}

Gateway::Home Gateway::home_of(const std::string& id) const {
  auto home = homes_.find(id);
  return home ? home : running_.find(id);
}

// A request by an id names no model: of several pools it is the one that made it, where
// that is known, and otherwise one after the other.
std::optional<Gateway::Routed> Gateway::route_by_id(const GatewayConfig& config,
                                                    const net::HttpRequest& request,
                                                    const Asker& asker, const Home& home) {
  const bool is_video =
      !video_of_path(request.path).empty() && makes_any(config, MediaKind::kVideo);
  std::optional<Routed> routed;
  std::vector<std::string> other_pools;
  for (const PoolConfig& pool : config.pools) {
    const bool may = std::ranges::any_of(
        pool.models, [&](const std::string& model) { return may_use(config, asker, pool, model); });
    if (!may || (is_video ? !pool.media.videos : pool.scaling.has_value())) continue;
    const bool is_first = !routed || (home && home->pool == pool.name);
    if (is_first && routed) other_pools.push_back(routed->pool->name);
    if (is_first) {
      routed = Routed{.pool = &pool, .model = {}};
    } else {
      other_pools.push_back(pool.name);
    }
  }
  if (routed) routed->other_pools = std::move(other_pools);
  return routed;
}

std::optional<net::HttpResponse> Gateway::own_answer(const net::HttpRequest& request,
                                                     const Asker& asker) const {
  if (request.method != "GET" && request.method != "HEAD") return std::nullopt;
  if (request.path == "/health/live") return net::json_response(R"({"status":"ok"})");
  if (is_open(request.path)) return health();
  if (auto summary = region_summary(request, asker)) return summary;
  if (auto list = list_of_other_api(request, asker)) return list;
  if (request.path == kModels) return net::json_response(api::model_list_body(models(asker)));
  if (request.path.starts_with(kModels) && request.path.size() > kModels.size() + 1) {
    return model_answer(request, asker);
  }
  // What its makers say of it a worker knows.
  const bool is_hidden = request.path.starts_with(kCards) &&
                         !knows_model(std::string_view(request.path).substr(kCards.size()), asker);
  if (is_hidden) return model_answer(request, asker);
  return std::nullopt;
}

// Ready from when each pool has workers for its models, or kFirstWorkersNs after the start, as long
// as one has: a pool without workers is no reason to take the others' clients away from here.
net::HttpResponse Gateway::health() const {
  if (draining_) return net::json_response(R"({"status":"draining"})", 503);
  const Config settings = config();
  const std::vector<PoolConfig>& pools = settings->config.pools;
  if (pools.empty()) return net::json_response(R"({"status":"no pool"})", 503);
  std::vector<std::string_view> missing;
  size_t wanted = 0;
  for (const PoolConfig& pool : pools) {
    if (!is_for_clients(settings->config, pool)) continue;
    ++wanted;
    // Who has none starts one when it is asked for.
    if (!pool.scaling && !fleet_.serves(pool, Fleet::Regions::kCount)) missing.push_back(pool.name);
  }
  if (missing.empty()) was_complete_ = true;
  const bool has_waited = was_complete_ || clock_.now_ns() - begun_ns_ > kFirstWorkersNs;
  const bool is_ready = missing.size() < wanted && (missing.empty() || has_waited);
  std::string body;
  base::JsonWriter w(body);
  w.begin_object().key("status").string(is_ready ? "ok" : "no worker");
  if (!missing.empty()) {
    w.key("without_workers").begin_array();
    for (const std::string_view pool : missing) w.string(pool);
    w.end_array();
  }
  w.end_object();
  return net::json_response(std::move(body), is_ready ? 200 : 503);
}

net::HttpResponse Gateway::model_answer(const net::HttpRequest& request, const Asker& asker) const {
  const std::string_view prefix = request.path.starts_with(kCards) ? "/v1/model_cards" : kModels;
  const std::string_view name = std::string_view(request.path).substr(prefix.size() + 1);
  for (const api::ModelCard& card : models(asker)) {
    if (card.id == name) return net::json_response(api::model_body(card));
  }
  return error_answer(request.path, api::model_not_found(name), "");
}

bool Gateway::knows_model(std::string_view name, const Asker& asker) const {
  return std::ranges::any_of(models(asker),
                             [&](const api::ModelCard& card) { return card.id == name; });
}

std::vector<api::ModelCard> Gateway::models(const Asker& asker) const {
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
    std::optional<autoscaler::PoolAnnouncement> announced;
    if (const std::shared_ptr<PoolGate> gate = gate_of(pool.name)) announced = gate->announcement();
    for (const std::string& model : pool.models) {
      const bool is_there =
          std::ranges::any_of(cards, [&](const auto& card) { return card.id == model; });
      if (is_there || !may_use(settings->config, asker, pool, model)) continue;
      cards.push_back(
          {.id = model, .root = pool.models.front(), .created = begun_s_, .context_max = context});
      if (!announced) continue;
      cards.back().state = autoscaler::pool_phase_name(announced->phase);
      cards.back().eta_s = announced->eta_s;
    }
    for (const std::string& adapter : fleet_.adapters(pool.name)) {
      const bool is_there =
          std::ranges::any_of(cards, [&](const auto& card) { return card.id == adapter; });
      if (is_there || !may_use(settings->config, asker, pool, adapter)) continue;
      // Of a pool of several models it is not known whose it is.
      const std::string parent = pool.models.size() == 1 ? pool.models.front() : "";
      cards.push_back({.id = adapter,
                       .root = adapter,
                       .parent = parent,
                       .created = begun_s_,
                       .context_max = context});
    }
  }
  return cards;
}

// Those that are there stay as they are: what they hold is theirs.
void Gateway::add_gates(const GatewayConfig& config) {
  std::lock_guard lock(mutex_);
  for (const PoolConfig& pool : config.pools) {
    if (!pool.scaling || gates_.contains(pool.name)) continue;
    gates_[pool.name] = std::make_shared<PoolGate>(*pool.scaling, clock_, on_demand_);
  }
}

std::shared_ptr<PoolGate> Gateway::gate_of(std::string_view pool) const {
  std::lock_guard lock(mutex_);
  const auto found = gates_.find(pool);
  return found == gates_.end() ? nullptr : found->second;
}

void Gateway::release_held() {
  for (const auto& [pool, gate] : gates()) gate->release(fleet_.supply(pool));
}

std::vector<autoscaler::GatewayReport> Gateway::demand(std::string_view pool) const {
  const std::shared_ptr<PoolGate> gate = gate_of(pool);
  if (gate == nullptr) return {};
  return {gate->report(name_)};
}

void Gateway::set_draining(std::string_view host, int port, bool draining) {
  const std::string address = net::format_host_port(host, port);
  for (const Fleet::Row& row : fleet_.rows()) {
    if (row.url != address) continue;
    fleet_.command(row.name, draining ? Fleet::Command::kDrain : Fleet::Command::kUndrain);
    if (draining) continue;
    // Whoever waits need not wait for what it says next.
    const std::shared_ptr<PoolGate> gate = gate_of(row.pool);
    if (gate != nullptr) gate->release(fleet_.supply(row.pool));
  }
}

void Gateway::release_memory(std::string_view host, int port) {
  const std::string address = net::format_host_port(host, port);
  for (const Fleet::Row& row : fleet_.rows()) {
    if (row.url == address) fleet_.release_memory(row.name);
  }
}

void Gateway::retire(std::string_view pool, uint64_t retirement) {
  const std::shared_ptr<PoolGate> gate = gate_of(pool);
  if (gate == nullptr) return;
  gate->retire(retirement);
  gate->release(fleet_.supply(pool));
}

void Gateway::announce(std::string_view pool, const autoscaler::PoolAnnouncement& announcement) {
  const std::shared_ptr<PoolGate> gate = gate_of(pool);
  if (gate != nullptr) gate->announce(announcement);
}

void Gateway::handle_admin(const net::HttpRequest& request,
                           const std::shared_ptr<net::Exchange>& exchange,
                           const MoreMetrics& more_metrics) {
  if (request.method == "GET" && is_open(request.path)) {
    return exchange->send(request.path == "/health/live" ? *own_answer(request, {}) : health());
  }
  if (request.method == "POST" && request.path == "/v1/explain") {
    return exchange->send(explain(request));
  }
  if (request.method == "GET" && request.path == "/v1/routes") {
    return exchange->send(net::json_response(routes_body()));
  }
  if (request.method == "GET" && request.path == "/v1/regions") {
    return exchange->send(net::json_response(regions_body()));
  }
  if (request.method == "GET" && request.path == "/debug/ledger") {
    return exchange->send(net::json_response(ledger_body()));
  }
  if (is_rollout_path(request.path)) return exchange->send(rollout_answer(request, rollouts_));
  const bool erases = request.path == "/v1/reset_prefix_cache" || request.path == kEraseTenant;
  if (erases) return erase_beside(request, exchange, fleet_);
  std::vector<HeldPool> held;
  for (const auto& [pool, gate] : gates()) held.push_back({.pool = pool, .counts = gate->counts()});
  exchange->send(admin_answer(request, {.fleet = fleet_,
                                        .counters = counters_,
                                        .quarantine = quarantine_,
                                        .refusals = refusals_,
                                        .access = access_control_,
                                        .retry_budget = retry_budget_,
                                        .now_ns = clock_.now_ns(),
                                        .limit_shares = limit_shares_.get(),
                                        .arms = arms_,
                                        .rollouts = rollouts_,
                                        .shadow = shadow_.counts(),
                                        .held = held,
                                        .more_metrics = more_metrics}));
}

}  // namespace pelton::gateway
