// One worker of `pelton serve`: a server, its listeners, its models. There is one, or, of scripted
// answers, as many as --replicas says, each with ports, engine, KV cache and identity of its own;
// what they read of the model's files they share. Owned by the verb.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "access/admin_gate.h"
#include "access/audit_log.h"
#include "apps/admin_listener.h"
#include "apps/fleet_listener.h"
#include "apps/model_host.h"
#include "chain_http/chain_service.h"
#include "net/http_server.h"
#include "server/batches.h"
#include "server/fault_injection.h"
#include "server/grpc_listener.h"
#include "server/kv_event_publisher.h"
#include "server/server.h"
#include "store/batch_store.h"

namespace pelton::apps {

class ServeWorker {
 public:
  struct Parts {  // all outlive it
    const cli::Arguments& arguments;
    const cli::Interrupt& interrupt;
    const server::Server::Options& server;
    const net::HttpServer::Options& http;  // of the first replica
    std::shared_ptr<net::TlsIdentity> tls;
    int grpc_connections_max;
    node::TokenizerCache& tokenizers;
    std::optional<int64_t> sleep_after_ns;  // none: models do not
    WeightsFrom* weights;                   // null: models are here, or come from the hub
    access::AuditLog* audit;                // null: none is kept
    const access::AdminGate& gate;
    const base::Clock& clock;
    base::Log& log;
  };
  ServeWorker(const Parts& parts, int replica);

  // All listeners.
  Result<void> open();
  // As ModelHost::load().
  // Then batches go on.
  Result<std::vector<std::string>> load(const std::vector<node::NamedModel>& models);
  // Where it listens, each on a line: for stdout.
  std::string lines() const;
  std::string url() const;

  server::Server& server() { return server_; }
  server::GrpcListener& grpc() { return grpc_; }

  // Refuses what is new.
  void refuse();
  // Then: lets running answers go on for so long.
  void drain(int64_t ms) { models_.drain(ms); }
  Result<void> fate() const { return fleet_.fate(); }
  void close(std::chrono::milliseconds grace);

 private:
  Result<void> open_batches();
  Result<void> open_chains();
  Result<void> open_events();
  server::Server::Options server_options();
  int room_for_batches();
  ModelHost::Parts model_parts();

  const Parts parts_;
  const int replica_;
  server::FaultInjection faults_;
  std::unique_ptr<server::KvEventPublisher> kv_events_;  // null: nothing is published
  server::Server server_;
  net::HttpServer::Options http_options_;
  net::HttpServer http_;
  server::GrpcListener grpc_;
  std::optional<server::GrpcListener::Options> grpc_options_;
  FleetListener fleet_;
  // Listeners and formats' compiling, which look at models, are stopped by close() before they go.
  ModelHost models_;
  AdminListener admin_;
  std::unique_ptr<store::BatchStore> batch_store_;  // null: there are no batches
  std::unique_ptr<server::Batches> batches_;
  std::unique_ptr<chain_http::ChainService> chains_;  // null: there are none
};

}  // namespace pelton::apps
