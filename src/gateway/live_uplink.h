// What the client of a live session says, on its way to the worker that has the session: messages
// in order, each heard once, as many together as have come while the last ones were on their way.
// What waits is bounded. Owned by the session's socket and its relay; everything on the session's
// net thread but the HTTP client's callbacks, which only post to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "net/http_client.h"
#include "net/http_server.h"

namespace pelton::gateway {

class LiveUplink : public std::enable_shared_from_this<LiveUplink> {
 public:
  static constexpr size_t kWaitingBytesMax = size_t{8} << 20;
  static constexpr size_t kWaitingMessagesMax = 4096;

  struct Options {
    net::HttpClient& client;  // outlives it
    std::string gateway;
    std::shared_ptr<net::Exchange> connection;  // the client's
    // The worker hears nothing any more.
    std::function<void()> on_broken;
  };
  explicit LiveUplink(Options options) : options_(std::move(options)) {}

  // The worker that is asked for a session, and the dispatch by which it is. Not once one has
  // begun.
  struct Place {
    std::string host;
    int port = 0;
    bool tls = false;
    std::shared_ptr<const net::TlsTrust> trust;
    std::string incarnation;
    int64_t dispatch = 0;
  };
  void set_place(Place place) { place_ = std::move(place); }

  // False: too much waits already.
  bool say(std::string message);
  // The gateway is about to end: said behind all messages.
  void drain();
  void stop();
  // The worker heard nothing any more, and on_broken() was called.
  bool is_broken() const { return broken_; }

 private:
  void send_next();
  void send();
  void on_done(bool is_reached, int status);

  const Options options_;
  Place place_;
  std::deque<std::string> waiting_;
  size_t waiting_bytes_ = 0;
  int64_t next_ = 0;  // the number of the first of these
  bool drains_ = false;
  std::string sent_;  // frames on their way; empty: there are none
  net::HttpClient::CallId call_ = 0;
  int failures_ = 0;  // of these
  bool over_ = false;
  bool broken_ = false;
};

}  // namespace pelton::gateway
