// The web console at the operator's listener: the page Live, and the stream that it is fed by.
//
//   GET /console, /console/...   the page and its files (console/pages.h)
//   GET /console/live            server-sent events: first the last fifteen minutes, or what has
//   come
//                                since the event that the client names (Last-Event-ID), then a
//                                sample a second; an event's data is a list of samples
//                                (live_history.h)
//
// A thread of its own notes a sample a second. Owned by the listener, which stops before it goes;
// handle() runs on that listener's net threads.
#pragma once

#include <memory>

#include "base/periodic_thread.h"
#include "console/event_streams.h"
#include "net/http_message.h"
#include "net/http_server.h"
#include "server/live_history.h"
#include "server/services.h"

namespace pelton::server {

class LiveConsole {
 public:
  struct Parts {
    const Services& services;  // outlives it
    int chat_port = 0;         // of the public listener, if the chat is there
    bool chat_tls = false;
  };
  explicit LiveConsole(const Parts& parts);

  // Whether the request was one of the console's; then it has been answered, or is being.
  bool handle(const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange);

 private:
  void note();

  const Parts parts_;
  LiveHistory history_;
  console::EventStreams streams_;
  base::PeriodicThread sampler_;  // last: it uses what is above
};

}  // namespace pelton::server
