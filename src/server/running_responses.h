// The responses that are being made now, so that another request may cancel one. Any thread.
// Bounded by the requests that run: each is taken out by its maker, however it ends.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "net/http_server.h"
#include "server/generation.h"

namespace pelton::server {

class RunningResponses {
 public:
  struct Running {
    std::string owner;  // whose it is; nobody else can cancel it
    std::weak_ptr<net::Exchange> exchange;
    std::weak_ptr<Generation> generation;  // touched on the exchange's thread only
  };
  // Called with what has become of it: the response object; empty if its client left before.
  using Waiter = std::function<void(const std::string& body)>;

  void add(const std::string& id, Running running);
  // It is over: its waiters, for the caller to answer.
  std::vector<Waiter> take(const std::string& id);

  struct Key {
    std::string_view owner;
    std::string_view id;
  };
  // False, and the waiter is dropped, if no such response is running.
  bool cancel(const Key& key, Waiter waiter);

 private:
  struct Entry {
    Running running;
    std::vector<Waiter> waiters;
  };

  std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;
};

// On any thread: cancels it on its own.
void cancel_generation(const std::weak_ptr<net::Exchange>& exchange,
                       const std::weak_ptr<Generation>& generation);

}  // namespace pelton::server
