// A connection that has become a WebSocket: the same socket, queue and deadlines, another language.
#include <utility>

#include <fmt/format.h>

#include "net/connection.h"

namespace pelton::net {
namespace {

// A client that sends messages and reads no answers is sent away once this much waits for it.
constexpr size_t kUnreadBytesMax = size_t{4} << 20;

}  // namespace

void Connection::accept_websocket(uint64_t id, const HttpHeaders& headers,
                                  Exchange::WebSocket socket) {
  if (is_over(id)) return;
  reply_.streaming = true;
  reply_.framing = Framing::kWebSocket;
  reply_.keep_alive = true;  // of the head; what follows is no HTTP
  append_head(101, headers,
              fmt::format("Upgrade: websocket\r\nConnection: Upgrade\r\n"
                          "Sec-WebSocket-Accept: {}\r\n",
                          websocket_accept(websocket_key_)));
  reply_.keep_alive = false;
  const WebSocketReader::Options options{.message_bytes_max = socket.message_bytes_max};
  websocket_ = std::make_unique<WebSocketState>(
      WebSocketState{.reader = WebSocketReader(options),
                     .socket = std::move(socket),
                     .message_at = std::chrono::steady_clock::now()});
  schedule_flush();
  // A client may speak before it has our answer; the handler is still at work on this turn.
  loop_->post([self = shared_from_this()] {
    if (self->phase_ == Phase::kAnswering) self->on_websocket_bytes(self->reader_.take_unread());
  });
}

void Connection::on_websocket_bytes(std::string_view bytes) {
  using Event = WebSocketReader::Event;
  if (!reply_.open) return wait_readable();  // all is said
  const std::shared_ptr<Connection> alive = shared_from_this();
  WebSocketReader& reader = websocket_->reader;
  websocket_->heard = true;
  reader.append(bytes);
  // The handler may close us; after that nothing is read.
  for (Event event = reader.advance(); event != Event::kNone && reply_.open;
       event = reader.advance()) {
    switch (event) {
      case Event::kText:
        if (queue_.bytes() > kUnreadBytesMax) {
          leave_websocket({kClosePolicy, "answers are not being read"});
          break;
        }
        websocket_->message_at = std::chrono::steady_clock::now();
        websocket_->socket.on_message(std::move(reader.payload()));
        break;
      case Event::kPing:
        on_ping(reader.payload());
        break;
      case Event::kClose:
        leave_websocket({reader.close().code, {}});
        break;
      case Event::kBad:
        leave_websocket(reader.close());
        break;
      case Event::kPong:
      case Event::kNone:
        break;
    }
  }
  if (phase_ == Phase::kClosed) return;
  if (reply_.open && !hold_bytes(reader.held_bytes())) {
    leave_websocket({kCloseTryLater, "too many large messages are being read just now"});
  }
  if (!reply_.open) {
    reader.stop();
    hold_bytes(0);
  }
  wait_readable();
}

// Pings that come faster than pongs can be sent get one for all.
void Connection::on_ping(std::string_view payload) {
  if (std::exchange(websocket_->pong_queued, true)) return;
  send_frame(WebSocketOpcode::kPong, payload);
}

void Connection::send_frame(WebSocketOpcode opcode, std::string_view payload) {
  std::string frame;
  frame.reserve(payload.size() + 10);
  append_websocket_frame(frame, opcode, payload);
  queue_.push(std::move(frame));
  schedule_flush();
}

void Connection::finish_websocket(uint64_t id, const WebSocketClose& close) {
  if (is_over(id)) return;
  reply_.open = false;
  std::string frame;
  append_websocket_close(frame, close);
  queue_.push(std::move(frame));
  schedule_flush();
}

void Connection::ping(uint64_t id) {
  if (is_over(id) || websocket_ == nullptr || !queue_.empty()) return;
  send_frame(WebSocketOpcode::kPing, {});
}

// The client's doing: whoever holds the exchange hears of it.
void Connection::leave_websocket(const WebSocketClose& close) {
  const std::function<void()> closed = std::move(reply_.closed);
  finish_websocket(exchange_id_, close);
  if (closed) closed();
}

// Who has yet to take what was said before could not have heard a ping behind it; whether it takes
// any is looked at elsewhere.
void Connection::on_ping_time() {
  if (!queue_.empty() || taken_by_peer(stream_.socket().native_handle(), sent_bytes_).untaken > 0) {
    return set_deadline(Deadline::kPing, server_->options.websocket_ping_time);
  }
  if (!std::exchange(websocket_->heard, false)) return close_now();
  const auto quiet = std::chrono::steady_clock::now() - websocket_->message_at;
  if (quiet >= server_->options.websocket_idle_time_max) {
    return leave_websocket({kCloseGoingAway, "no message in a long time"});
  }
  send_frame(WebSocketOpcode::kPing, {});
}

}  // namespace pelton::net
