// The gateway's configuration file (TOML; docs/gateway.md lists the keys). A value, read once; what
// is not known is refused with its line, so that a misspelt key never means a default.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cluster/worker_role.h"
#include "gateway/foreign_kind.h"
#include "gateway/key_scopes.h"
#include "gateway/media_config.h"
#include "gateway/region_config.h"
#include "gateway/rollout.h"
#include "gateway/scaling_config.h"
#include "gateway/split_config.h"
#include "net/ip_network.h"
#include "net/tls_trust.h"
#include "net/url.h"

namespace pelton::gateway {

struct PoolConfig {  // workers that may stand for each other
  std::string name;
  std::vector<std::string> models;  // names that its requests ask for
  // A model's folder or tokenizer.json: prompts' blocks are named with it; empty: they are not.
  std::string tokenizer;
  // What its models' answers depend on (serve says it at /server_info), in their order: other
  // workers get no requests. None: the first one that answers says it.
  std::vector<std::string> fingerprints;
  // Where all of its workers stand, but for those that say another one; kRegionOfWorker: each says
  // it itself (serve --fleet-region). Who is tied to a region is never sent to workers of another.
  static constexpr std::string_view kRegionOfWorker = "*";
  std::string region;
  // A name whose addresses are workers, and their port; -1: there is none.
  std::string dns_host;
  int dns_port = -1;
  // A service whose SRV records are workers, hosts and ports; empty: there is none.
  std::string dns_service;
  // What its workers are. Those of others speak OpenAI's API.
  WorkerKind kind = WorkerKind::kPelton;
  bool is_foreign() const { return kind != WorkerKind::kPelton; }
  // Of those: whether answers that one has begun may go on at another one that shows that it can;
  // TLS to all of them, and not only to those with https://; whom to believe then (empty: whom the
  // system does); and the key that they ask for (empty: none).
  bool continues = true;
  bool tls = false;
  std::string ca_file;
  std::string api_key_file;
  // Where each of them publishes what its prefix cache holds (vLLM's KV events), and says again
  // what was missed; 0: nowhere.
  int kv_events_port = 0;
  int kv_replay_port = 0;
  // As these files say; filled in by whoever reads the configuration.
  std::string api_key;
  std::shared_ptr<const net::TlsTrust> trust;
  // A Kubernetes service whose endpoints are workers, and one of its ports; empty: there is none.
  std::string kubernetes_namespace;
  std::string kubernetes_service;
  std::string kubernetes_port;  // its name or number
  // Whether one worker computes a request's prompt and another one goes on with the answer.
  SplitConfig split;
  // Of another kind: whether they make images or videos, and how much of it.
  MediaConfig media;
  // Its replicas come and go, and requests are held while there is none; none: they do not.
  std::optional<ScalingConfig> scaling;
};

struct WorkerConfig {
  std::string pool;
  std::string host;
  int port = 0;
  std::string zone;
  bool tls = false;       // https://, of a foreign one
  bool draining = false;  // whoever found it says that it is being stopped
  // Of a foreign one, whose pool is split: what it is for, and where SGLang's that compute prompts
  // are met.
  cluster::WorkerRole role{};
  int bootstrap_port = 8998;
  // The gateway of this region (fleet_regions.cc), whom to believe there, and its key; "": a
  // worker.
  std::string region = {};
  std::shared_ptr<const net::TlsTrust> trust = {};
  std::string api_key = {};

  friend bool operator==(const WorkerConfig&, const WorkerConfig&) = default;
};

// One of the pools that a route sends requests to.
struct RouteArm {
  std::string pool;
  std::string name;  // in metrics, and what the draw depends on; the pool's unless it is given
  double weight = 1;
  bool has_weight = false;  // the file gives it one
};

// Copies of a route's requests, of which nobody gets the answer.
struct ShadowConfig {
  std::string pool;
  double share = 0;                   // of the conversations, 0 to 1
  int64_t tokens_per_minute = 20000;  // of prompts and answers, estimated

  friend bool operator==(const ShadowConfig&, const ShadowConfig&) = default;
};

// Where requests for a model go, if several pools have it: the first route that fits.
struct RouteConfig {
  enum class Sticky { kNone, kSession, kTenant, kUser };

