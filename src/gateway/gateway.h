// The gateway: takes clients' requests, sees whose they are and which pool of workers is meant, and
// relays them (gateway/relay.h). Owned by the program's entry, which hands handle() to a
// net::HttpServer and stops that before this goes away. handle() runs on that server's net threads.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "access/access_control.h"
#include "access/audit_log.h"
#include "access/refusal_counts.h"
#include "api/model_list.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/periodic_thread.h"
#include "gateway/arm_figures.h"
#include "gateway/config.h"
#include "gateway/dns_source.h"
#include "gateway/etcd_source.h"
#include "gateway/fleet.h"
#include "gateway/fleet_conditions.h"
#include "gateway/fleet_sampler.h"
#include "gateway/id_homes.h"
#include "gateway/kubernetes_source.h"
#include "gateway/limit_shares.h"
#include "gateway/pool_gate.h"
#include "gateway/prompt_namer.h"
#include "gateway/quarantine.h"
#include "gateway/region_watch.h"
#include "gateway/relay.h"
#include "gateway/relay_counters.h"
#include "gateway/retry_budget.h"
#include "gateway/rollout_shares.h"
#include "gateway/rollouts.h"
#include "gateway/route_table.h"
#include "gateway/shadow_traffic.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "telemetry/prometheus_text.h"

namespace pelton::gateway {

class Gateway {
 public:
  // Of pools that have a tokenizer, by their names.
  using ModelTexts = std::map<std::string, std::shared_ptr<const ModelText>, std::less<>>;

  struct Options {
    GatewayConfig config;
    access::ApiKeys keys;  // empty: none is asked for
    ModelTexts texts;
    std::optional<uint64_t> block_seed;  // of the fleet's block names; none: one is drawn
    std::string peer_key;                // of tickets for workers' blocks; empty: there are none
    // Of the salts of tenants' blocks, as workers have it; empty: those are not known here.
    std::string salt_secret;
    std::shared_ptr<const net::TlsTrust> trust;             // of the workers; null: plain HTTP
    std::shared_ptr<const net::TlsTrust> kubernetes_trust;  // null: what the system trusts
    // [etcd] with what its files say.
    cluster::EtcdClient::Options etcd;
    std::string limit_secret;   // of accounts' names there, as all gateways have it
    std::string resume_secret;  // of streams' tickets where there are no regions; empty: none
    std::string version;
    // A request has come to a pool that has no replica for it; any thread.
    std::function<void()> on_demand;
    RequestLog* requests = nullptr;  // outlives it; null: none is kept
    // Of changes and of refusals by residency; outlives it; null: none is kept.
    access::AuditLog* audit = nullptr;
  };

  // `clock` and `log` outlive it.
  Gateway(Options options, const base::Clock& clock, base::Log& log);

  void handle(net::HttpRequest request, const std::shared_ptr<net::Exchange>& exchange);
  // A call of gRPC's: its method is the path, its message the body.
  void handle_grpc(net::HttpRequest request, const std::shared_ptr<net::Exchange>& exchange);
  // Whether to wait for the body of a request with this header: handle() needs none for a wrong
  // key.
  bool takes_body(const net::HttpRequest& head) const;
  // The operator's listener. `more_metrics`: besides its own, of whoever is in this process.
  using MoreMetrics = std::function<void(telemetry::PrometheusText&)>;
  void handle_admin(const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange,
                    const MoreMetrics& more_metrics);

  // For the operator's console; any thread (gateway_operators.cc).
  FleetSampler::Sums sums() const;
  // For the alerts that it can hold against itself; of pools only what is held.
  FleetConditions::Counts condition_counts() const;
  // What it holds just now, and what it knows of its workers: GET /debug/ledger.
  std::string ledger_body() const;
  // Whether any key is an operator's; where none is, nobody signs in.
  bool has_operators() const;
  // Whose key this is, if it is an operator's.
  std::optional<access::Principal> operator_of(std::string_view key) const;
  // Whether that account's key is an operator's still.
  bool is_operator(const std::string& account) const;
  // {"routes":[...]}, as they are in force.
  std::string routes_body() const;
  bool has_routes() const;
  // The configuration that is in force, with all that its file leaves out (config_text.h).
  std::string effective_config() const;
  std::shared_ptr<const GatewayConfig> in_force() const {
    const std::shared_ptr<const Settings> settings = config();
    return {settings, &settings->config};
  }
  Rollouts& rollouts() { return rollouts_; }
  access::AuditLog* audit() const { return audit_; }
  // False: no worker has that name.
  bool command(std::string_view worker, Fleet::Command command);

