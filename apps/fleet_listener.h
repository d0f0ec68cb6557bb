// The listener of `pelton serve` for its fleet's gateways: there if --fleet-port is given. Owned by
// the verb.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "cli/command_line.h"
#include "server/fleet_server.h"

namespace pelton::apps {

std::vector<cli::Flag> fleet_listener_flags();

// What KV blocks are named under where there is a fleet's key; none: every engine draws its own.
Result<std::optional<uint64_t>> fleet_block_seed(const cli::Arguments& arguments);

class FleetListener {
 public:
  // Both outlive it.
  FleetListener(server::Server& server, base::Log& log) : server_(server, log) {}

  Result<void> open(const cli::Arguments& arguments, int http_threads);
  void close(std::chrono::milliseconds grace) { server_.close(grace); }

  // For the banner; empty if it is closed.
  std::string line() const;

 private:
  server::FleetServer server_;
  std::string host_;
};

}  // namespace pelton::apps
