#include "net/http_server.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <future>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "net/connection.h"
#include "net/descriptor_share.h"
#include "net/loop.h"
#include "net/unix_socket.h"
#include "net/url.h"

namespace pelton::net {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Protocol = asio::generic::stream_protocol;
using boost::system::error_code;

// Over the connection limit this many more are refused and waited for; the rest get what the
// kernel takes of it at once.
constexpr int kRefusalsMax = 64;
const HttpReject kNoRoom{503, "too_many_connections", "the server has too many connections"};
// Out of descriptors: others must close first, so there is no hurry.
constexpr std::chrono::milliseconds kAcceptPause{100};
constexpr std::chrono::seconds kAcceptWarningTime{10};  // between warnings of it

Result<Protocol::endpoint> parse_endpoint(const HttpServer::Options& options) {
  if (const std::optional<std::string> path = unix_path(options.address)) {
    TRY(make_room_for_socket(*path));
    return Protocol::endpoint(asio::local::stream_protocol::endpoint(*path));
  }
  const std::string& address = options.address;
  const int port = options.port;
  if (port < 0 || port > 65535) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("port {} is not between 0 and 65535", port), "port"};
  }
  error_code error;
  const std::string numeric = address == "localhost" ? "127.0.0.1" : address;
  const asio::ip::address parsed = asio::ip::make_address(numeric, error);
  if (error) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("'{}' is not an IPv4 or IPv6 address", address), "address"};
  }
  return Protocol::endpoint(tcp::endpoint(parsed, static_cast<unsigned short>(port)));
}

int port_of(const Protocol::endpoint& bound) {
  tcp::endpoint address;
  std::memcpy(address.data(), bound.data(), std::min(bound.size(), address.capacity()));
  return address.port();
}

Error bind_error(const error_code& error, const HttpServer::Options& options) {
  const bool is_unix = unix_path(options.address).has_value();
  const std::string where =
      is_unix ? options.address : format_host_port(options.address, options.port);
  if (error == asio::error::address_in_use && !is_unix) {
    return {ErrorCode::kAddressInUse,
            fmt::format("{} is in use by another program; choose another port", where), "port"};
  }
  const bool is_argument = error != asio::error::no_descriptors &&
                           error != asio::error::no_memory && error != asio::error::no_buffer_space;
  return {is_argument ? ErrorCode::kInvalidArgument : ErrorCode::kUnavailable,
          fmt::format("cannot listen on {}: {}", where, error.message()),
          is_unix ? "uds" : "address"};
}

// An answer of no particular connection, as Connection::reject() writes it.
std::string whole_refusal(const HttpReject& refusal) {
  const HttpResponse response = error_response(refusal);
  std::string text =
      fmt::format("HTTP/1.1 {} {}\r\n", refusal.status, reason_phrase(refusal.status));
  for (const auto& [name, value] : response.headers.fields()) {
    text += fmt::format("{}: {}\r\n", name, value);
  }
  text += fmt::format("Retry-After: 1\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                      response.body.size());
  return text + response.body;
}

// Of an exchange that is no connection of its own.
class PostingNotifier final : public Notifier,
                              public std::enable_shared_from_this<PostingNotifier> {
 public:
  PostingNotifier(Exchange& exchange, std::weak_ptr<NotifierTask> work)
      : exchange_(exchange), work_(std::move(work)) {}

  void notify() override {
    if (notified_.exchange(true)) return;
    exchange_.post([self = shared_from_this()] {
      self->notified_.store(false);
      if (const std::shared_ptr<NotifierTask> work = self->work_.lock()) work->run();
    });
  }

 private:
  Exchange& exchange_;
  const std::weak_ptr<NotifierTask> work_;
  std::atomic<bool> notified_{false};
};

}  // namespace

std::shared_ptr<Notifier> Exchange::make_notifier(std::weak_ptr<NotifierTask> work) {
  return std::make_shared<PostingNotifier>(*this, std::move(work));
}

class HttpServer::Listener {
 public:
  Listener(const Options& options, Handler handler, base::Log& log)
      : state_(std::make_shared<ServerState>(options, log)) {
    state_->handler = std::move(handler);
  }

  Result<void> start();
  void stop(std::chrono::milliseconds grace);
  int port() const { return port_; }
  int connections_max() const { return connections_max_; }
  int refusals_max() const { return refusals_max_; }
  int connection_count() const { return state_->connection_count.load(); }
  int64_t handshakes_failed() const { return state_->handshakes_failed.load(); }