  // From the next request on; any thread. Running answers go on as they are. Gives back the keys of
  // the file that take a new start: they stay as they are.
  std::vector<std::string_view> reload(GatewayConfig config, access::ApiKeys keys,
                                       ModelTexts texts);
  // Those keys, were it read.
  std::vector<std::string_view> takes_new_start(GatewayConfig config) const {
    return keep_what_is_fixed(this->config()->config, config);
  }
  // The file is wrong: all stays as it was.
  void note_bad_reload() { ++counters_.reloads_refused; }

  // For whoever starts and stops the replicas of its pools (launch/fleet_scaler.h); any thread. A
  // pool that is not scaled has no demand and hears of nothing.
  std::vector<autoscaler::GatewayReport> demand(std::string_view pool) const;
  bool scales(std::string_view pool) const { return gate_of(pool) != nullptr; }
  std::vector<Fleet::Row> workers() const { return fleet_.rows(); }
  // Besides those of the file and those that were found.
  void set_launched(std::vector<WorkerConfig> workers);
  void set_draining(std::string_view host, int port, bool draining);
  // That one stands by, and gives back what its KV cache takes.
  void release_memory(std::string_view host, int port);
  void retire(std::string_view pool, uint64_t retirement);
  void announce(std::string_view pool, const autoscaler::PoolAnnouncement& announcement);

  // Not ready from now on; running answers go on.
  void drain() { draining_ = true; }
  bool drains() const { return draining_; }
  std::chrono::milliseconds drain_time() const;
  // What is still under way ends within a second, with an error that says so. Any thread.
  void interrupt() { ends_ = true; }
  // Answers on their way.
  int64_t open() const { return counters_.open; }

 private:
  struct Settings {
    GatewayConfig config;
    ModelTexts texts;
  };
  using Config = std::shared_ptr<const Settings>;
  using Gates = std::map<std::string, std::shared_ptr<PoolGate>, std::less<>>;
  using Services = std::map<std::string, std::unique_ptr<KubernetesSource>>;

