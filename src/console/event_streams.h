// The streams of server-sent events that the console's pages are fed by: each goes on until its
// client leaves, from behind the event that it names (Last-Event-ID), and asks for news four times
// a second. Their number is bounded; one whose client reads too slowly is sent what it has missed
// at once, later. Owned by a console, whose listener stops before it goes; follow() runs on that
// listener's net threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "net/http_message.h"
#include "net/http_server.h"

namespace pelton::console {

class EventStreams {
 public:
  static constexpr int kStreamsMax = 24;

  struct News {
    int64_t newest = 0;  // the event's number
    std::string data;    // in one line; empty: there is nothing new
  };
  struct Parts {
    std::function<News(int64_t after)> news;  // any thread
    std::function<bool()> ends;               // the server goes; null: its listener just stops
  };
  explicit EventStreams(Parts parts) : parts_(std::move(parts)) {}

  // Whether its client may go on; asked before each look for news, on its net thread.
  using MayGoOn = std::function<bool()>;
  // Answers a GET or HEAD. Pages of other sites get 403, one too many 503. `may_go_on`: null, as
  // long as it likes.
  void follow(const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange,
              MayGoOn may_go_on = nullptr);
  // Streams that are open.
  int open() const { return streams_; }

 private:
  class Stream;

  const Parts parts_;
  std::atomic<int> streams_ = 0;
};

}  // namespace pelton::console
