// What `pelton serve` allows at most, in numbers: for /server_info. From the options that are in
// force, not from the flags that asked for them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cli/command_line.h"
#include "engine/engine.h"
#include "net/http_server.h"
#include "server/grpc_listener.h"

namespace pelton::apps {

struct ServeLimits {
  const cli::Arguments& arguments;  // of the store and of draining
  const net::HttpServer::Options& http;
  int connections_max;  // that there are descriptors for
  int grpc_connections_max;
  const engine::Engine::Options& engine;
  const server::GrpcListener::Options* grpc;  // null: there is no such listener
};

std::vector<std::pair<std::string, int64_t>> limits_in_force(const ServeLimits& limits);

}  // namespace pelton::apps