  // How it has come: over HTTP, as a message of a WebSocket, as a gRPC call.
  enum class Way { kHttp, kSocket, kGrpc };
  // Who asks (none: nobody who may), and the configuration that holds for him: keys and what they
  // may reach are of one reading.
  struct Caller {
    std::optional<access::Principal> principal;
    Config settings;
  };
  Caller caller_of(const net::HttpHeaders& headers) const;
  // `uplink`: of a live session; null: it is none.
  void relay(net::HttpRequest request, const std::shared_ptr<net::Exchange>& exchange,
             Caller caller, Way way, std::shared_ptr<LiveUplink> uplink = nullptr);
  // What a request of a pool with a gate may get while it is held.
  static Relay::Request::KeepAlive keep_alive_of(const Relay::Request& request, Way way,
                                                 bool comes_from_region);
  // Once its prompt is named. `shadow`: of the settings; null: it gets no copy.
  void start_relay(const std::shared_ptr<Relay::Request>& request,
                   const std::shared_ptr<net::Exchange>& exchange, const Config& settings,
                   const PoolConfig& pool, const ShadowConfig* shadow);
  // Relays a request that stands for its client's own, whose key may have been taken back since.
  void relay_turn(net::HttpRequest turn, const std::shared_ptr<net::Exchange>& answer);
  // Of a WebSocket; none: it may be one.
  std::optional<net::HttpResponse> refused_handshake(const net::HttpRequest& request) const;
  // GET /v1/realtime, /v1/audio/speech/websocket: a session of a worker's (gateway_live.cc).
  void open_live(net::HttpRequest request, const std::shared_ptr<net::Exchange>& exchange,
                 Caller caller);
  // GET /v1/responses: the handshake of a WebSocket.
  void open_socket(net::HttpRequest request, const std::shared_ptr<net::Exchange>& exchange);
  // A line of the audit log: where it must stay it is sent to no worker. Gives the refusal back.
  api::ApiError noted(const net::HttpRequest& request, const Asker& asker, api::ApiError refusal);
  std::string request_id_of(const net::HttpRequest& request);
  uint64_t draw();
  Config config() const;
  std::vector<std::string_view> keep_what_is_fixed(const GatewayConfig& old,
                                                   GatewayConfig& config) const;
  // Those of the file and those that were found.
  void set_members();
  std::vector<WorkerConfig> found(const GatewayConfig& config);
  void watch_services(const GatewayConfig& config);
  // Its own answers: health, the list of models.
  std::optional<net::HttpResponse> own_answer(const net::HttpRequest& request,
                                              const Asker& asker) const;
  net::HttpResponse health() const;
  // Between regions (gateway_regions.cc). GET /v1/regions/summary, for other regions' gateways;
  // none: it is no such request, or none that may be answered.
  std::optional<net::HttpResponse> region_summary(const net::HttpRequest& request,
                                                  const Asker& asker) const;
  // Whether another region's gateway asks, whose tenant the caller is then.
  struct ForRegion {
    bool comes = false;
    std::string stays_in;  // the region that it may not leave; empty: any
  };
  static Result<ForRegion> for_region(const net::HttpHeaders& headers, Caller& caller);
  // Whether no other region may answer it: what it says, and who asks and how it is routed.
  static bool stays_here(const net::HttpRequest& request, const GatewayConfig& config,
                         const Asker& asker);
  // The region that the request stays in, by its key, its tenant and its header; empty: any. Error:
  // what it asks for is not for it.
  static Result<std::string> region_asked(const GatewayConfig& config, const Asker& asker,
                                          const net::HttpHeaders& headers, const ForRegion& from);
  std::string regions_body() const;
  // Which no worker of the pool could answer; none: one may.
  std::optional<api::ApiError> unanswerable(const net::HttpRequest& request,
                                            const std::string& pool, bool wakes) const;
  // Of images and videos (gateway_media.cc).
  // Who asks for another tenant's video hears that there is none.
  static std::optional<api::ApiError> anothers_video(const net::HttpRequest& request,
                                                     const std::optional<IdHomes::Home>& home,
                                                     const Caller& caller);
  // None: the pool makes none, or it asks for none. Errors: beyond a limit.
  Result<std::optional<Relay::Request::Media>> media_of(const net::HttpRequest& request,
                                                        const PoolConfig& pool);
  // Pools of a route's `fallback` that would have refused it themselves.
  static void drop_unfit_fallbacks(const GatewayConfig& config, Relay::Request& request);
  // GET /v1/videos/ID/events; false likewise.
  bool watch_video(net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange,
                   const Caller& caller);
  // GET /v1/videos; false: it is no such request, or nobody makes any.
  bool list_videos(const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange,
                   const Caller& caller, const Asker& asker);
  std::vector<api::ModelCard> models(const Asker& asker) const;
  // As its list has it: a worker may have models that the asker is not to know of.
  net::HttpResponse model_answer(const net::HttpRequest& request, const Asker& asker) const;
  bool knows_model(std::string_view name, const Asker& asker) const;
  // Of what the asker may use (gateway_lists.cc): Ollama's /api/tags and /api/ps, llama.cpp's
  // /slots. None: it asks for none of them.
  std::optional<net::HttpResponse> list_of_other_api(const net::HttpRequest& request,
                                                     const Asker& asker) const;
  std::string ollama_ps(const Asker& asker) const;
  net::HttpResponse llama_slots(const net::HttpRequest& request, const Asker& asker) const;
  void add_gates(const GatewayConfig& config);
  std::shared_ptr<PoolGate> gate_of(std::string_view pool) const;
  // Of pools that make images or videos and are not scaled (gateway_media.cc): there waits what
  // their workers do not take yet.
  void set_queues(const GatewayConfig& config);
  // Where a request that a replica is started for waits, if nobody takes it; null: nowhere.
  std::shared_ptr<PoolGate> gate_for(const Relay::Request& request) const;
  Gates gates() const;  // queues too
  void release_held();
  // Its pool and model; an error: why there is none.
  struct Routed {
    const PoolConfig* pool = nullptr;
    std::string model;
    bool is_adapter = false;  // it is the name of one
    std::shared_ptr<ArmFigures> arm = {};
    std::unique_ptr<RolloutTicket> rollout = {};  // null: no roll-out counts it
    const ShadowConfig* shadow = nullptr;         // that gets a copy; null: none does
    std::vector<std::string> other_pools = {};    // that may have made the response it speaks of
    std::vector<std::string> fallback = {};       // that are asked where its own takes nothing more
  };
  using Home = std::optional<IdHomes::Home>;
  std::optional<Routed> route(const GatewayConfig& config, const net::HttpRequest& request,
                              std::string model, const Asker& asker, const Home& home);
  // The arm of a route that is rolled out (gateway_rollouts.cc): of another route nothing.
  Rollouts::Draw draw_rollout(const RouteConfig* route, const RouteKey& key);
  std::unique_ptr<RolloutTicket> begin_rollout(const net::HttpRequest& request,
                                               const RouteChoice& choice,
                                               const Rollouts::Draw& draw);
  bool serves(std::string_view pool) const;
  std::optional<Routed> route_adapter(const GatewayConfig& config, std::string name,
                                      const Asker& asker) const;
  // A copy of the request to the route's shadow, if it has one.
  Home home_of(const std::string& id) const;
  Relay::Services services(const GatewayConfig& config);
  // What its client says of going on with it at another gateway (gateway_resume.cc). An error: it
  // may not here.
  std::optional<api::ApiError> set_resume(Relay::Request& request, const GatewayConfig& config,
                                          const PoolConfig& pool) const;
  void offer_shadow(const GatewayConfig& config, const ShadowConfig* shadow,
                    const Relay::Request& request);
  // Within its key's limits; false: it has been refused.
  bool admit(Relay::Request& request, const std::shared_ptr<net::Exchange>& exchange);
  bool reserve(Relay::Request& request, const std::shared_ptr<net::Exchange>& exchange);
  void refuse_limited(const Relay::Request& request, const api::ApiError& error,
                      net::Exchange& exchange) const;
  static std::optional<Routed> route_by_id(const GatewayConfig& config,
                                           const net::HttpRequest& request, const Asker& asker,
                                           const Home& home);
  // POST /v1/explain?path=/v1/chat/completions with a request's body.
  net::HttpResponse explain(const net::HttpRequest& request);
  // The same of a client's request, whose key may ask for it, in place of its answer.
  void explain_beside(const std::shared_ptr<Relay::Request>& request,
                      const std::shared_ptr<net::Exchange>& exchange, const Config& settings,
                      const PoolConfig& pool);
  struct Explained {
    const PoolConfig& pool;
    std::string_view model;
    std::string_view region;
    const RoutedPrompt& prompt;
    int64_t body_bytes = 0;
  };
  net::HttpResponse explanation(const Explained& explained);
  // `adapter`: that the request names; empty: none.
  struct NamedFor {
    int64_t created_ms = 0;
    std::string_view adapter;
    std::string_view tenant;
  };
  // Of what `request` holds.
  static NamedFor named_for(const Relay::Request& request);
  PromptNamer::Naming naming_of(const Settings& settings, const PoolConfig& pool,
                                const NamedFor& named) const;

