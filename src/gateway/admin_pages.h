// What an operator asks of a running gateway: workers and their states, commands to them, metrics.
// Any thread.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "access/access_control.h"
#include "access/refusal_counts.h"
#include "gateway/arm_figures.h"
#include "gateway/fleet.h"
#include "gateway/limit_shares.h"
#include "gateway/pool_gate.h"
#include "gateway/quarantine.h"
#include "gateway/relay_counters.h"
#include "gateway/retry_budget.h"
#include "gateway/rollouts.h"
#include "gateway/shadow_traffic.h"
#include "net/http_message.h"
#include "telemetry/prometheus_text.h"

namespace pelton::gateway {

// "drain", "undrain", "eject", "restore"; none: it is no command.
std::optional<Fleet::Command> command_of(std::string_view word);

//   GET  /v1/workers, /v1/workers/NAME
//   POST /v1/workers/NAME/drain, undrain, eject, restore
//   POST /v1/reset_prefix_cache?tenant=T, /v1/erase_tenant?tenant=T
//   GET  /v1/limits?tenant=T, /v1/index?name=NAME
//   GET  /metrics
// Of a pool whose replicas come and go.
struct HeldPool {
  std::string pool;
  PoolGate::Counts counts;
};
// What the pages are made of.
struct AdminSource {
  Fleet& fleet;
  const RelayCounters& counters;
  const Quarantine& quarantine;
  const access::RefusalCounts& refusals;
  const access::AccessControl& access;
  RetryBudget& retry_budget;
  int64_t now_ns;
  const LimitShares* limit_shares;  // null: limits are this gateway's own
  const ArmTable& arms;
  const Rollouts& rollouts;
  const ShadowTraffic::Counts& shadow;
  std::span<const HeldPool> held;
  const std::function<void(telemetry::PrometheusText&)>& more_metrics;
};
net::HttpResponse admin_answer(const net::HttpRequest& request, const AdminSource& source);
inline constexpr std::string_view kEraseTenant = "/v1/erase_tenant";
// Workers answer in their own time: nobody else's admin request waits for them.
void erase_beside(const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange,
                  Fleet& fleet);

}  // namespace pelton::gateway
