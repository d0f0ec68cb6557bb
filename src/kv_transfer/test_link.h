// A link between two exchanges that cuts it or changes what it carries. Tests only.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace pelton::kv_transfer {

// Passes bytes on between whoever connects and a port, as `spoils` says: it is called with the
// number of the first byte of a piece towards the receiver, and may change the piece; false: cut
// behind it. One connection at a time.
class Proxy {
 public:
  using Spoils = std::function<bool(size_t at, std::string& piece)>;
  Proxy(int to, Spoils spoils, size_t piece_max = 4096)
      : to_(to), spoils_(std::move(spoils)), piece_max_(piece_max) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof place;
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&place), size), 0);
    EXPECT_EQ(::listen(listener_, 8), 0);
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&place), &size), 0);
    port_ = ntohs(place.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~Proxy() {
    stopping_ = true;
    thread_.join();
    ::close(listener_);
  }
  int port() const { return port_; }

 private:
  void run() {
    while (!stopping_) {
      pollfd waiting{.fd = listener_, .events = POLLIN, .revents = 0};
      if (::poll(&waiting, 1, 5) <= 0) continue;
      const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in place{};
      place.sin_family = AF_INET;
      place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      place.sin_port = htons(static_cast<uint16_t>(to_));
      EXPECT_EQ(::connect(server, reinterpret_cast<sockaddr*>(&place), sizeof place), 0);
      const int on = 1;
      for (const int one : {client, server}) {
        (void)::setsockopt(one, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      }
      const linger at_once{.l_onoff = 1, .l_linger = 0};  // its port is free for the next
      (void)::setsockopt(server, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
      pass(client, server);
      ::close(client);
      ::close(server);
    }
  }
  void pass(int client, int server) {
    std::string piece;
    size_t at = 0;
    while (!stopping_) {
      pollfd waiting[] = {{.fd = client, .events = POLLIN, .revents = 0},
                          {.fd = server, .events = POLLIN, .revents = 0}};
      if (::poll(waiting, 2, 5) <= 0) continue;
      for (int from = 0; from < 2; ++from) {
        if ((waiting[from].revents & (POLLIN | POLLHUP)) == 0) continue;
        piece.resize(piece_max_);
        const ssize_t came = ::recv(waiting[from].fd, piece.data(), piece.size(), 0);
        if (came <= 0) return;
        piece.resize(static_cast<size_t>(came));
        const size_t begin = at;
        if (from == 1) at += piece.size();
        const bool goes_on = from == 0 || spoils_(begin, piece);
        (void)!::send(waiting[1 - from].fd, piece.data(), piece.size(), MSG_NOSIGNAL);
        if (!goes_on) return;
      }
    }
  }

  const int to_;
  const Spoils spoils_;
  const size_t piece_max_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace pelton::kv_transfer
