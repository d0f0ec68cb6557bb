#include "net/websocket.h"

#include <algorithm>
#include <utility>

#include "base/base64.h"
#include "base/digest.h"
#include "base/utf8.h"

namespace pelton::net {
namespace {

constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string bytes_of_hex(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1]));
  }
  return bytes;
}

// 16 bytes in base64.
bool is_key(std::string_view key) {
  return key.size() == 24 && key.ends_with("==") &&
         key.substr(0, 22).find_first_not_of(kBase64) == std::string_view::npos;
}

bool may_be_sent(int code) {
  return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) ||
         (code >= 3000 && code <= 4999);
}

uint64_t big_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char c : bytes) value = value << 8 | static_cast<uint8_t>(c);
  return value;
}

}  // namespace

std::optional<HttpReject> check_websocket_request(const HttpRequest& request) {
  const HttpHeaders& headers = request.headers;
  const auto bad = [](std::string message) {
    return HttpReject{400, "bad_websocket_handshake", std::move(message)};
  };
  if (request.method != "GET") return bad("a WebSocket handshake is a GET");
  if (!header_list_contains(headers.get("Upgrade"), "websocket") ||
      !header_list_contains(headers.get("Connection"), "upgrade")) {
    return bad("a WebSocket handshake has 'Upgrade: websocket' and 'Connection: Upgrade'");
  }
  if (headers.get("Sec-WebSocket-Version") != "13") {
    return HttpReject{426, "websocket_version", "the WebSocket version must be 13"};
  }
  if (!is_key(headers.get("Sec-WebSocket-Key"))) {
    return bad("'Sec-WebSocket-Key' must be 16 bytes in base64");
  }
  return std::nullopt;
}

std::string websocket_accept(std::string_view key) {
  base::Digest digest(base::Digest::Kind::kSha1);
  digest.update(key);
  digest.update("258EAFA5-E914-47DA-95CA-C5AB0DC85B11");  // RFC 6455, 1.3
  return base::base64(bytes_of_hex(digest.finish()));
}

void append_websocket_frame(std::string& out, WebSocketOpcode opcode, std::string_view payload) {
  const auto add_big_endian = [&](uint64_t value, int bytes) {
    for (int i = bytes - 1; i >= 0; --i) out += static_cast<char>(value >> (8 * i) & 0xFF);
  };
  out += static_cast<char>(0x80 | static_cast<uint8_t>(opcode));
  if (payload.size() < 126) {
    out += static_cast<char>(payload.size());
  } else if (payload.size() <= 0xFFFF) {
    out += static_cast<char>(126);
    add_big_endian(payload.size(), 2);
  } else {
    out += static_cast<char>(127);
    add_big_endian(payload.size(), 8);
  }
  out += payload;
}

void append_websocket_close(std::string& out, const WebSocketClose& close) {
  std::string payload;
  payload += static_cast<char>(close.code >> 8);
  payload += static_cast<char>(close.code & 0xFF);
  payload += std::string_view(close.reason).substr(0, 123);
  append_websocket_frame(out, WebSocketOpcode::kClose, payload);
}

void WebSocketReader::append(std::string_view bytes) {
  if (state_ == State::kOver) return;
  buffer_.erase(0, consumed_);
  consumed_ = 0;
  buffer_ += bytes;
}

WebSocketReader::Event WebSocketReader::fail(int code, std::string reason) {
  stop();
  close_ = {code, std::move(reason)};
  return Event::kBad;
}

void WebSocketReader::stop() {
  state_ = State::kOver;
  std::string().swap(buffer_);
  std::string().swap(message_);
  consumed_ = 0;
}

WebSocketReader::Event WebSocketReader::advance() {
  while (state_ != State::kOver) {
    const std::optional<Event> event = state_ == State::kHead ? read_head() : read_payload();
    if (event) return *event;
  }
  return Event::kNone;
}

