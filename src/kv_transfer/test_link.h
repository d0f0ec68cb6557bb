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
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace pelton::kv_transfer {

// Passes bytes on between whoever connects and a port, as `spoils` says: it is called with the
// number of the first byte of a piece towards the receiver, and may change the piece; false: cut.
class Proxy {
 public:
  using Spoils = std::function<bool(size_t at, std::string& piece)>;
  Proxy(int to, Spoils spoils) : to_(to), spoils_(std::move(spoils)) {
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
        piece.resize(4096);
        const ssize_t came = ::recv(waiting[from].fd, piece.data(), piece.size(), 0);
        if (came <= 0) return;
        piece.resize(static_cast<size_t>(came));
        const size_t begin = at;
        if (from == 1) at += piece.size();
        if (from == 1 && !spoils_(begin, piece)) return;
        (void)!::send(waiting[1 - from].fd, piece.data(), piece.size(), MSG_NOSIGNAL);
      }
    }
  }

  const int to_;
  const Spoils spoils_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace pelton::kv_transfer
