// HTTP/2 as bytes, for tests: frames that no well-behaved library would send, and what came back,
// frame by frame. One test's, on its thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nghttp2/nghttp2.h>

#include "base/check.h"
#include "net/http2_session.h"
#include "net/test_socket.h"

namespace pelton::net {

inline std::string http2_number(uint32_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) text += static_cast<char>(value >> (8 * i) & 0xFF);
  return text;
}

inline std::string http2_frame(uint8_t type, uint8_t flags, uint32_t stream,
                               std::string_view payload = {}) {
  std::string frame = http2_number(static_cast<uint32_t>(payload.size()), 3);
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  return frame + http2_number(stream, 4) + std::string(payload);
}

// HPACK: a literal that is not indexed.
inline std::string http2_field(std::string_view name, std::string_view value) {
  CHECK(name.size() < 127 && value.size() < 127);
  std::string field(1, '\0');
  field += static_cast<char>(name.size());
  field += name;
  field += static_cast<char>(value.size());
  return field + std::string(value);
}

inline std::string http2_head(std::string_view method, std::string_view path,
                              std::string_view more = {}) {
  return http2_field(":method", method) + http2_field(":scheme", "http") +
         http2_field(":path", path) + http2_field(":authority", "a") + std::string(more);
}

// HEADERS with END_HEADERS, and END_STREAM if nothing follows.
inline std::string http2_get(uint32_t stream, std::string_view path, std::string_view more = {}) {
  return http2_frame(NGHTTP2_HEADERS, 5, stream, http2_head("GET", path, more));
}
inline std::string http2_post(uint32_t stream, std::string_view path, std::string_view more = {}) {
  return http2_frame(NGHTTP2_HEADERS, 4, stream, http2_head("POST", path, more));
}
inline std::string http2_data(uint32_t stream, std::string_view bytes, bool ends = true) {
  return http2_frame(NGHTTP2_DATA, ends ? 1 : 0, stream, bytes);
}

class TestHttp2 {
 public:
  struct Answer {
    std::map<std::string, std::string> headers;
    std::string body;
    bool has_ended = false;
    int reset = -1;  // its code
  };

  explicit TestHttp2(int port, std::string_view settings = {}) : socket_(port) {
    CHECK(nghttp2_hd_inflate_new(&inflater_) == 0);
    socket_.send(std::string(Http2Session::kPreface) +
                 http2_frame(NGHTTP2_SETTINGS, 0, 0, settings));
  }
  ~TestHttp2() { nghttp2_hd_inflate_del(inflater_); }
  TestHttp2(const TestHttp2&) = delete;
  TestHttp2& operator=(const TestHttp2&) = delete;

  TestSocket& socket() { return socket_; }
  void send(std::string_view bytes) { socket_.send(bytes); }
  // The code of the peer's GOAWAY; -1: none came.
  int goaway() const { return goaway_; }
  const Answer& of(uint32_t stream) { return answers_[stream]; }

  // Reads until it holds, the peer has closed or time is up; the last time it was asked.
  template <typename Condition>
  bool read_until(const Condition& condition, int limit_ms = 5'000) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
    while (!condition()) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          end - std::chrono::steady_clock::now());
      if (left.count() <= 0) return false;
      const std::string got = socket_.read_some_bytes(static_cast<int>(left.count()));
      if (got.empty()) return condition();
      take(got);
    }
    return true;
  }
  const Answer& answer(uint32_t stream) {
    read_until([&] { return answers_[stream].has_ended || answers_[stream].reset >= 0; });
    return answers_[stream];
  }
  int wait_for_goaway() {
    read_until([&] { return goaway_ >= 0; });
    return goaway_;
  }

 private:
  void take(std::string_view bytes) {
    unread_ += bytes;
    while (unread_.size() >= 9) {
      const auto byte = [&](size_t at) { return static_cast<uint8_t>(unread_[at]); };
      const size_t length = size_t{byte(0)} << 16 | size_t{byte(1)} << 8 | byte(2);
      if (unread_.size() < 9 + length) return;
      const uint32_t stream =
          uint32_t{byte(5)} << 24 | uint32_t{byte(6)} << 16 | uint32_t{byte(7)} << 8 | byte(8);
      take_frame(byte(3), byte(4), stream, unread_.substr(9, length));
      unread_.erase(0, 9 + length);
    }
  }
  void take_frame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload) {
    const auto number = [&](size_t at) {
      uint32_t value = 0;
      for (size_t i = at; i < at + 4; ++i) value = value << 8 | static_cast<uint8_t>(payload[i]);
      return static_cast<int>(value);
    };
    Answer& answer = answers_[stream];
    if (type == NGHTTP2_HEADERS) inflate(payload, answer.headers);
    if (type == NGHTTP2_DATA) answer.body += payload;
    if (type == NGHTTP2_HEADERS || type == NGHTTP2_DATA) answer.has_ended |= (flags & 1) != 0;
    if (type == NGHTTP2_RST_STREAM) answer.reset = number(0);
    if (type == NGHTTP2_GOAWAY) goaway_ = number(4);
    if (type == NGHTTP2_SETTINGS && (flags & 1) == 0) send(http2_frame(NGHTTP2_SETTINGS, 1, 0));
  }
  void inflate(const std::string& block, std::map<std::string, std::string>& headers) {
    const auto* at = reinterpret_cast<const uint8_t*>(block.data());
    size_t left = block.size();
    while (true) {
      nghttp2_nv pair{};
      int flags = 0;
      const ssize_t used = nghttp2_hd_inflate_hd2(inflater_, &pair, &flags, at, left, 1);
      CHECK(used >= 0);
      at += used;
      left -= static_cast<size_t>(used);
      if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0) {
        headers[std::string(reinterpret_cast<char*>(pair.name), pair.namelen)] =
            std::string(reinterpret_cast<char*>(pair.value), pair.valuelen);
      }
      if ((flags & NGHTTP2_HD_INFLATE_FINAL) != 0) break;
      if ((flags & NGHTTP2_HD_INFLATE_EMIT) == 0 && left == 0) break;
    }
    nghttp2_hd_inflate_end_headers(inflater_);
  }

  TestSocket socket_;
  nghttp2_hd_inflater* inflater_ = nullptr;
  std::string unread_;
  std::map<uint32_t, Answer> answers_;
  int goaway_ = -1;
};

}  // namespace pelton::net