  const std::shared_ptr<const net::TlsTrust> trust_;
  const std::shared_ptr<const net::TlsTrust> kubernetes_trust_;
  mutable std::mutex mutex_;
  Config config_;           // guarded by mutex_
  Gates gates_;             // guarded by mutex_; a gate stays
  Gates queues_;            // likewise
  const std::string name_;  // one for each start
  const uint64_t seed_;
  const uint64_t
      block_seed_;  // of block names; without the fleet's key those of foreign workers only
  const base::Clock& clock_;
  base::Log& log_;
  const int64_t begun_ns_;
  const int64_t begun_s_;  // since 1970: what lists say of models, whose workers know better
  mutable std::atomic<bool> was_complete_ = false;  // each pool has had workers
  const bool knows_salts_;                          // of tenants' blocks
  const std::string resume_secret_;
  access::AccessControl access_control_;
  access::RefusalCounts refusals_;
  RelayCounters counters_;
  RequestLog* const requests_;
  access::AuditLog* const audit_;
  Quarantine quarantine_;
  RetryBudget retry_budget_{RetryBudget::Options{}};
  IdHomes homes_;
  IdHomes running_;
  std::atomic<uint64_t> draws_ = 0;
  std::atomic<bool> draining_ = false;
  std::atomic<bool> ends_ = false;
  ArmTable arms_;
  Fleet fleet_;
  RegionWatch region_watch_;
  mutable std::mutex region_mutex_;
  mutable std::string region_own_;                   // guarded by region_mutex_, as the next
  mutable std::unique_ptr<RegionBook> region_book_;  // null: nobody has asked yet
  Rollouts rollouts_;
  net::HttpClient client_;  // behind what its callbacks work with, as the next
  PromptNamer namer_;
  const std::function<void()> on_demand_;
  std::mutex members_mutex_;            // one at a time sets the fleet's
  std::vector<WorkerConfig> launched_;  // guarded by that one
  std::set<std::string> refused_;       // addresses, as they stand in the log; guarded by that one
  DnsSource dns_;
  std::unique_ptr<EtcdSource> etcd_;               // null: there is no registry
  std::unique_ptr<RolloutShares> rollout_shares_;  // null: there is no registry
  std::unique_ptr<LimitShares> limit_shares_;  // of limits, over all gateways; null: this one's own
  std::mutex services_mutex_;
  // By what they are made of; guarded by services_mutex_.
  Services services_;
  ShadowTraffic shadow_;
  base::PeriodicThread releaser_;  // for whom a worker's news came too early
};

}  // namespace pelton::gateway