  std::string model;
  std::string tenant = "*";  // "*": whoever asks
  // Requests that go to one arm: those of one conversation, of one tenant, or of one of its users.
  Sticky sticky = Sticky::kSession;
  std::vector<RouteArm> arms;
  std::optional<ShadowConfig> shadow;
  // Pools that are asked, in this order, where those of the arm that was drawn take nothing more.
  std::vector<std::string> fallback;
  // One of its arms takes over by steps; its weight says nothing then.
  std::optional<RolloutPlan> rollout;
  bool is_rolled_out(const RouteArm& arm) const { return rollout && rollout->arm == arm.name; }
};
std::string_view sticky_name(RouteConfig::Sticky sticky);

// What keys of this tenant (`keys_file`) may use; of other tenants nothing is said.
struct TenantConfig {
  std::string name;
  std::vector<std::string> models;  // none: all
  std::string pool;                 // its requests go to no other one; empty: to any
  std::string region;               // nor to pools of another region; empty: to any
  double weight = 0;                // its share beside others; 0: as its keys say
};

// Where the gateway stands, and how far away others do: there and back, in milliseconds.
struct ZoneConfig {
  std::string own;                                         // empty: not known, so all are as near
  std::map<std::string, double, std::less<>> distance_ms;  // of some zones

  // Of a worker there, in seconds.
  double distance_s(std::string_view zone) const;
};

struct EtcdConfig {
  std::vector<std::string> endpoints;  // HOST:PORT; none: there is no registry
  std::string prefix = "/pelton/v1/main";
  std::string user;  // empty: nobody is named
  std::string password_file;
  bool tls = false;
  std::string ca_file;           // with TLS: whom to believe; empty: whom the system does
  std::string certificate_file;  // and what to show; empty: nothing
  std::string key_file;

  friend bool operator==(const EtcdConfig&, const EtcdConfig&) = default;
};

struct KubernetesConfig {  // the API server
  std::string api = "https://kubernetes.default.svc";
  std::string token_file = "/var/run/secrets/kubernetes.io/serviceaccount/token";  // empty: none
  std::string ca_file = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

  friend bool operator==(const KubernetesConfig&, const KubernetesConfig&) = default;
};

struct GatewayConfig {
  std::string host = "127.0.0.1";
  int port = 8000;  // 0: any free one
  // Of the operator's listener; -1: there is none.
  std::string admin_host = "127.0.0.1";
  int admin_port = -1;
  // Of the clients' gRPC listener; -1: there is none.
  std::string grpc_host = "127.0.0.1";
  int grpc_port = -1;
  std::vector<std::string> allowed_hosts;  // as `serve --allowed-host`
  bool http2 = true;                       // at `host` and `port`, as `serve --http2`
  int threads = 1;
  std::string keys_file;       // as `serve --api-key-file`; empty: nobody is asked for a key
  std::string workers_file;    // further workers, as the configuration has them
  std::string rollouts_file;   // how far roll-outs have come; empty: there are none
  std::string fleet_key_file;  // empty: workers are spoken to without TLS
  double retry_budget = 0.1;   // of requests, how many may be tried again where workers refuse
  int retries_max = 2;         // further workers that are tried before the client's first byte
  int64_t index_bytes = int64_t{32} << 20;    // for what workers hold of prompts
  double drain_s = 25;                        // for what is under way when it is stopped
  double resume_budget_s = 10;                // how long a request waits for a worker to go on
  std::vector<net::IpNetwork> allowed_cidrs;  // where workers may stand; none: see may_be_worker()
  std::vector<std::string> allowed_cidr_texts;  // as they are written
  AutoscalerConfig autoscaler;
  ZoneConfig zones;
  RegionsConfig regions;
  net::HostPort dns_server;  // who is asked for services; port 0: as /etc/resolv.conf says
  EtcdConfig etcd;
  KubernetesConfig kubernetes;
  std::vector<PoolConfig> pools;
  std::vector<RouteConfig> routes;
  std::vector<TenantConfig> tenants;
  // Of keys_file; filled in by whoever reads the configuration. Null: there is none.
  std::shared_ptr<const KeyScopes> key_scopes;
  std::vector<WorkerConfig> workers;
};

// For each pool the gateway of each other region, as a worker.
std::vector<WorkerConfig> region_workers(const GatewayConfig& config);

// Whether a worker that named its own address (in a registry) may be believed (GW-04): one of
// `allowed`, or, where there are none, of a private network, but not this machine's.
bool may_be_worker(const std::string& address, const std::vector<net::IpNetwork>& allowed);

// What is a mistake unless it is meant: flags of `pelton gateway` say so.
struct ConfigRules {
  bool allows_empty = false;  // no worker at all
  bool open = false;          // listeners beyond this machine that ask nobody for a key
};

// Errors: kBadConfig, "FILE:LINE: ...".
Result<GatewayConfig> parse_gateway_config(std::string_view text, const std::string& file,
                                           const ConfigRules& rules);
// The workers of another file, behind those that there are: one that is known is the same one.
Result<void> add_workers(std::string_view text, const std::string& file, GatewayConfig& config);
// With what its workers_file says. `file`: what the text is called in errors.
Result<GatewayConfig> complete_gateway_config(std::string_view text, const std::string& file,
                                              const ConfigRules& rules);
Result<GatewayConfig> read_gateway_config(const std::string& file, const ConfigRules& rules);

}  // namespace pelton::gateway