 private:
  // A loop and its connections, which only its thread touches.
  struct Worker {
    std::shared_ptr<Loop> loop = std::make_shared<Loop>();
    ConnectionRegistry connections;
  };

  Result<void> listen(const Protocol::endpoint& endpoint);
  void forget_path();
  void accept();
  void warn_of(const error_code& error);
  void take_in(Worker& worker, Protocol::socket socket);
  void refuse_unheard(Protocol::socket& socket) const;
  // Runs `work` on every loop and waits until it has.
  void on_every_loop(const std::function<void(Worker&)>& work);

  std::shared_ptr<ServerState> state_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::optional<asio::basic_socket_acceptor<Protocol>> acceptor_;  // first worker's thread
  std::optional<asio::steady_timer> accept_pause_;                 // first worker's thread
  size_t next_worker_ = 0;                                         // first worker's thread
  int port_ = 0;
  bool has_path_ = false;  // there is a file for the socket, which goes with the listener
  bool started_ = false;
  int connections_max_ = 0;
  int refusals_max_ = 0;
  std::optional<std::chrono::steady_clock::time_point> warned_;  // first worker's thread
};

Result<void> HttpServer::Listener::start() {
  CHECK(!started_, "a server starts once");
  const Options& options = state_->options;
  if (options.threads < 1 || options.connections_max < 1) {
    return Error{ErrorCode::kInvalidArgument, "a server needs at least one thread and connection",
                 options.threads < 1 ? "threads" : "connections_max"};
  }
  TRY_ASSIGN(const Protocol::endpoint endpoint, parse_endpoint(options));
  for (int i = 0; i < options.threads; ++i) workers_.push_back(std::make_unique<Worker>());
  Result<void> listening = listen(endpoint);
  if (!listening) {
    forget_path();
    acceptor_.reset();
    accept_pause_.reset();
    workers_.clear();
    return listening;
  }
  connections_max_ = fitting_connections({.wanted = options.connections_max,
                                          .spared = options.descriptors_spared,
                                          .refusals = kRefusalsMax});
  refusals_max_ = std::min(kRefusalsMax, 1 + connections_max_ / 4);
  if (connections_max_ < options.connections_max) {
    state_->log.warning(fmt::format(
        "http: room for {} connections instead of {}: more descriptors may not be open (ulimit -n)",
        connections_max_, options.connections_max));
  }
  try {
    for (const std::unique_ptr<Worker>& worker : workers_) worker->loop->start();
  } catch (const std::runtime_error& error) {  // std's of a thread, Asio's of descriptors
    for (const std::unique_ptr<Worker>& worker : workers_) worker->loop->stop();
    forget_path();
    acceptor_.reset();
    accept_pause_.reset();
    workers_.clear();
    return Error{ErrorCode::kUnavailable,
                 fmt::format("the system refuses a thread or its descriptors: {}", error.what())};
  }
  started_ = true;
  workers_.front()->loop->post([this] { accept(); });
  return {};
}

Result<void> HttpServer::Listener::listen(const Protocol::endpoint& endpoint) {
  asio::io_context& context = workers_.front()->loop->context();
  acceptor_.emplace(context);
  accept_pause_.emplace(context);
  error_code error;
  acceptor_->open(endpoint.protocol(), error);
  if (!error) acceptor_->set_option(tcp::acceptor::reuse_address(true), error);
  if (!error && endpoint.protocol().family() == AF_INET6) {
    // "::" means every address there is, as users expect.
    acceptor_->set_option(asio::ip::v6_only(false), error);
  }
  if (!error) acceptor_->bind(endpoint, error);
  has_path_ = !error && unix_path(state_->options.address).has_value();
  keep_little_unsent(acceptor_->native_handle());
  if (!error) acceptor_->listen(tcp::acceptor::max_listen_connections, error);
  if (error) return bind_error(error, state_->options);
  if (!has_path_) port_ = port_of(acceptor_->local_endpoint(error));
  return {};
}

void HttpServer::Listener::forget_path() {
  if (std::exchange(has_path_, false)) {
    ::unlink(unix_path(state_->options.address)->c_str());
  }
}

void HttpServer::Listener::accept() {
  if (!acceptor_->is_open()) return;
  Worker& worker = *workers_[next_worker_++ % workers_.size()];
  acceptor_->async_accept(worker.loop->context(),
                          [this, &worker](const error_code& error, Protocol::socket socket) {
                            if (error == asio::error::operation_aborted || state_->draining.load())
                              return;
                            if (!error) {
                              take_in(worker, std::move(socket));
                              return accept();
                            }
                            if (error == asio::error::connection_aborted) return accept();
                            warn_of(error);
                            accept_pause_->expires_after(kAcceptPause);
                            accept_pause_->async_wait([this](const error_code& cancelled) {
                              if (!cancelled) accept();
                            });
                          });
}

