// How a pool's replicas come and go, as the configuration file says it: [pool.scale],
// [pool.launch] and [autoscaler]. Values; docs/scaling.md lists the keys.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autoscaler/pool_policy.h"
#include "base/result.h"

namespace pelton::gateway {

class ConfigTable;

// Of requests that wait in the gateway for a replica.
struct HoldConfig {
  int requests_max = 10'000;
  int64_t bytes_max = int64_t{256} << 20;  // of their bodies
  double time_max_s = 600;
  // A stream that is held gets its head and a comment after so long, and a further one each time
  // twice that has passed.
  double keep_alive_s = 5;
  // Whole answers of JSON get their head and a blank likewise: what goes wrong after that is an
  // error in their body, as the status has gone.
  bool sends_blanks = false;

  friend bool operator==(const HoldConfig&, const HoldConfig&) = default;
};

// A provider that is played, before processes of this machine.
struct SimulatedConfig {
  int quota = 10'000;
  double lead_s = 0;
  std::optional<double> lead_p90_s;
  struct StockOut {
    double at_s = 0;
    double for_s = 0;
  };
  std::vector<StockOut> stock_outs;
  double reclaim_after_s = 0;  // 0: never
  double reclaim_notice_s = 30;
};

// Replicas as processes of this machine, pods of a workload, batch jobs, or machines of a provider
// that is played.
struct LaunchConfig {
  enum class Kind { kLocal, kKubernetes, kSlurm, kSimulated };
  enum class Workload { kDeployment, kStatefulSet, kLeaderWorkerSet };

  Kind kind = Kind::kLocal;
  std::vector<std::string> serve;  // arguments of `pelton serve`; of pods their workload says it
  // Of pods.
  std::string name_space;
  Workload workload = Workload::kDeployment;
  std::string workload_name;
  int port = 0;  // their --fleet-port; of other kinds, where they serve
  // Of batch jobs.
  std::vector<std::string> sbatch;  // further arguments of sbatch
  double drain_s = 60;              // before its time limit a job is asked to end
  SimulatedConfig simulated;
  double start_s = 30;        // that a start takes, until one has been seen
  double progress_s = 120;    // a start that does not advance for so long is ended
  double stop_grace_s = 300;  // for what a replica still does that is to go
  // Of processes of this machine: those that were started with other arguments are replaced.
  bool rolls = false;
  std::string place;  // "FILE:LINE" of `serve`, or of what stands for it
};

struct ScalingConfig {
  autoscaler::PoolPolicy policy;
  // Of those that compute prompts, in a pool with 'split'; the policy's are of the others.
  std::optional<int> prefill_min;
  std::optional<int> prefill_max;
  // Its requests are split: the policy is of two roles.
  void scale_by_roles();
  // A key of [pool.scale] that stands there and that replicas of two roles do not heed; empty:
  // none.
  std::string_view unheeded_by_roles() const;
  bool is_advised_only = false;
  int priority = 0;  // of several that share GPUs who has more takes first
  HoldConfig hold;
  std::optional<LaunchConfig> launch;
  std::string place;  // "FILE:LINE"
};

// [autoscaler]: of the launcher, and of an autoscaler that is a process of its own.
struct AutoscalerConfig {
  std::string state_dir = "pelton-replicas";  // of the local launcher
  std::vector<std::string> gateways;          // URLs of their admin listeners
  std::string host = "127.0.0.1";             // where it says what it decides
  int port = -1;                              // -1: nowhere
  std::string keda_host = "127.0.0.1";        // where KEDA asks
  int keda_port = -1;                         // -1: nowhere
  // Of several autoscalers one decides, by a lease there.
  enum class Lead { kNone, kEtcd, kKubernetes };
  Lead lead = Lead::kNone;
  std::string lease_namespace;  // of kKubernetes: its Lease
  std::string lease_name;
  int lease_s = 6;                   // after which another one leads
  std::optional<int> gpus_max = {};  // of all pools together
  // "FILE:LINE: " of its keys that stand there, and of the table ("").
  std::map<std::string, std::string, std::less<>> places = {};
  std::string_view place_of(std::string_view key) const;
};

std::string_view rule_name(autoscaler::PoolPolicy::Rule rule);
std::string_view launch_kind_name(LaunchConfig::Kind kind);
std::string_view workload_kind_name(LaunchConfig::Workload workload);

// Of a [[pool]]. Errors: kBadConfig with the line.
Result<void> read_scaling(const ConfigTable& pool, bool is_foreign,
                          std::optional<ScalingConfig>& scaling);
// The keys of [pool.scale] that stand in `table`, over what `scaling` has.
Result<void> read_scale(const ConfigTable& table, ScalingConfig& scaling);
Result<void> read_autoscaler(const ConfigTable& table, AutoscalerConfig& autoscaler);

}  // namespace pelton::gateway
