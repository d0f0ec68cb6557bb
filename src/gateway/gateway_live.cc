// The part of gateway::Gateway that opens live sessions: what both sides of one say passes through
// (live_socket.h), and everything else about it, whose it is, which worker has it, its limits and
// figures, is as of any request.
#include <memory>
#include <utility>

#include "gateway/gateway.h"
#include "gateway/live_socket.h"

namespace pelton::gateway {

void Gateway::open_live(net::HttpRequest request, const std::shared_ptr<net::Exchange>& exchange,
                        Caller caller) {
  if (auto refused = refused_handshake(request)) return exchange->send(*std::move(refused));
  LiveSocket::open(
      std::move(request), exchange,
      {.client = client_,
       .gateway = name_,
       .forward = [this, caller = std::move(caller)](net::HttpRequest handshake,
                                                     const std::shared_ptr<net::Exchange>& answer,
                                                     std::shared_ptr<LiveUplink> uplink) {
         relay(std::move(handshake), answer, caller, Way::kSocket, std::move(uplink));
       }});
}

}  // namespace pelton::gateway