void HttpServer::Listener::warn_of(const error_code& error) {
  const auto now = std::chrono::steady_clock::now();
  if (warned_ && now - *warned_ < kAcceptWarningTime) return;
  warned_ = now;
  state_->log.warning(fmt::format("http: cannot accept: {}", error.message()));
}

void HttpServer::Listener::take_in(Worker& worker, Protocol::socket socket) {
  const int count = state_->connection_count.fetch_add(1) + 1;
  const int count_max = connections_max_;
  if (count > count_max + refusals_max_) {
    state_->connection_count.fetch_sub(1);
    return refuse_unheard(socket);
  }
  const std::shared_ptr<Connection> connection =
      std::make_shared<Connection>(worker.loop, state_, worker.connections, std::move(socket));
  const bool needs_room = count > count_max;
  const bool posted = worker.loop->post([this, &worker, connection, needs_room] {
    if (needs_room && !worker.connections.make_room(state_->options.patience)) {
      connection->refuse(kNoRoom);
    } else {
      connection->start();
    }
  });
  if (!posted) state_->connection_count.fetch_sub(1);
}

// Beyond those whose refusal is waited for: as much of it as the kernel takes at once. What has
// come is read before, since closing a socket with unread bytes resets the connection. `socket`
// closes itself.
void HttpServer::Listener::refuse_unheard(Protocol::socket& socket) const {
  if (state_->options.tls != nullptr) return;  // not worth a handshake
  std::array<char, 16 * 1024> unread;
  const int descriptor = socket.native_handle();
  static_cast<void>(::recv(descriptor, unread.data(), unread.size(), MSG_DONTWAIT));
  const std::string answer = whole_refusal(kNoRoom);
  static_cast<void>(::send(descriptor, answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
  ::shutdown(descriptor, SHUT_WR);
}

void HttpServer::Listener::on_every_loop(const std::function<void(Worker&)>& work) {
  for (const std::unique_ptr<Worker>& worker : workers_) {
    // Shared: we may be gone before set_value() has returned.
    const auto done = std::make_shared<std::promise<void>>();
    const bool posted = worker->loop->post([&, done] {
      work(*worker);
      done->set_value();
    });
    if (posted) done->get_future().wait();
  }
}

void HttpServer::Listener::stop(std::chrono::milliseconds grace) {
  if (!started_) return;
  started_ = false;
  for (const std::unique_ptr<Worker>& worker : workers_) {
    CHECK(!worker->loop->on_thread(), "a server cannot be stopped by its own thread");
  }
  const auto deadline = std::chrono::steady_clock::now() + grace;
  state_->draining.store(true);
  const auto each_connection = [](Worker& worker, void (Connection::*action)()) {
    const auto open = worker.connections.open;  // they leave the registry as they close
    for (const auto& [connection, owner] : open) (connection->*action)();
  };
  on_every_loop([&](Worker& worker) {
    if (&worker == workers_.front().get()) {
      error_code ignored;
      acceptor_->close(ignored);
      forget_path();
      accept_pause_->cancel();
    }
    each_connection(worker, &Connection::drain);
  });
  // Beyond this point nobody new comes in.
  while (connection_count() > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  on_every_loop([&](Worker& worker) { each_connection(worker, &Connection::close_now); });
  for (const std::unique_ptr<Worker>& worker : workers_) worker->loop->stop();
  // Beyond this point no net thread runs; an exchange still held somewhere keeps its Loop, no more.
  acceptor_.reset();
  accept_pause_.reset();
  state_->handler = nullptr;
}

HttpServer::HttpServer(const Options& options, Handler handler, base::Log& log)
    : listener_(std::make_unique<Listener>(options, std::move(handler), log)) {}

HttpServer::~HttpServer() {
  listener_->stop(std::chrono::milliseconds(0));
}

Result<void> HttpServer::start() {
  return listener_->start();
}
int HttpServer::port() const {
  return listener_->port();
}
int HttpServer::connections_max() const {
  return listener_->connections_max();
}
int HttpServer::connection_refusals_max() const {
  return listener_->refusals_max();
}
int HttpServer::connection_count() const {
  return listener_->connection_count();
}
int64_t HttpServer::handshakes_failed() const {
  return listener_->handshakes_failed();
}
void HttpServer::stop(std::chrono::milliseconds grace) {
  listener_->stop(grace);
}

}  // namespace pelton::net
