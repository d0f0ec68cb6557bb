// For tests: a plain blocking WebSocket client, and frames that a well-behaved one would not send.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "net/test_socket.h"
#include "net/websocket.h"

namespace pelton::net {

struct ClientFrame {
  bool last = true;
};

// A masked frame, the mask all zero bytes but one.
inline std::string client_frame(WebSocketOpcode opcode, std::string_view payload,
                                const ClientFrame& how = {}) {
  std::string frame;
  append_websocket_frame(frame, opcode, payload);
  if (!how.last) frame[0] = static_cast<char>(frame[0] & 0x7F);
  frame[1] = static_cast<char>(frame[1] | 0x80);
  const size_t head = frame.size() - payload.size();
  for (size_t i = head; i < frame.size(); ++i) frame[i] ^= (i - head) % 4 == 1 ? 0x55 : 0;
  frame.insert(head, std::string("\0\x55\0\0", 4));
  return frame;
}

class TestWebSocket {
 public:
  struct Frame {
    WebSocketOpcode opcode = WebSocketOpcode::kClose;
    std::string payload;
    int close_code() const {
      if (opcode != WebSocketOpcode::kClose || payload.size() < 2) return -1;
      return static_cast<uint8_t>(payload[0]) << 8 | static_cast<uint8_t>(payload[1]);
    }
  };

  TestWebSocket(int port, const std::string& path, const std::string& headers = "")
      : socket_(port) {
    socket_.send("GET " + path +
                 " HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                 "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" +
                 headers + "\r\n");
    head_ = socket_.read_until("\r\n\r\n");
    const size_t end = head_.find("\r\n\r\n");
    if (end == std::string::npos) return;
    bytes_ = head_.substr(end + 4);
    head_.resize(end + 4);
  }

  bool open() const { return head_.starts_with("HTTP/1.1 101 "); }
  const std::string& head() const { return head_; }

  void raw(std::string_view bytes) { socket_.send(bytes); }
  void send(WebSocketOpcode opcode, std::string_view payload) {
    raw(client_frame(opcode, payload));
  }
  void text(std::string_view message) { send(WebSocketOpcode::kText, message); }

  // The next frame; a close without a code if the peer has gone.
  Frame read(int limit_ms = TestSocket::kPatienceMs) {
    if (!fill(2, limit_ms)) return {};
    const auto length = static_cast<uint8_t>(bytes_[1]) & 0x7F;
    const size_t extra = length == 127 ? 8 : length == 126 ? 2 : 0;
    if (!fill(2 + extra, limit_ms)) return {};
    size_t size = static_cast<size_t>(length);
    if (extra > 0) {
      size = 0;
      for (size_t i = 0; i < extra; ++i) size = size << 8 | static_cast<uint8_t>(bytes_[2 + i]);
    }
    if (!fill(2 + extra + size, limit_ms)) return {};
    Frame frame{.opcode = static_cast<WebSocketOpcode>(bytes_[0] & 0x0F),
                .payload = bytes_.substr(2 + extra, size)};
    bytes_.erase(0, 2 + extra + size);
    return frame;
  }
  bool wait_closed(int limit_ms = TestSocket::kPatienceMs) { return socket_.wait_closed(limit_ms); }

 private:
  bool fill(size_t size, int limit_ms) {
    while (bytes_.size() < size) {
      const std::string more = socket_.read_some_bytes(limit_ms);
      if (more.empty()) return false;
      bytes_ += more;
    }
    return true;
  }

  TestSocket socket_;
  std::string head_;
  std::string bytes_;
};

}  // namespace pelton::net
