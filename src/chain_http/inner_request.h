// A call of a run that this process answers itself: an HTTP request that goes the way of any
// client's, with an exchange that brings its answer back to the run. Nobody sends bytes. On the
// runs' thread.
#pragma once

#include <functional>
#include <memory>

#include "chain_http/step_carrier.h"
#include "net/http_message.h"
#include "net/http_server.h"
#include "net/work_loop.h"

namespace pelton::chain_http {

// What takes such a request; as a net::HttpServer's handler does.
using SendRequest =
    std::function<void(net::HttpRequest request, std::shared_ptr<net::Exchange> exchange)>;

struct InnerRequests {
  std::shared_ptr<net::WorkLoop::Queue> loop;
  SendRequest send;
  net::HttpHeaders headers;         // that each of them carries
  std::function<int64_t()> now_ns;  // of the deadlines of calls
};

std::unique_ptr<RunningCall> start_inner_request(const InnerRequests& way,
                                                 const chain::StepCall& call,
                                                 StepCallEvents events);

}  // namespace pelton::chain_http
