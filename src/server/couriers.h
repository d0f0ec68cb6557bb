// Who brings the engine's tokens to which net thread: one courier for all answers on a thread,
// however many engines there are. Owned by the Server; any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "engine/courier.h"
#include "net/http_server.h"

namespace pelton::server {

class Couriers {
 public:
  // Of the thread on which the exchange's answer is made; null where it has none of its own.
  std::shared_ptr<engine::Courier> of_thread(net::Exchange& exchange);

 private:
  class Round;

  std::mutex mutex_;
  std::map<const void*, std::shared_ptr<Round>> rounds_;  // by the threads' names; as many as those
};

}  // namespace pelton::server
