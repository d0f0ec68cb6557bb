// Who brings the engine's tokens to which net thread: one outbox for all answers on a thread,
// however many engines there are. Owned by the Server; any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "engine/outbox.h"
#include "net/http_server.h"

namespace pelton::server {

class Outboxes {
 public:
  // Of the thread on which the exchange's answer is made; null where it has none of its own.
  std::shared_ptr<engine::Outbox> of_thread(net::Exchange& exchange);

 private:
  class ThreadOutbox;

  std::mutex mutex_;
  std::map<const void*, std::shared_ptr<ThreadOutbox>>
      by_thread_;  // by the threads' names; as many as those
};

}  // namespace pelton::server