std::optional<WebSocketReader::Event> WebSocketReader::read_head() {
  const std::string_view bytes = unread();
  if (bytes.size() < 2) return Event::kNone;
  const auto first = static_cast<uint8_t>(bytes[0]);
  const auto second = static_cast<uint8_t>(bytes[1]);
  const auto opcode = static_cast<uint8_t>(first & 0x0F);
  if ((first & 0x70) != 0) return fail(kCloseProtocolError, "a reserved bit is set");
  if ((opcode > 2 && opcode < 8) || opcode > 10) {
    return fail(kCloseProtocolError, "an unknown opcode");
  }
  const bool is_masked = (second & 0x80) != 0;
  if (is_masked == options_.of_server) {
    return fail(kCloseProtocolError, is_masked ? "a server's frames must not be masked"
                                               : "a client's frames must be masked");
  }
  const size_t length_bytes = (second & 0x7F) == 127 ? 8 : (second & 0x7F) == 126 ? 2 : 0;
  const size_t mask_bytes = is_masked ? 4 : 0;
  const size_t head_bytes = 2 + length_bytes + mask_bytes;
  if (bytes.size() < head_bytes) return Event::kNone;
  uint64_t length = second & 0x7F;
  if (length_bytes > 0) length = big_endian(bytes.substr(2, length_bytes));
  const bool minimal = length_bytes == 0 || (length_bytes == 2 ? length > 125 : length > 0xFFFF);
  if (!minimal) return fail(kCloseProtocolError, "a length in too many bytes");
  frame_ = {
      .last = (first & 0x80) != 0, .opcode = static_cast<WebSocketOpcode>(opcode), .left = length};
  const std::string_view mask = bytes.substr(2 + length_bytes, mask_bytes);
  std::copy(mask.begin(), mask.end(), frame_.mask.begin());
  consumed_ += head_bytes;
  state_ = State::kPayload;
  return check_frame(length);
}

// All that a frame's head says; nothing of its payload has been kept yet.
std::optional<WebSocketReader::Event> WebSocketReader::check_frame(uint64_t length) {
  if (frame_.control()) {
    if (!frame_.last) return fail(kCloseProtocolError, "a control frame in pieces");
    if (length > 125) return fail(kCloseProtocolError, "a control frame of more than 125 bytes");
    return std::nullopt;
  }
  const bool goes_on = frame_.opcode == WebSocketOpcode::kContinuation;
  if (goes_on != in_message_) {
    return fail(kCloseProtocolError,
                goes_on ? "a continuation of nothing" : "a message begins inside another");
  }
  if (frame_.opcode == WebSocketOpcode::kBinary) {
    return fail(kCloseUnsupportedData, "messages must be text");
  }
  in_message_ = true;
  if (++frames_ > kFramesMax) return fail(kClosePolicy, "a message in too many frames");
  // The difference, as the sum might overflow.
  if (length > options_.message_bytes_max - message_.size()) {
    return fail(kCloseTooBig,
                "a message of more than " + std::to_string(options_.message_bytes_max) + " bytes");
  }
  return std::nullopt;
}

std::optional<WebSocketReader::Event> WebSocketReader::read_payload() {
  const std::string_view bytes = unread();
  const size_t count = static_cast<size_t>(std::min<uint64_t>(bytes.size(), frame_.left));
  std::string& to = frame_.control() ? control_ : message_;
  const size_t from = to.size();
  to += bytes.substr(0, count);
  for (size_t i = 0; i < count; ++i) to[from + i] ^= frame_.mask[(frame_.mask_at + i) & 3];
  frame_.mask_at += count;
  frame_.left -= count;
  consumed_ += count;
  if (frame_.left > 0) return Event::kNone;
  state_ = State::kHead;
  return end_frame();
}

std::optional<WebSocketReader::Event> WebSocketReader::end_frame() {
  if (frame_.control()) {
    payload_ = std::exchange(control_, {});
    if (frame_.opcode == WebSocketOpcode::kPing) return Event::kPing;
    return frame_.opcode == WebSocketOpcode::kPong ? Event::kPong : end_close();
  }
  if (!frame_.last) return std::nullopt;
  in_message_ = false;
  frames_ = 0;
  if (!base::is_valid_utf8(message_)) return fail(kCloseBadPayload, "a text that is not UTF-8");
  payload_ = std::exchange(message_, {});
  return Event::kText;
}

WebSocketReader::Event WebSocketReader::end_close() {
  WebSocketClose said;
  if (payload_.size() == 1) return fail(kCloseProtocolError, "half a close code");
  if (payload_.size() >= 2) {
    said.code = static_cast<int>(big_endian(std::string_view(payload_).substr(0, 2)));
    said.reason = payload_.substr(2);
    if (!may_be_sent(said.code)) return fail(kCloseProtocolError, "a bad close code");
    if (!base::is_valid_utf8(said.reason)) {
      return fail(kCloseBadPayload, "a reason that is not UTF-8");
    }
  }
  state_ = State::kOver;
  close_ = std::move(said);
  return Event::kClose;
}

}  // namespace pelton::net
