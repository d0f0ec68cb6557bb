// The server's and its engine's metrics in Prometheus' text format: those that vLLM has too under
// its names and with its meanings, ours as pelton_*. Any thread.
#pragma once

#include <string>

namespace pelton::server {

struct Services;

std::string metrics_page(const Services& services);

}  // namespace pelton::server
