// The server's and its engine's metrics in Prometheus' text format: those that vLLM has too under
// its names and with its meanings, ours as pelton_*. Any thread.
#pragma once

#include <string>

namespace pelton::server {

class Server;

std::string metrics_page(const Server& server);

}  // namespace pelton::server
