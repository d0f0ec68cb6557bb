// A live session over a WebSocket (/v1/realtime, /v1/audio/speech/websocket): a worker has it, and
// what either side says passes through. The client's handshake is answered when the worker has
// answered: 101, or why there is none. What the worker says comes as any answer does, as lines of
// its bytes (server/fleet_exchange.h); what the client says goes by a LiveUplink. A session stays
// where it began: when its worker is lost it ends with an error event. Lives on its connection's
// net thread; the exchange keeps it alive until it is closed.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "api/error.h"
#include "gateway/live_uplink.h"
#include "net/http_client.h"
#include "net/http_server.h"

namespace pelton::gateway {

class LiveSocket : public std::enable_shared_from_this<LiveSocket> {
 public:
  struct Options {
    net::HttpClient& client;  // outlives it
    std::string gateway;
    // Has a worker answer over the given exchange.
    std::function<void(net::HttpRequest request, std::shared_ptr<net::Exchange> exchange,
                       std::shared_ptr<LiveUplink> uplink)>
        forward;
  };
  // `handshake` has been checked (check_websocket_request) and its caller is known.
  static void open(net::HttpRequest handshake, std::shared_ptr<net::Exchange> exchange,
                   const Options& options);

 private:
  class Turn;
  struct Key {};  // only open() makes one

 public:
  LiveSocket(Key, std::shared_ptr<net::Exchange> exchange);

 private:
  void start(net::HttpRequest handshake, const Options& options);
  void accept(net::HttpHeaders headers);
  void on_message(std::string message);
  void on_drain();
  void on_broken();
  void client_left();
  // From the worker: one line, a message or the goodbye.
  void on_line(std::string_view line);
  void end();
  void end_with(const api::ApiError& error, int code);

  const std::shared_ptr<net::Exchange> exchange_;
  std::shared_ptr<LiveUplink> uplink_;
  std::weak_ptr<Turn> turn_;
  bool accepted_ = false;
  bool over_ = false;  // it has been answered otherwise, or is closed
  int code_ = 0;       // of the worker's goodbye; 0: there was none yet
  std::string reason_;
};

}  // namespace pelton::gateway
