// What an operator asks a running server, on a listener of its own: the ledger, metrics, health. No
// key is asked for, so it belongs on the loopback or a private network. Owned by the program's
// entry, which hands handle() to a net::HttpServer of its own and stops that before this goes away.
// handle() runs on that server's net threads.
#pragma once

#include <memory>

#include "net/http_message.h"
#include "net/http_server.h"
#include "server/services.h"

namespace pelton::server {

class AdminServer {
 public:
  // Bounds of its own listener: few callers, nothing to say but a path.
  static constexpr int kConnectionsMax = 64;
  static constexpr size_t kBodyBytesMax = 4096;

  // Both outlive it. `door`: where the server is reached.
  AdminServer(const Services& services, const net::HttpServer& door)
      : services_(services), door_(door) {}

  void handle(const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange);

 private:
  net::HttpResponse answer(const net::HttpRequest& request) const;

  const Services& services_;
  const net::HttpServer& door_;
};

}  // namespace pelton::server
