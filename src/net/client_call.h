// One call of the HTTP client while it runs: connect (or take a kept connection), send, read.
// Internal to this room; lives on one Loop's thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <boost/asio/ip/tcp.hpp>

#include "net/deadline_timer.h"
#include "net/http_client.h"
#include "net/http_reader.h"
#include "net/loop.h"
#include "net/stream.h"

namespace pelton::net {

// Connections without a call, by where they lead. One loop's, on its thread.
class IdleConnections {
 public:
  struct Options {
    size_t count_max = 0;
    std::chrono::milliseconds time_max{};
  };

  IdleConnections(boost::asio::io_context& context, const Options& options)
      : context_(context), options_(options) {}

  std::optional<Stream> take(const std::string& key);
  void keep(const std::string& key, Stream stream);
  void clear();

 private:
  struct Kept;
  void drop(const std::shared_ptr<Kept>& kept);     // out of the pool
  void discard(const std::shared_ptr<Kept>& kept);  // and closed

  boost::asio::io_context& context_;
  const Options options_;
  std::unordered_map<std::string, std::vector<std::shared_ptr<Kept>>> by_key_;
  size_t count_ = 0;
};

class ClientCall : public std::enable_shared_from_this<ClientCall> {
 public:
  using SystemError = boost::system::error_code;

  // `gone` is called when the call is over, before on_done.
  ClientCall(Loop& loop, IdleConnections& idle, HttpCall call, HttpCallEvents events,
             std::function<void()> gone);

  void start();
  void cancel();
  void pause();
  void resume();

 private:
  enum class Deadline { kConnect, kHead, kQuiet };
  using Socket = Stream::Socket;

  void connect();
  void on_connected(const SystemError& error);
  void advance_handshake(const SystemError& error);
  void finish_unconnected(std::string_view why);
  void wait_for_handshake(Socket::wait_type what);
  void send();
  void write();
  void write_records();
  void wait_readable();
  void on_readable();
  void on_broken(const std::string& problem);
  void advance();
  void report_head();
  void finish(Result<void> result);
  void set_deadline(Deadline what, std::chrono::milliseconds after);
  void on_deadline();
  std::string place() const;
  std::string idle_key() const;

  Loop& loop_;
  IdleConnections& idle_;
  HttpCall call_;
  HttpCallEvents events_;
  std::function<void()> gone_;
  std::string head_;  // of the request
  Stream stream_;
  boost::asio::ip::tcp::resolver resolver_;
  std::unique_ptr<ResponseReader> reader_;
  DeadlineTimer whole_timer_;
  DeadlineTimer timer_;
  Deadline deadline_ = Deadline::kConnect;
  // Handlers of an earlier connection of this call find another number here.
  int attempt_ = 0;
  bool connected_ = false;
  bool reused_ = false;
  bool broke_kept_ = false;  // a kept connection broke with this request in it
  bool sent_ = false;
  size_t records_sent_ = 0;  // with TLS: bytes of head and body
  bool read_pending_ = false;
  bool paused_ = false;
  bool head_reported_ = false;
  bool done_ = false;
};

}  // namespace pelton::net
