#include "gateway/live_socket.h"

#include <charconv>
#include <utility>

#include "api/realtime_session.h"
#include "gateway/interruption.h"
#include "net/socket_turn.h"
#include "net/websocket.h"

namespace pelton::gateway {

// The way back of the worker's side of a session. Its Relay holds it.
class LiveSocket::Turn final : public net::SocketTurn {
 public:
  explicit Turn(const std::shared_ptr<LiveSocket>& socket)
      : SocketTurn(socket->exchange_,
                   [weak = std::weak_ptr(socket)] {
                     if (const auto alive = weak.lock()) alive->end();
                   }),
        socket_(socket) {}

  // No worker has taken the session.
  void send(net::HttpResponse response) override {
    if (over()) return;
    if (const auto socket = socket_.lock()) {
      socket->over_ = true;
      connection().send(std::move(response));
    }
    net::SocketTurn::end();
  }
  void start_stream(int /*status*/, net::HttpHeaders headers) override {
    if (over()) return;
    if (const auto socket = socket_.lock()) socket->accept(std::move(headers));
  }
  void write(std::string_view bytes) override {
    if (over()) return;
    const auto socket = socket_.lock();
    if (socket == nullptr) return;
    line_ += bytes;
    size_t at = 0;
    for (size_t end = line_.find('\n'); end != std::string::npos; end = line_.find('\n', at)) {
      socket->on_line(std::string_view(line_).substr(at, end - at));
      at = end + 1;
    }
    line_.erase(0, at);
  }

 private:
  const std::weak_ptr<LiveSocket> socket_;
  std::string line_;  // that has begun
};

void LiveSocket::open(net::HttpRequest handshake, std::shared_ptr<net::Exchange> exchange,
                      const Options& options) {
  std::make_shared<LiveSocket>(Key(), std::move(exchange))->start(std::move(handshake), options);
}

LiveSocket::LiveSocket(Key, std::shared_ptr<net::Exchange> exchange)
    : exchange_(std::move(exchange)) {}

void LiveSocket::start(net::HttpRequest handshake, const Options& options) {
  const std::weak_ptr<LiveSocket> weak = weak_from_this();
  uplink_ = std::make_shared<LiveUplink>(LiveUplink::Options{.client = options.client,
                                                             .gateway = options.gateway,
                                                             .connection = exchange_,
                                                             .on_broken = [weak] {
                                                               if (const auto self = weak.lock())
                                                                 self->on_broken();
                                                             }});
  // This one reference keeps us alive; the exchange lets it go when it ends.
  exchange_->on_closed([self = shared_from_this()] { self->client_left(); });
  exchange_->on_drained([weak] {
    const auto self = weak.lock();
    const auto turn = self == nullptr ? nullptr : self->turn_.lock();
    if (turn != nullptr) turn->connection_drained();
  });
  const auto turn = std::make_shared<Turn>(shared_from_this());
  turn_ = turn;
  options.forward(std::move(handshake), turn, uplink_);
}

void LiveSocket::accept(net::HttpHeaders headers) {
  if (std::exchange(accepted_, true)) return;
  const std::weak_ptr<LiveSocket> weak = weak_from_this();
  exchange_->accept_websocket(std::move(headers), {.message_bytes_max = api::kRealtimeEventBytesMax,
                                                   .on_message =
                                                       [weak](std::string message) {
                                                         if (const auto self = weak.lock())
                                                           self->on_message(std::move(message));
                                                       },
                                                   .on_drain =
                                                       [weak] {
                                                         if (const auto self = weak.lock())
                                                           self->on_drain();
                                                       }});
}

void LiveSocket::on_message(std::string message) {
  if (over_ || uplink_->say(std::move(message))) return;
  end_with({.status = 429,
            .message = "more is said than the session's worker takes",
            .type = "rate_limit_error",
            .param = {},
            .code = "overloaded"},
           net::kCloseTryLater);
}

// The worker answers what has been said, and says goodbye.
void LiveSocket::on_drain() {
  if (!over_) uplink_->drain();
}

void LiveSocket::on_broken() {
  end_with({.status = 502,
            .message = "the session's worker does not hear what is said",
            .type = "server_error",
            .param = {},
            .code = "stream_interrupted"},
           net::kCloseInternalError);
}

void LiveSocket::client_left() {
  over_ = true;
  uplink_->stop();
  if (const auto turn = turn_.lock()) turn->leave();
}

void LiveSocket::on_line(std::string_view line) {
  if (over_) return;
  if (!line.starts_with('!')) return exchange_->write(line);
  line.remove_prefix(1);
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), code_);
  if (error != std::errc()) code_ = net::kCloseInternalError;
  line.remove_prefix(static_cast<size_t>(end - line.data()));
  if (line.starts_with(' ')) line.remove_prefix(1);
  reason_ = line;
}

// The worker's side is over. Without a goodbye it has broken off: an event has said so.
void LiveSocket::end() {
  if (std::exchange(over_, true)) return;
  uplink_->stop();
  if (!accepted_) {
    return exchange_->send({.status = 502, .headers = {}, .body = "no worker has answered\n"});
  }
  if (code_ == 0)
    return exchange_->finish_websocket(net::kCloseInternalError, "the session was interrupted");
  exchange_->finish_websocket(code_, reason_);
}

void LiveSocket::end_with(const api::ApiError& error, int code) {
  if (std::exchange(over_, true)) return;
  uplink_->stop();
  exchange_->write(live_session_error(error));
  exchange_->finish_websocket(code, error.message);
  if (const auto turn = turn_.lock()) turn->leave();
}

}  // namespace pelton::gateway
