// A plain blocking TCP client for tests: what a well-behaved library would not let us send.
// One test's, on its thread.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"

namespace pelton::net {

class TestSocket {
 public:
  explicit TestSocket(int port) : TestSocket(port, 0) {}
  // A small receive buffer makes a slow reader's backlog show early.
  TestSocket(int port, int receive_bytes) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    CHECK(fd_ >= 0);
    if (receive_bytes > 0) {
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
    }
    const int one = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~TestSocket() { close(); }
  TestSocket(const TestSocket&) = delete;
  TestSocket& operator=(const TestSocket&) = delete;

  // As long as what is sure to come may take on a busy machine.
  static constexpr int kPatienceMs = 20'000;

  bool connected() const { return connected_; }
  int descriptor() const { return fd_; }
  int fd() const { return fd_; }

  // Stops quietly when the peer has closed: the test then looks at what came back.
  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  void half_close() { ::shutdown(fd_, SHUT_WR); }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  // Closes with a RST instead of a FIN.
  void reset() {
    const linger now{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close();
  }

  // What has come once `part` is in it, or the peer closed, or time is up.
  std::string read_until(std::string_view part, int limit_ms = kPatienceMs) {
    std::string got = std::exchange(kept_, {});
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
    while (got.find(part) == std::string::npos && read_some(got, end)) {
    }
    return got;
  }
  // All until the peer closes, or time is up.
  std::string read_all(int limit_ms = kPatienceMs) {
    std::string got = std::exchange(kept_, {});
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
    while (read_some(got, end)) {
    }
    return got;
  }
  // What comes next, if only a byte; nothing when the peer has closed or time is up.
  std::string read_some_bytes(int limit_ms) {
    std::string got = std::exchange(kept_, {});
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
    if (got.empty()) read_some(got, end);
    return got;
  }
  // One whole response with a Content-Length or a chunked body (as it stands on the wire).
  std::string read_response(int limit_ms = kPatienceMs) {
    std::string got = read_until("\r\n\r\n", limit_ms);
    const size_t head = got.find("\r\n\r\n");
    if (head == std::string::npos) return got;
    size_t end = head + 4;
    const size_t length = got.find("Content-Length: ");
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
    if (length < head) {
      end += std::stoul(got.substr(length + 16));
      while (got.size() < end && read_some(got, deadline)) {
      }
    } else if (got.find("Transfer-Encoding: chunked") < head) {
      size_t last = 0;
      while ((last = got.find("0\r\n\r\n", head + 4)) == std::string::npos &&
             read_some(got, deadline)) {
      }
      end = last == std::string::npos ? got.size() : last + 5;
    }
    if (got.size() > end) {
      kept_ = got.substr(end);
      got.resize(end);
    }
    return got;
  }
  // True once the peer has closed (or reset), within the limit; what comes before is thrown away.
  bool wait_closed(int limit_ms = kPatienceMs) {
    std::string ignored;
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
    while (read_some(ignored, end)) ignored.clear();
    return closed_;
  }
  bool closed_by_peer() const { return closed_; }

 private:
  bool read_some(std::string& got, std::chrono::steady_clock::time_point end) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd ready{fd_, POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(left.count())) <= 0) return false;
    char bytes[16 * 1024];
    const ssize_t count = ::recv(fd_, bytes, sizeof(bytes), 0);
    if (count <= 0) {
      closed_ = true;
      return false;
    }
    got.append(bytes, static_cast<size_t>(count));
    return true;
  }

  int fd_;
  bool connected_ = false;
  bool closed_ = false;
  std::string kept_;
};

}  // namespace pelton::net
