// WebSocket (RFC 6455) without sockets: the handshake, frames written, and a peer's bytes read as
// messages. Strict: what the RFC forbids ends the connection with the code it names. No extensions,
// so nothing is ever decompressed.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "net/http_message.h"

namespace pelton::net {

// Nothing if the request may become a WebSocket; 426 for another version of the protocol, otherwise
// 400.
std::optional<HttpReject> check_websocket_request(const HttpRequest& request);
// "Sec-WebSocket-Accept" for a "Sec-WebSocket-Key".
std::string websocket_accept(std::string_view key);

enum class WebSocketOpcode : uint8_t {
  kContinuation = 0,
  kText = 1,
  kBinary = 2,
  kClose = 8,
  kPing = 9,
  kPong = 10,
};

// What a side says when it closes. `reason`: at most 123 bytes of UTF-8.
struct WebSocketClose {
  int code = 1000;
  std::string reason;
};
inline constexpr int kCloseNormal = 1000;
inline constexpr int kCloseGoingAway = 1001;
inline constexpr int kCloseProtocolError = 1002;
inline constexpr int kCloseUnsupportedData = 1003;
inline constexpr int kCloseBadPayload = 1007;
inline constexpr int kClosePolicy = 1008;
inline constexpr int kCloseTooBig = 1009;
inline constexpr int kCloseInternalError = 1011;
inline constexpr int kCloseTryLater = 1013;

// One whole unmasked frame, as a server sends it.
void append_websocket_frame(std::string& out, WebSocketOpcode opcode, std::string_view payload);
void append_websocket_close(std::string& out, const WebSocketClose& close);

// A client's bytes, or a server's, in pieces of any size, as messages. Owned by one connection.
// Memory is bounded by the limit and what one append() brings.
class WebSocketReader {
 public:
  enum class Event {
    kNone,  // more bytes are needed
    kText,  // payload() is a whole message, valid UTF-8
    kPing,  // payload() is to be sent back
    kPong,
    kClose,  // close() is what the peer said; nothing more is read
    kBad,    // close() is what to say; nothing more is read
  };

  struct Options {
    size_t message_bytes_max = size_t{32} << 20;
    bool of_server = false;  // its frames are never masked, a client's always
  };
  // A message in more frames than this is no message but an attack.
  static constexpr int kFramesMax = 4096;

  explicit WebSocketReader(const Options& options) : options_(options) {}

  void append(std::string_view bytes);
  Event advance();

  std::string& payload() { return payload_; }  // of the last event; may be moved out
  const WebSocketClose& close() const { return close_; }

  // What messages that are not whole yet take up.
  size_t held_bytes() const { return buffer_.size() - consumed_ + message_.capacity(); }
  // Nothing more is read.
  void stop();

 private:
  enum class State { kHead, kPayload, kOver };

  struct Frame {
    bool last = false;
    WebSocketOpcode opcode = WebSocketOpcode::kText;
    uint64_t left = 0;  // of its payload
    std::array<char, 4> mask{};
    size_t mask_at = 0;
    bool control() const { return opcode >= WebSocketOpcode::kClose; }
  };

  std::string_view unread() const { return std::string_view(buffer_).substr(consumed_); }
  std::optional<Event> read_head();
  std::optional<Event> check_frame(uint64_t length);
  std::optional<Event> read_payload();
  std::optional<Event> end_frame();
  Event end_close();
  Event fail(int code, std::string reason);

  const Options options_;
  State state_ = State::kHead;
  std::string buffer_;
  size_t consumed_ = 0;
  Frame frame_;
  bool in_message_ = false;
  int frames_ = 0;
  std::string message_;  // frames of it so far
  std::string control_;  // of the control frame
  std::string payload_;
  WebSocketClose close_;
};

}  // namespace pelton::net
