#include "parallel/channel.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace pelton::parallel {
namespace {

constexpr int64_t kForever = -1;

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Error gone(const char* what) {
  return Error{ErrorCode::kUnavailable,
               fmt::format("the other rank has gone: {}: {}", what, std::strerror(errno))};
}

}  // namespace

Result<std::pair<Channel, Channel>> Channel::make_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0) {
    return std::pair(Channel(ends[0]), Channel(ends[1]));
  }
  return Error{ErrorCode::kIo, fmt::format("socketpair: {}", std::strerror(errno))};
}

Channel& Channel::operator=(Channel&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Channel::~Channel() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<void> Channel::send(std::string_view message) {
  if (message.size() > kBytesMax) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("a message of {} bytes to a rank", message.size())};
  }
  std::string framed;
  framed.reserve(sizeof(uint32_t) + message.size());
  const auto size = static_cast<uint32_t>(message.size());
  framed.append(reinterpret_cast<const char*>(&size), sizeof size);
  framed.append(message);
  for (std::string_view rest = framed; !rest.empty();) {
    const ssize_t sent = ::send(descriptor_, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return gone("send");
    rest.remove_prefix(static_cast<size_t>(sent));
  }
  return {};
}

Result<size_t> Channel::read(char* to, size_t size, int64_t end_ms) {
  size_t done = 0;
  while (done < size) {
    if (end_ms != kForever) {
      pollfd wanted{.fd = descriptor_, .events = POLLIN, .revents = 0};
      const int64_t left = std::max<int64_t>(end_ms - now_ms(), 0);
      const int ready = ::poll(&wanted, 1, static_cast<int>(std::min<int64_t>(left, 1000)));
      if (ready < 0 && errno != EINTR) return gone("poll");
      if (ready <= 0) {
        if (left > 0) continue;
        return Error{ErrorCode::kDeadline, "the other rank has not answered in time"};
      }
    }
    const ssize_t got = ::recv(descriptor_, to + done, size - done, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno != ECONNRESET) return gone("recv");
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

Result<std::optional<std::string>> Channel::receive(int64_t timeout_ms) {
  const int64_t end_ms = timeout_ms < 0 ? kForever : now_ms() + timeout_ms;
  uint32_t size = 0;
  TRY_ASSIGN(const size_t head, read(reinterpret_cast<char*>(&size), sizeof size, end_ms));
  if (head == 0) return std::optional<std::string>();
  if (head == sizeof size && size > kBytesMax) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("a message of {} bytes", size)};
  }
  std::string message(head == sizeof size ? size : 0, '\0');
  TRY_ASSIGN(const size_t body, read(message.data(), message.size(), end_ms));
  if (head == sizeof size && body == message.size()) return std::optional(std::move(message));
  return Error{ErrorCode::kUnavailable, "the other rank has gone in the middle of a message"};
}

void Channel::shut() {
  ::shutdown(descriptor_, SHUT_RDWR);
}

}  // namespace pelton::parallel
