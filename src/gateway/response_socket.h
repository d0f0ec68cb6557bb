// /v1/responses over a WebSocket, as workers have it: each message is {"type":"response.create", …}
// or {"type":"response.cancel"}, each event one message, one response at a time and one more that
// may wait. Each is made as if it had come over HTTP, so it may move from worker to worker; what
// the connection's last response said is kept here, and stands before a message that names it as
// its "previous_response_id". Lives on its connection's net thread; the exchange keeps it alive
// until it is closed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "api/error.h"
#include "base/json.h"
#include "net/http_server.h"

namespace pelton::gateway {

class ResponseSocket : public std::enable_shared_from_this<ResponseSocket> {
 public:
  // Answers a request of the connection's, over the given exchange, as one that came over HTTP.
  using Forward =
      std::function<void(net::HttpRequest request, std::shared_ptr<net::Exchange> exchange)>;
  // `handshake` has been checked (check_websocket_request) and its caller is known.
  static void open(net::HttpRequest handshake, std::shared_ptr<net::Exchange> exchange,
                   Forward forward);

 private:
  class Turn;
  struct Key {};  // only open() makes one

 public:
  ResponseSocket(Key, net::HttpRequest handshake, std::shared_ptr<net::Exchange> exchange,
                 Forward forward);

 private:
  void start();
  void on_message(const std::string& message);
  void create(Json body);
  void begin(Json body);
  // What the message says, behind what the last response was asked and said.
  void put_history(Json& body);
  void cancel();
  void note_event(const std::string& event);
  void turn_over();
  void client_left();
  void on_drained();
  void on_drain();
  void say(const api::ApiError& error);

  const net::HttpRequest handshake_;
  const std::shared_ptr<net::Exchange> exchange_;
  const Forward forward_;
  std::weak_ptr<Turn> turn_;
  bool busy_ = false;            // a response is being made, or its end is on its way here
  std::optional<Json> waiting_;  // the next one
  bool draining_ = false;
  bool ended_ = false;   // the running one has said that it is complete, or failed
  Json::Array asked_;    // of the running one: its input
  Json::Array history_;  // of the last complete one: its input and output
  std::string last_id_;  // empty: none
};

}  // namespace pelton::gateway
