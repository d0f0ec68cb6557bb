// GET /v1/events of a gateway's admin listener: server-sent events of what changes there, each with
// a number by which a client that was cut off goes on (Last-Event-ID): workers' states, roll-outs'
// phases, replicas that are wanted, alerts that fire, and each configuration that is put in force.
// A thread of its own looks twice a second. Owned by the verb, whose listener stops before it goes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/gateway_reload.h"
#include "base/clock.h"
#include "base/periodic_thread.h"
#include "console/event_streams.h"
#include "gateway/event_log.h"
#include "gateway/gateway.h"
#include "launch/fleet_scaler.h"
#include "net/http_message.h"
#include "net/http_server.h"

namespace pelton::apps {

class FleetEvents {
 public:
  struct Parts {
    gateway::Gateway& gateway;  // all outlive it
    const GatewayReload& reload;
    std::function<std::vector<launch::FleetScaler::PoolState>()> states;  // null: nobody scales
    std::function<std::string()> conditions;  // as /v1/conditions; null: nobody looks at them
    const base::Clock& clock;
  };
  explicit FleetEvents(Parts parts);

  // Whether the request was for these; then it has been answered, or is being, as long as whoever
  // asks may.
  bool handle(const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange,
              console::EventStreams::MayGoOn may_go_on);

 private:
  void look();

  const Parts parts_;
  int64_t configuration_;  // the last one that was noted: look()'s own
  gateway::EventLog log_;
  console::EventStreams streams_;
  base::PeriodicThread ticker_;  // last: it uses what is above
};

}  // namespace pelton::apps
