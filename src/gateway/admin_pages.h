// What an operator asks of a running gateway: workers and their states, commands to them, metrics.
// Any thread.
#pragma once

#include "gateway/arm_counters.h"
#include "gateway/fleet.h"
#include "gateway/quarantine.h"
#include "gateway/relay_counters.h"
#include "net/http_message.h"

namespace pelton::gateway {

//   GET  /v1/workers, /v1/workers/NAME
//   POST /v1/workers/NAME/drain, undrain, eject, restore
//   GET  /metrics
// What the pages are made of.
struct AdminSource {
  Fleet& fleet;
  const RelayCounters& counters;
  const Quarantine& quarantine;
  const ArmCounters& arms;
};
net::HttpResponse admin_answer(const net::HttpRequest& request, const AdminSource& source);

}  // namespace pelton::gateway
