#include "parallel/sockets.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace pelton::parallel {
namespace {

constexpr int kLookMs = 50;  // between looks at `stopped`

Error unavailable(std::string what) {
  return Error{ErrorCode::kUnavailable, std::move(what)};
}

std::string text_of(const sockaddr_in& address) {
  char text[INET_ADDRSTRLEN] = {};
  ::inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
  return text;
}

using NameOf = int (*)(int, sockaddr*, socklen_t*);

std::string host_by(NameOf name_of, int socket) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  if (name_of(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "?";
  return text_of(address);
}

}  // namespace

std::string Place::text() const {
  return fmt::format("{}:{}", host, port);
}

int64_t monotonic_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

Result<sockaddr_in> resolve(const Place& place) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failure = ::getaddrinfo(place.host.c_str(), nullptr, &hints, &found);
  if (failure != 0 || found == nullptr) {
    return Error{ErrorCode::kBadConfig,
                 fmt::format("{}: no IPv4 address: {}", place.host, ::gai_strerror(failure))};
  }
  sockaddr_in address{};
  std::memcpy(&address, found->ai_addr, sizeof address);
  ::freeaddrinfo(found);
  address.sin_port = htons(static_cast<uint16_t>(place.port));
  return address;
}

Result<std::pair<int, int>> listen_at(const Place& place) {
  TRY_ASSIGN(sockaddr_in address, resolve(place));
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  socklen_t size = sizeof address;
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  // A group that starts anew finds its port free at once.
  if (socket >= 0 && ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
      ::bind(socket, at, size) == 0 && ::listen(socket, SOMAXCONN) == 0 &&
      ::getsockname(socket, at, &size) == 0) {
    return std::pair(socket, static_cast<int>(ntohs(address.sin_port)));
  }
  const Error error{ErrorCode::kIo,
                    fmt::format("ranks: listen at {}: {}", place.text(), std::strerror(errno))};
  if (socket >= 0) ::close(socket);
  return error;
}

Result<int> connect_once(const sockaddr_in& address, int64_t end_ns,
                         const std::function<bool()>& stopped) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return unavailable(std::strerror(errno));
  const auto failed = [socket](const char* why) {
    ::close(socket);
    return unavailable(why);
  };
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno != EINPROGRESS) return failed(std::strerror(errno));
    pollfd wanted{.fd = socket, .events = POLLOUT, .revents = 0};
    while (::poll(&wanted, 1, kLookMs) <= 0) {
      if (stopped()) return failed("stopped");
      if (monotonic_ns() >= end_ns) return failed("no answer in time");
    }
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return failed(std::strerror(error));
  }
  const int flags = ::fcntl(socket, F_GETFL);
  ::fcntl(socket, F_SETFL, flags & ~O_NONBLOCK);
  without_delay(socket);
  return socket;
}

Result<void> read_whole(int socket, char* to, size_t size, int64_t end_ns,
                        const std::function<bool()>& stopped) {
  for (size_t done = 0; done < size;) {
    if (stopped()) return unavailable("the group ends");
    if (monotonic_ns() >= end_ns) return unavailable("no handshake in time");
    pollfd wanted{.fd = socket, .events = POLLIN, .revents = 0};
    if (::poll(&wanted, 1, kLookMs) <= 0) continue;
    const ssize_t got = ::recv(socket, to + done, size - done, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got == 0) return unavailable("it has closed its connection in the handshake");
    if (got < 0) return unavailable(std::string(std::strerror(errno)) + " in the handshake");
    done += static_cast<size_t>(got);
  }
  return {};
}

bool send_whole(int socket, std::string_view bytes) {
  return ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

void without_delay(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::string peer_host(int socket) {
  return host_by(::getpeername, socket);
}

std::string own_host(int socket) {
  return host_by(::getsockname, socket);
}

}  // namespace pelton::parallel
