// The web console at the listeners of a gateway and of an autoscaler, for operators: which workers
// there are, what becomes of requests, how many replicas there should be and why. A gateway's takes
// commands of whoever has signed in.
//
//   GET /console, /console/...   the page and its files (console/pages.h)
//   GET /console/fleet           server-sent events (console/feed.h)
//   GET /v1/conditions           which alerts would fire (gateway/fleet_conditions.h)
//   /console/session, /console/workers/...   apps/console_operations.h
//
// A thread of its own notes a sample a second; tables are made while somebody looks. Owned by the
// verb, whose listener stops before it goes; handle() runs on that listener's net threads.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "access/admin_gate.h"
#include "apps/computed_pages.h"
#include "apps/config_worker.h"
#include "apps/console_operations.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/periodic_thread.h"
#include "console/event_streams.h"
#include "console/feed.h"
#include "gateway/fleet_conditions.h"
#include "gateway/fleet_sampler.h"
#include "gateway/gateway.h"
#include "launch/decision_log.h"
#include "launch/fleet_scaler.h"
#include "net/http_message.h"
#include "net/http_server.h"

namespace pelton::apps {

class FleetConsole {
 public:
  using States = std::vector<launch::FleetScaler::PoolState>;
  struct Parts {
    gateway::Gateway* gateway = nullptr;      // outlives it; null: there is none here
    std::function<States()> states;           // any thread; null: nobody scales here
    GatewayReload* reload = nullptr;          // likewise; null: nobody writes the configuration
    ConfigWorker* config_worker = nullptr;    // what calls it: null where it is
    const ComputedPages* computed = nullptr;  // outlives it; null: nothing is computed
    // Who may look; outlives it; null: there is no gateway.
    const access::AdminGate* gate = nullptr;
    bool has_chains = false;
    const base::Clock& clock;  // outlives it, as the next
    base::Log& log;
  };
  explicit FleetConsole(Parts parts);

  // At the clients' listener of this host there is a chat. Before the first request.
  void set_chat_port(int port) { chat_port_ = port; }

  // As /v1/conditions has them. Any thread.
  std::string conditions() const { return conditions_.body(); }
  // Whose session the request comes with, if somebody has signed in.
  std::optional<std::string> signed_in(const net::HttpRequest& request) const;

  // Whether the request was one of the console's; then it has been answered, or is being.
  // `may_go_on`: with a stream, as console::EventStreams has it.
  bool handle(const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange,
              console::EventStreams::MayGoOn may_go_on = nullptr);

 private:
  void note();
  void note_conditions(const States& states);

  const Parts parts_;
  int chat_port_ = 0;                              // 0: there is none
  std::unique_ptr<ConsoleOperations> operations_;  // null: there is nothing to command
  console::Feed feed_;
  console::EventStreams streams_;
  gateway::FleetConditions conditions_;
  gateway::FleetSampler sampler_;  // note()'s, as the next
  launch::DecisionLog decisions_;
  base::PeriodicThread ticker_;  // last: it uses what is above
};

}  // namespace pelton::apps
