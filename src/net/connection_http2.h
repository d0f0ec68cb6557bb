// A connection that speaks HTTP/2: many requests at a time, each with an answer of its own. The
// same socket, queue and loop as HTTP/1.1's. Internal to this room; its Connection's, on that one's
// loop thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/steady_timer.hpp>

#include "net/error_form.h"
#include "net/http2_session.h"
#include "net/http_server.h"

namespace pelton::net {

class Connection;

class Http2Connection {
 public:
  explicit Http2Connection(Connection& connection);

  void on_bytes(std::string_view bytes);
  // Moves frames into the connection's queue.
  void pump();
  bool has_more() const { return session_.has_more(); }
  void on_queue_empty();
  void on_tick();
  void drain();
  // The connection is closed: whoever waits for a client hears of it.
  void close();

  // What exchanges ask for, by stream; ignored of streams that are gone.
  void send(uint64_t id, HttpResponse response);
  void start_stream(uint64_t id, int status, const HttpHeaders& headers);
  void write(uint64_t id, std::string_view bytes);
  void finish(uint64_t id);
  void on_drained(uint64_t id, std::function<void()> drained);
  void on_closed(uint64_t id, std::function<void()> closed);
  void post_after(uint64_t id, std::chrono::milliseconds delay, std::function<void()> work);
  void dropped(uint64_t id);
  bool is_over(uint64_t id) const;
  size_t queued_bytes(uint64_t id) const;

 private:
  using Time = std::chrono::steady_clock::time_point;

  struct Answer {
    bool is_streaming = false;
    ErrorForm error_form = ErrorForm::kObject;
    bool has_written = false;  // since the last call of `drained`
    std::function<void()> drained;
    std::function<void()> closed;
    std::vector<std::unique_ptr<boost::asio::steady_timer>> timers;
  };
  struct Pace {  // of what a stream has to send
    uint64_t sent_bytes = 0;
    Time since;
  };
  struct Body {
    Time begun;
    int64_t bytes = 0;
  };

  void handle(const Http2Session::Event& event);
  void begin(int32_t stream);
  void begin_held_back();
  void produce();
  void refuse(int32_t stream, const HttpReject& refusal, ErrorForm form);
  ErrorForm error_form(int32_t stream) const;  // of a request that is being read
  void count_body(int32_t stream);
  void gone(int32_t stream);
  void look_at_time();
  void look_at_bodies(Time now);
  void look_at_answers(Time now);
  Answer* find(uint64_t id);
  void whole(int32_t stream, HttpResponse response);

  Connection& connection_;
  Http2Session session_;
  const std::chrono::milliseconds tick_;
  std::map<int32_t, Answer> answers_;  // whose exchanges may still speak
  std::map<int32_t, Body> bodies_;     // being read
  std::map<int32_t, Pace> paces_;      // as of the last tick
  std::deque<int32_t> held_back_;      // whole requests, until answers before them are read
  std::string frames_;                 // its room serves again
  Time idle_since_;
  Time header_since_;  // while one is being read
  int32_t header_stream_ = 0;
  bool has_had_request_ = false;
  bool is_going_away_ = false;
  bool has_gone_away_ = false;  // the last stream that is taken has been named
};

}  // namespace pelton::net
