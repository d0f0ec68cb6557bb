// One accepted connection: reads requests, hands them to the handler one at a time, writes answers.
// Internal to this room. Lives on one Loop's thread and is touched nowhere else; its loop keeps it
// in a registry until it closes, and exchanges may hold it longer.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <boost/asio/steady_timer.hpp>

#include "base/function_ref.h"
#include "net/connection_http2.h"
#include "net/deadline_timer.h"
#include "net/http_reader.h"
#include "net/http_server.h"
#include "net/loop.h"
#include "net/lost_peer.h"
#include "net/send_queue.h"
#include "net/stream.h"
#include "net/websocket.h"

namespace pelton::net {

class Connection;

// What all connections of a server share. The handler is cleared once the loops have ended.
struct ServerState {
  ServerState(const HttpServer::Options& server_options, base::Log& server_log)
      : options(server_options), log(server_log) {}

  const HttpServer::Options options;
  base::Log& log;
  HttpServer::Handler handler;
  std::atomic<int> connection_count{0};
  std::atomic<bool> draining{false};
  std::atomic<int64_t> handshakes_failed{0};
  std::atomic<int64_t> bodies_bytes{0};  // see Options::bodies_bytes_max
};

// The open connections of one loop; on its thread only.
struct ConnectionRegistry {
  std::unordered_map<Connection*, std::shared_ptr<Connection>> open;
  // Those that have no whole header of a request, nor an answer to give: whose last step on the way
  // there (accepted, answered, a first byte) is longest ago stands first.
  std::list<Connection*> waiting;

  // Closes the first of these, if it has waited for `patience`.
  bool make_room(std::chrono::milliseconds patience);
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Socket = Stream::Socket;
  using SystemError = boost::system::error_code;

  Connection(std::shared_ptr<Loop> loop, std::shared_ptr<ServerState> server,
             ConnectionRegistry& registry, Socket socket);

  void start();
  void refuse(const HttpReject& reject);  // instead of start(): answers that, and closes
  void drain();                           // closes now if idle, otherwise after the exchange
  void close_now();
  std::chrono::steady_clock::time_point waiting_since() const { return waiting_since_; }

  // What an exchange asks for; ignored unless `id` is the exchange of this moment.
  void send(uint64_t id, HttpResponse response);
  void start_stream(uint64_t id, int status, const HttpHeaders& headers);
  void write(uint64_t id, std::string_view bytes);
  void finish(uint64_t id);
  void accept_websocket(uint64_t id, const HttpHeaders& headers, Exchange::WebSocket socket);
  void finish_websocket(uint64_t id, const WebSocketClose& close);
  void ping(uint64_t id);
  void on_drained(uint64_t id, std::function<void()> drained);
  void on_closed(uint64_t id, std::function<void()> closed);
  void post_after(uint64_t id, std::chrono::milliseconds delay, std::function<void()> work);
  void exchange_dropped(uint64_t id);
  // What `work` says leaves at the end, all together. In two parts, between which others may have
  // theirs; within a work that has not ended another is a part of it.
  void run(base::FunctionRef<void()> work) {
    begin_work(work);
    end_work();
  }
  void begin_work(base::FunctionRef<void()> work);
  void end_work();
  bool is_over(uint64_t id) const {
    if (http2_ != nullptr) return http2_->is_over(id);
    return !reply_.open || id != exchange_id_;
  }
  size_t queued_bytes(uint64_t id) const {
    return http2_ != nullptr ? http2_->queued_bytes(id) : queue_.bytes();
  }
  bool speaks_http2() const { return http2_ != nullptr; }
  Loop& loop() { return *loop_; }
  const std::shared_ptr<Loop>& shared_loop() const { return loop_; }

 private:
  friend class Http2Connection;

  enum class Phase {
    kHandshake,  // of TLS
    kReading,    // a request, or waiting for one
    kAnswering,  // an exchange is open, or its bytes are on their way
    kLingering,  // all said; reading on until the client has heard it
    kClosed,
  };
  enum class Deadline { kNone, kHandshake, kIdle, kHeader, kBody, kLinger, kPing, kTick };
  enum class Framing { kWhole, kChunked, kUntilClose, kWebSocket };

