// The chains of a gateway: /v1/chains, answered here; what they ask of models is relayed like any
// client's request. handle() runs on the listener's net threads. Owned by the verb; closed before
// the gateway goes, after its listener.
#pragma once

#include <memory>

#include "base/clock.h"
#include "base/result.h"
#include "chain_http/chain_service.h"
#include "cli/command_line.h"
#include "gateway/gateway.h"
#include "net/http_server.h"

namespace pelton::apps {

class GatewayChains {
 public:
  // Null: the flags name no folder. Errors: kBadConfig, of a file that is no chain.
  static Result<std::unique_ptr<GatewayChains>> open(const cli::Arguments& arguments,
                                                     gateway::Gateway& gateway,
                                                     const base::Clock& clock);

  // Answers a request to /v1/chains; false: it is none.
  bool handle(net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange);

  // Any thread.
  void add_metrics(telemetry::PrometheusText& text) const { service_->figures().add_metrics(text); }

 private:
  GatewayChains(gateway::Gateway& gateway, const base::Clock& clock)
      : gateway_(gateway), clock_(clock) {}
  void run(net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange);

  gateway::Gateway& gateway_;
  const base::Clock& clock_;
  std::unique_ptr<chain_http::ChainService> service_;
};

}  // namespace pelton::apps
