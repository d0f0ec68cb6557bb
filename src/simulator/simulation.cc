#include "simulator/simulation.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "simulator/fleet.h"

namespace pelton::simulator {
namespace {

constexpr int kReplicasMax = 10'000;
constexpr int kGatewaysMax = 64;
constexpr int kRetriesMax = 100;
constexpr double kDay_s = 86'400;

Result<void> check_split(const SimulationOptions& options) {
  const auto bad = [](const std::string& field, const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, what, field};
  };
  for (const kv::GroupCapacity& group : options.replica.capacity.groups) {
    if (options.replica.paths.links_peers() && group.block_counts[kv::kHost] < 1) {
      return bad("kv-link-bandwidth",
                 "replicas that fetch from each other need host memory, where it lands "
                 "(--swap-space)");
    }
  }
  const bool splits = options.split.mode != gateway::SplitConfig::Mode::kOff;
  const bool has_roles = options.autoscaling && options.autoscaling->policy.prefill;
  const bool leaves_some = options.autoscaling ? options.prefill_replicas == 0
                                               : options.prefill_replicas < options.replica_count;
  if (options.prefill_replicas < 0 || !leaves_some) {
    return bad("prefill-replicas", "prefill-replicas must leave a replica that decodes");
  }
  if (!splits) {
    if (has_roles)
      return bad("split", "replicas of two roles need requests that are split (--split)");
    if (options.prefill_replicas == 0) return {};
    return bad("prefill-replicas", "prefill-replicas must be 0 where no request is split");
  }
  if (options.dispatch != Dispatcher::Policy::kCost) {
    return bad("split", "split needs the router 'cost', which chooses the two replicas");
  }
  if (!options.replica.paths.links_peers()) {
    return bad("split", "split needs links between the replicas (--kv-link-bandwidth)");
  }
  if (!options.replica.prefix_cache) {
    return bad("split", "split needs the prefix cache: by it the second replica finds the prompt");
  }
  if (options.autoscaling && !has_roles) {
    return bad("split",
               "a fleet that is scaled is split where its replicas have two roles: policy slo with "
               "ttft and itl");
  }
  if (options.autoscaling) return {};
  if (options.replica_count < 2) return bad("split", "split needs two replicas");
  return {};
}

Result<void> check_network(const SimulationOptions& options) {
  const auto bad = [](const std::string& field, const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, what, field};
  };
  TRY(options.network.check());
  for (const Fault& fault : options.faults) {
    const bool is_of_gateway = fault.is_of_network() || fault.kind == Fault::Kind::kGatewayDown;
    if (is_of_gateway && fault.gateway >= options.gateways) {
      return bad("faults", fmt::format("there is no gateway {}", fault.gateway));
    }
  }
  if (!options.has_network()) return {};
  constexpr double kReportMost_s = 0.5;
  if (options.report_s > kReportMost_s) {
    return bad("report-interval",
               "report-interval must be at most 500 ms where a network is simulated: gateways take "
               "silence for a lost replica");
  }
  if (!(options.resume_budget_s >= 0 && options.resume_budget_s <= 600)) {
    return bad("resume_budget", "resume_budget must be 0 to 600 seconds");
  }
  return {};
}

}  // namespace

bool SimulationOptions::has_network() const {
  return network.is_on() || std::ranges::any_of(faults, &Fault::is_of_network);
}

double predicted_share(const SimulationResult& result) {
  if (result.predictions.empty()) return 0;
  const auto is_near = [](const Prediction& one) {
    return std::abs(one.predicted_s - one.measured_s) <= 0.25 * one.measured_s;
  };
  return static_cast<double>(std::ranges::count_if(result.predictions, is_near)) /
         static_cast<double>(result.predictions.size());
}

Result<void> check_simulation(const SimulationOptions& options,
                              const workload::Workload& workload) {
  const auto bad = [](const std::string& field, const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, what, field};
  };
  if (options.autoscaling) {
    TRY(options.autoscaling->check());
  }
  if (options.replica_count < 1 || options.replica_count > kReplicasMax) {
    return bad("replicas", fmt::format("replicas must be 1 to {}", kReplicasMax));
  }
  if (options.gateways < 1 || options.gateways > kGatewaysMax) {
    return bad("gateways", fmt::format("gateways must be 1 to {}", kGatewaysMax));
  }
  if (options.zones < 1 || options.zones > options.gateways) {
    return bad("zones", "zones must be from 1 to as many as there are gateways");
  }
  if (options.autoscaling && options.gateways > 1) {
    return bad("gateways", "gateways must be 1 where a fleet is scaled: the one there sees all");
  }
  if (options.autoscaling && options.report_s > 0) {
    return bad("report-interval",
               "report-interval must be 0 where a fleet is scaled: its gateway sees all at once");
  }
  if (options.adapters.count > 0 &&
      (options.replica.adapters.resident_max < 1 || options.replica.capacity.adapters_max < 1)) {
    return bad("adapters", "adapters must be 0 where a replica has no place for one");
  }
  TRY(check_split(options));
  TRY(check_network(options));
  if (workload.conversations.size() != workload.at_s.size()) {
    return bad("workload", "a workload needs a time for each conversation");
  }
  for (const workload::Conversation& conversation : workload.conversations) {
    if (conversation.turns.empty()) return bad("workload", "a conversation has no turn");
  }
  for (const Fault& fault : options.faults) {
    if (fault.replica < 0 || fault.replica >= replicas_max(options)) {
      return bad("faults", fmt::format("there is no replica {}", fault.replica));
    }
    if (fault.is_of_scaling() && !options.autoscaling) {
      return bad("faults", "starts can fail and facts be cut off only where a fleet is scaled");
    }
  }
  const Clients& clients = options.clients;
  if (clients.patience_s && !(*clients.patience_s > 0 && *clients.patience_s <= kDay_s)) {
    return bad("patience", "patience must be above 0, and 86400 seconds at most");
  }
  if (clients.retries_max < 0 || clients.retries_max > kRetriesMax) {
    return bad("retries", fmt::format("retries must be 0 to {}", kRetriesMax));
  }
  if (!(clients.back_off_s >= 0 && clients.back_off_s <= kDay_s)) {
    return bad("back_off", "back_off must be 0 to 86400 seconds");
  }
  return {};
}

Result<SimulationResult> simulate(const SimulationOptions& options,
                                  const workload::Workload& workload,
                                  const cost_model::StepTimeModel& times) {
  TRY(check_simulation(options, workload));
  return Fleet(options, workload, times).run();
}

}  // namespace pelton::simulator
