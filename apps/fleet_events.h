// GET /v1/events of a gateway's admin listener: server-sent events of what changes there, each with
// a number by which a client that was cut off goes on (Last-Event-ID): workers' states, roll-outs'
// phases, replicas that are wanted, alerts that fire, and each configuration that is put in force.
// A thread of its own looks twice a second. Owned by the verb, whose listener stops before it goes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
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

  static constexpr int kStreamsMax = console::EventStreams::kStreamsMax;
  static constexpr int kStreamsOfOneMax = 8;  // so that one key leaves others some

  // Whether the request was for these; then it has been answered, or is being, as long as whoever
  // asks may. `whose`: of a key's streams there are fewer; empty: nobody is asked for one.
  bool handle(const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange,
              const std::string& whose, console::EventStreams::MayGoOn may_go_on);

 private:
  void look();
  // Held by a stream as long as it is open; null: it would be one too many.
  std::shared_ptr<void> take_place(const std::string& whose);
  void give_back_place(const std::string& whose);

  const Parts parts_;
  int64_t configuration_;  // the last one that was noted: look()'s own
  gateway::EventLog log_;
  std::mutex mutex_;
  int open_ = 0;                        // streams; guarded by mutex_, as the next
  std::map<std::string, int> open_of_;  // by key, of those that have some
  console::EventStreams streams_;
  base::PeriodicThread ticker_;  // last: it uses what is above
};

}  // namespace pelton::apps
