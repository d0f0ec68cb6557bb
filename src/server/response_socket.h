// /v1/responses over a WebSocket: each message is {"type":"response.create", …} or
// {"type":"response.cancel"} (which may name the running one, "response_id"), each event one
// message. One response at a time; one more may wait.
// Lives on its connection's net thread; the exchange keeps it alive until it is closed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "api/error.h"
#include "base/json.h"
#include "server/call.h"
#include "server/response_link.h"

namespace pelton::server {

struct Services;

class ResponseSocket : public std::enable_shared_from_this<ResponseSocket> {
 public:
  // `call`: the handshake, which has been checked. `services` outlive it.
  static void open(Services& services, Call call);

 private:
  class Turn;

  ResponseSocket(Services& services, Call call) : services_(services), call_(std::move(call)) {}

  void start();
  void on_message(const std::string& message);
  // One message that asks for a response. If it is dropped, that is reported as a client's leaving.
  struct Asked {
    Json body;
    std::unique_ptr<access::TrackedRequest> entry;
    int64_t arrived_ns = 0;
    int64_t bytes = 0;
  };
  void create(Asked asked);
  void begin(Asked asked);
  void cancel(const Json& message);
  std::optional<Error> names_other(const Json& message) const;
  void turn_over();
  void client_left();
  void on_drained();
  void on_drain();
  // Of a message that is refused, also to those who get reports of requests.
  void refuse(const api::ApiError& error, access::TrackedRequest& entry);
  std::unique_ptr<access::TrackedRequest> new_entry(int64_t message_bytes);
  void say(const api::ApiError& error);

  Services& services_;
  Call call_;
  const std::shared_ptr<ResponseLink> link_ = std::make_shared<ResponseLink>();
  std::weak_ptr<Turn> turn_;
  bool busy_ = false;             // a response is being made, or its end is on its way here
  std::optional<Asked> waiting_;  // the next one
  bool draining_ = false;
  int64_t entries_ = 0;
};

}  // namespace pelton::server
