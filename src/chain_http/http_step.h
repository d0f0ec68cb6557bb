// A call of a run that another server answers, over net::HttpClient: http: steps, and those of
// models where `pelton chain run` asks a server. On the runs' thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "chain/chain.h"
#include "chain_http/step_carrier.h"
#include "net/http_client.h"
#include "net/http_message.h"
#include "net/work_loop.h"

namespace pelton::chain_http {

struct HttpSteps {
  std::shared_ptr<net::WorkLoop::Queue> loop;
  net::HttpClient* client = nullptr;  // outlives the calls
  std::string models_url;             // "http://host:port" of model: steps; empty: there are none
  net::HttpHeaders model_headers;     // of those
  std::function<int64_t()> now_ns;    // of the deadlines of calls
};

std::unique_ptr<RunningCall> start_http_step(const HttpSteps& way, const chain::StepCall& call,
                                             StepCallEvents events);

// Hosts that http: steps may ask: "search.example", or with a port, "127.0.0.1:9000"; without one
// any port. Errors: kBadConfig with the step's line, of a URL that is none or whose host is not
// among them.
Result<void> check_http_steps(const chain::Chain& chain, const std::vector<std::string>& hosts);

}  // namespace pelton::chain_http
