// A WebSocket (RFC 6455) from its client's side: texts out, texts in, over TCP or TLS. Owned by one
// thread, which waits in its calls: a program's own stream to a server, as a load generator has
// some hundreds of. Pings are answered while it receives.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/http_client.h"
#include "net/websocket.h"

namespace pelton::net {

class WebSocketClient {
 public:
  using Clock = std::chrono::steady_clock;

  struct Options {
    size_t message_bytes_max = size_t{32} << 20;  // of what comes
    // Asked several times a second while a call waits; true ends it. Empty: never.
    std::function<bool()> stops = {};
  };

  // `call`: host, port, tls and trust, target, headers, and its times to connect and to the
  // answer's head. Errors: kUnavailable (no connection; another answer than 101, with its status
  // and what its body says), kDeadline, kCancelled, kIo: what came is no handshake.
  static Result<std::unique_ptr<WebSocketClient>> open(const HttpCall& call, Options options);
  ~WebSocketClient();
  WebSocketClient(const WebSocketClient&) = delete;
  WebSocketClient& operator=(const WebSocketClient&) = delete;

  // Until the system has it. What comes meanwhile is read, so that neither side waits for the
  // other. Errors: kIo: the connection broke off; kDeadline: nothing was taken for `Options`' a
  // minute; kCancelled.
  Result<void> send(std::string_view text);
  // The next text; empty: none came before `until`. Errors: kUnavailable: the server has closed,
  // with its code and reason; kIo: it broke off, or what came is no WebSocket; kCancelled.
  Result<std::optional<std::string>> receive(Clock::time_point until);
  // Says that nothing more comes; waits for nobody.
  void close();

 private:
  class Link;
  WebSocketClient(std::unique_ptr<Link> link, Options options);
  Result<void> take_some(Clock::time_point until, bool& came);

  std::unique_ptr<Link> link_;
  const Options options_;
  WebSocketReader reader_;
};

// One whole frame as a client sends it: masked with `mask`.
void append_masked_frame(std::string& out, WebSocketOpcode opcode, std::string_view payload,
                         std::string_view mask);

}  // namespace pelton::net