  // The answer being given.
  struct Reply {
    bool open = false;  // an exchange may still speak
    bool streaming = false;
    bool head_request = false;
    bool http_1_0 = false;
    bool keep_alive = false;
    ErrorForm error_form = ErrorForm::kObject;
    Framing framing = Framing::kWhole;
    std::function<void()> drained;
    std::function<void()> closed;
    std::vector<std::unique_ptr<boost::asio::steady_timer>> timers;
  };

  bool open();
  void begin_reading();
  void wait_for_header();
  void stop_waiting();

  // TLS; connection_tls.cc.
  void start_tls();
  void advance_handshake();
  void wait_for_handshake(Socket::wait_type what);

  // Reading.
  void wait_readable();
  void on_readable(const SystemError& error);
  void on_bytes(std::string_view bytes);
  void out_of_memory();
  void on_eof();
  void watch_for_reset();
  void probe_half_closed();
  void advance_reader();
  void on_body_bytes();
  bool hold_bytes(size_t bytes);
  void begin_exchange();
  void reject(const HttpReject& reject, ErrorForm form);
  static HttpReject foreign_host();
  static HttpResponse refusal_response(const HttpReject& refusal, ErrorForm form);

  // Which version it is; connection_http2.cc does the rest. False: more bytes will say.
  bool find_version(std::string_view& bytes);
  void begin_http2(const std::string& bytes);

  // As a WebSocket; connection_websocket.cc.
  void on_websocket_bytes(std::string_view bytes);
  void on_ping(std::string_view payload);
  void leave_websocket(const WebSocketClose& close);
  void send_frame(WebSocketOpcode opcode, std::string_view payload);
  void on_ping_time();

  // Writing.
  void append_head(int status, const HttpHeaders& headers, std::string_view framing_lines);
  void schedule_flush();
  void flush_if_due();
  void flush();
  bool write_some();
  size_t write_pieces(SystemError& error);
  void watch_peer();
  void look_at_peer();
  void on_queue_empty();
  void end_exchange();
  void linger();

  // Time.
  void set_deadline(Deadline what, std::chrono::milliseconds after);
  void clear_deadline();
  void on_deadline();

  const std::shared_ptr<Loop>
      loop_;  // first: the socket and the timers need its context to the end
  const std::shared_ptr<ServerState> server_;
  ConnectionRegistry& registry_;  // used only while registered
  Stream stream_;

  // What every write touches stands together: of hundreds that take their turns each is cold.
  Phase phase_ = Phase::kReading;
  bool read_pending_ = false;
  bool reset_watched_ = false;
  bool eof_ = false;
  bool probe_due_ = false;
  size_t linger_bytes_left_ = 0;  // to read and throw away; of Phase::kLingering
  int64_t bytes_held_ = 0;        // of what all connections together may hold
  int64_t body_bytes_ = 0;        // that have come while a body was read
  std::chrono::steady_clock::time_point body_begun_;
  std::chrono::steady_clock::time_point waiting_since_;
  // Holds this connection while it is not in ConnectionRegistry::waiting: moving from list to list
  // allocates nothing.
  std::list<Connection*> apart_;
  std::list<Connection*>::iterator place_;  // wherever it stands

  struct WebSocketState {
    WebSocketReader reader;
    Exchange::WebSocket socket;
    bool heard = true;                                 // since the last ping of ours
    std::chrono::steady_clock::time_point message_at;  // the last one, or the handshake
    bool pong_queued = false;                          // only the last of several pings needs one
  };

  uint64_t exchange_id_ = 0;
  std::unique_ptr<WebSocketState> websocket_;  // null: it speaks HTTP
  std::unique_ptr<Http2Connection> http2_;     // null: HTTP/1.1
  Reply reply_;
  SendQueue queue_;
  std::string* outgoing_ = nullptr;  // the loop's, lent to queue_ while working
  bool write_pending_ = false;
  bool flush_due_ = false;
  bool working_ = false;  // until end_work(), where there is a flush
  bool looking_ = false;  // at the client, after a while: look_timer_ runs

  DeadlineTimer timer_;
  Deadline deadline_ = Deadline::kNone;  // what the timer stands for
  // Until here.

  DeadlineTimer look_timer_;
  uint64_t sent_bytes_ = 0;  // that the kernel has taken
  PeerPatience patience_;

  RequestReader reader_;
  std::string remote_;
  std::string websocket_key_;  // of the request
  bool may_be_http2_ = false;  // nothing has come but, perhaps, the beginning of its preface
  std::string preface_;
};

}  // namespace pelton::net
