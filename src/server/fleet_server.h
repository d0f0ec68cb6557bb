// The listener for this fleet's gateways: requests that they forward come in as frames with an
// envelope (cluster/envelope.h), answers leave as frames with the tokens that they are made of, and
// a watch reports how this worker is. Who holds the fleet's key is believed. Owned by the program's
// entry; its handlers run on its own net threads.
//
//   POST /fleet/v1/run     frames in, frames out (server/fleet_exchange.h)
//   POST /fleet/v1/say     what the client of a WebSocket has said, that a run has opened: 202 once
//                          it has been heard, 404 of a session that is none, 410 of one that is
//                          over, or ends over what was said
//   GET  /fleet/v1/watch   a record, a load report every 100 ms, another record when models come
//                          or go, what the prefix cache stores and lets go, until the gateway
//                          leaves
//   POST /fleet/v1/release  its engines give back what their KV caches take, once they have nothing
//                          to do: it stands by
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "access/audit_log.h"
#include "base/log.h"
#include "cluster/envelope.h"
#include "cluster/step_fit.h"
#include "net/http_server.h"
#include "server/fault_injection.h"
#include "server/fleet_exchange.h"
#include "server/server.h"

namespace pelton::server {

class FleetServer {
 public:
  struct Options {
    std::string address = "127.0.0.1";
    int port = 0;  // 0: any free one
    int threads = 1;
    std::string name;  // of this worker
    std::string zone;
    std::string region;
    cluster::WorkerRole role = cluster::WorkerRole::kBoth;
    std::vector<std::string> keys;  // for connections, derived of the fleet's; empty: plain HTTP
    // Of the names of KV blocks, as its engines have it; none: theirs are nobody else's business.
    std::optional<uint64_t> block_seed = {};
    const FaultInjection* faults = nullptr;  // outlives it; null: there are none
    access::AuditLog* audit = nullptr;       // likewise
  };

  // Both outlive it.
  FleetServer(Server& server, base::Log& log) : server_(server), log_(log) {}
  ~FleetServer() { close(std::chrono::milliseconds(0)); }

  Result<void> open(const Options& options);
  // WebSockets of gateways' clients end, once what has been said over them is answered. Any thread.
  void drain_sessions();
  // These have the grace first, while gateways still see this worker.
  void close(std::chrono::milliseconds grace);

  int port() const { return http_ == nullptr ? 0 : http_->port(); }  // 0: closed
  const std::string& incarnation() const { return incarnation_; }

 private:
  class Watch;

  void handle(net::HttpRequest request, std::shared_ptr<net::Exchange> exchange);
  void release();
  void run(const net::HttpRequest& request, std::shared_ptr<net::Exchange> exchange);
  void say(const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange);
  // By its gateway and dispatch. A WebSocket that the run opens is found by it until it ends.
  using SessionKey = std::pair<std::string, int64_t>;
  void note_session(SessionKey key, const std::shared_ptr<FleetExchange>& session);
  bool leaves() const;
  std::vector<std::shared_ptr<FleetExchange>> sessions();
  cluster::WorkerRecord record() const;
  // What a record says depends on this and on nothing else that changes.
  struct Served {
    std::weak_ptr<const ModelCatalogue::Table> models;  // which would hold what is unloaded
    uint64_t adapter_names = 0;                         // the sum of versions, which only grow
    bool operator==(const Served& other) const {
      return !models.owner_before(other.models) && !other.models.owner_before(models) &&
             adapter_names == other.adapter_names;
    }
  };
  Served served() const;
  cluster::WorkerLoad load(const std::string& gateway);
  // Whether this one is to be answered 500.
  bool is_to_fail();
  bool draws_below(double share);  // with this probability
  // False: this very attempt has come before (RB-03), its answer being on its way or lost.
  bool note_dispatch(const cluster::RunEnvelope& envelope);
  // What its engines have done since the last look at them, if that is some time ago.
  void fit_steps(const cluster::WorkerLoad& load);

  Server& server_;
  base::Log& log_;
  Options options_;
  std::string incarnation_;
  std::unique_ptr<net::HttpServer> http_;
  std::atomic<bool> closing_ = false;  // watches end
  std::atomic<uint64_t> draws_ = 0;    // of injected faults
  mutable std::mutex mutex_;
  struct Dispatches {
    int64_t highest = 0;
    std::set<int64_t> latest;  // kDispatchesMax of them
  };
  std::map<std::string, Dispatches> dispatches_;  // by gateway; guarded by mutex_
  // Guarded by mutex_, as the next.
  cluster::StepFit fit_;
  std::map<SessionKey, std::weak_ptr<FleetExchange>> sessions_;
  struct Look {
    int64_t at_ns = 0;
    int64_t steps = 0;
    int64_t tokens = 0;  // computed
    int64_t output_tokens = 0;
    bool busy = false;
  };
  Look looked_;
};

}  // namespace pelton::server
