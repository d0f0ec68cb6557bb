// The listener of `pelton serve` for its fleet's gateways: there if --fleet-port is given. Owned by
// the verb.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "cli/command_line.h"
#include "cluster/etcd_registrar.h"
#include "node/loaded_model.h"
#include "server/fleet_server.h"

namespace pelton::apps {

// And --kv-events-endpoint with its own (kv_event_flags.h).
std::vector<cli::Flag> fleet_listener_flags();

// What KV blocks are named under where there is a fleet's key; none: every engine draws its own.
Result<std::optional<uint64_t>> fleet_block_seed(const cli::Arguments& arguments);

// --kv-port, for the executor.
Result<void> read_kv_port(const cli::Arguments& arguments, node::LoadedModel::Options& options);

// Of tenants' salts, likewise the same in all of a fleet; empty: this process makes its own.
Result<std::string> fleet_salt_secret(const cli::Arguments& arguments);

class FleetListener {
 public:
  // Both outlive it.
  FleetListener(server::Server& server, base::Log& log) : server_(server, log), log_(log) {}

  // `faults` outlives it, and `audit`; null: none is kept.
  Result<void> open(const cli::Arguments& arguments, int replica, int http_threads,
                    const server::FaultInjection& faults, access::AuditLog* audit);
  // No gateway is to find it any more; those that know it hear that it drains.
  void leave() {
    registrar_.reset();
    server_.drain_sessions();
  }
  void close(std::chrono::milliseconds grace) { server_.close(grace); }
  // Why this process was asked to end by itself, if it was.
  Result<void> fate() const;

  // For the banner; empty if it is closed.
  std::string line() const;

 private:
  Result<void> enroll(const cli::Arguments& arguments, const server::FleetServer::Options& options);

  server::FleetServer server_;
  base::Log& log_;
  std::string host_;
  std::atomic<bool> is_name_taken_ = false;
  std::unique_ptr<cluster::EtcdRegistrar> registrar_;  // null: there is none
};

}  // namespace pelton::apps
