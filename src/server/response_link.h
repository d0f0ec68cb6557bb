// What a response is made over: one HTTP request, or a WebSocket with others before and after it on
// the same connection. On that connection's net thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/response_events.h"
#include "server/generation.h"
#include "server/response_conversation.h"

namespace pelton::server {

struct ResponseLink {
  api::ResponseEvents::Framing framing = api::ResponseEvents::Framing::kServerSent;

  // The last response given over this connection, whether it is stored or not.
  std::string last_id;  // empty: none
  std::vector<PastResponse> last_history;

  bool compiling = false;     // the formats of the next response
  bool cancel_asked = false;  // meanwhile
  std::weak_ptr<Generation> running;
  std::string running_id;  // that response's name
};

}  // namespace pelton::server
