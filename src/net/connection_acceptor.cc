#include "net/connection_acceptor.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "net/url.h"

namespace pelton::net {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAcceptPause{100};  // out of descriptors: others must close first
constexpr milliseconds kMakingRoom{5};     // until the library has closed one that was shut down
constexpr std::chrono::seconds kWarningTime{10};  // between warnings

union Address {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
  sockaddr_storage storage;
};

Result<std::pair<Address, socklen_t>> parsed(const std::string& text, int port) {
  const std::string numeric = text == "localhost" ? "127.0.0.1" : text;
  Address address{};
  if (::inet_pton(AF_INET, numeric.c_str(), &address.v4.sin_addr) == 1) {
    address.v4.sin_family = AF_INET;
    address.v4.sin_port = htons(static_cast<uint16_t>(port));
    return std::pair(address, static_cast<socklen_t>(sizeof(address.v4)));
  }
  if (::inet_pton(AF_INET6, numeric.c_str(), &address.v6.sin6_addr) == 1) {
    address.v6.sin6_family = AF_INET6;
    address.v6.sin6_port = htons(static_cast<uint16_t>(port));
    return std::pair(address, static_cast<socklen_t>(sizeof(address.v6)));
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("'{}' is not an IPv4 or IPv6 address", text), "address"};
}

// As HTTP's listener shows it; an IPv4 client of an IPv6 socket by its own address.
std::string text_of(const Address& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.any.sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &address.v4.sin_addr, text.data(), text.size());
    return format_host_port(text.data(), ntohs(address.v4.sin_port));
  }
  const int port = ntohs(address.v6.sin6_port);
  if (IN6_IS_ADDR_V4MAPPED(&address.v6.sin6_addr)) {
    ::inet_ntop(AF_INET, &address.v6.sin6_addr.s6_addr[12], text.data(), text.size());
  } else {
    ::inet_ntop(AF_INET6, &address.v6.sin6_addr, text.data(), text.size());
  }
  return format_host_port(text.data(), port);
}

uint64_t inode_of(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 ? status.st_ino : 0;
}

void set_option(int socket, int level, int option) {
  const int on = 1;
  ::setsockopt(socket, level, option, &on, sizeof(on));
}

}  // namespace

ConnectionAcceptor::ConnectionAcceptor(const Options& options, base::Log& log)
    : options_(options), log_(log) {}

ConnectionAcceptor::~ConnectionAcceptor() {
  stop();
  if (listener_ >= 0) ::close(listener_);
  if (notifier_ >= 0) ::close(notifier_);
}

Result<void> ConnectionAcceptor::listen() {
  CHECK(listener_ < 0, "listen() is called once");
  TRY_ASSIGN(const auto where, parsed(options_.address, options_.port));
  const auto& [address, bytes] = where;
  notifier_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  listener_ = ::socket(address.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (notifier_ < 0 || listener_ < 0) {
    return Error{ErrorCode::kIo, fmt::format("no socket to listen with: {}", std::strerror(errno))};
  }
  set_option(listener_, SOL_SOCKET, SO_REUSEADDR);
  if (address.any.sa_family == AF_INET6) {
    // "::" means every address there is, as users expect.
    const int off = 0;
    ::setsockopt(listener_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  keep_little_unsent(listener_);
  if (::bind(listener_, &address.any, bytes) != 0 || ::listen(listener_, SOMAXCONN) != 0) {
    const std::string place = format_host_port(options_.address, options_.port);
    if (errno == EADDRINUSE) {
      return Error{ErrorCode::kAddressInUse,
                   fmt::format("{} is in use by another program; choose another port", place),
                   "port"};
    }
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("cannot listen on {}: {}", place, std::strerror(errno)), "address"};
  }
  Address bound{};
  socklen_t bound_bytes = sizeof(bound);
  ::getsockname(listener_, &bound.any, &bound_bytes);
  port_ = ntohs(bound.any.sa_family == AF_INET ? bound.v4.sin_port : bound.v6.sin6_port);
  return {};
}

Result<void> ConnectionAcceptor::start(Take take) {
  CHECK(listener_ >= 0 && !thread_.joinable(), "start() is called once, after listen()");
  take_ = std::move(take);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    return Error{ErrorCode::kUnavailable,
                 fmt::format("the system refuses a thread: {}", error.code().message())};
  }
  return {};
}

void ConnectionAcceptor::notify() const {
  const uint64_t one = 1;
  CHECK(::write(notifier_, &one, sizeof(one)) == sizeof(one), "the notifier is signalled");
}

void ConnectionAcceptor::stop_accepting() {
  accepting_ = false;
  notify();
}

void ConnectionAcceptor::stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  notify();
  thread_.join();
}

void ConnectionAcceptor::run() {
  pthread_setname_np(pthread_self(), "pelton-accept");
  const milliseconds look_time = options_.stall_time_max / PeerPatience::kLooks;
  const milliseconds shortest = std::min(options_.claim_time_max, options_.idle_time_max);
  const milliseconds sweep_time = std::max(milliseconds(1), shortest / 4);
  Time next_look = std::chrono::steady_clock::now() + look_time;
  Time next_sweep = std::chrono::steady_clock::now() + sweep_time;
  for (;;) {
    const Time now = std::chrono::steady_clock::now();
    if (now >= next_look) {
      look();
      next_look = now + look_time;
    }
    if (now >= next_sweep) {
      close_unclaimed();
      next_sweep = now + sweep_time;
    }
    const auto left = std::chrono::ceil<milliseconds>(std::min(next_look, next_sweep) - now);
    // A negative descriptor is none.
    std::array<pollfd, 2> states = {pollfd{listener_, POLLIN, 0}, pollfd{notifier_, POLLIN, 0}};
    ::poll(states.data(), states.size(), static_cast<int>(left.count()));
    uint64_t signalled = 0;
    if (::read(notifier_, &signalled, sizeof(signalled)) > 0 && stopping_) return;
    if (!accepting_ && listener_ >= 0) {
      ::close(std::exchange(listener_, -1));
    } else if ((states[0].revents & POLLIN) != 0) {
      accept_all();
    }
  }
}

void ConnectionAcceptor::accept_all() {
  constexpr int kTogether = 64;  // then the notifier and the others are looked at again
  for (int i = 0; i < kTogether; ++i) {
    Address peer{};
    socklen_t bytes = sizeof(peer);
    const int socket = ::accept4(listener_, &peer.any, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) {
      if (errno == ECONNABORTED || errno == EINTR) continue;
      if (errno == EAGAIN) return;
      warn(fmt::format("cannot accept: {}", std::strerror(errno)));
      std::this_thread::sleep_for(kAcceptPause);
      return;
    }
    if (make_room()) {
      take_in(socket, text_of(peer));
      continue;
    }
    counts_->refused.fetch_add(1, std::memory_order_relaxed);
    ::close(socket);
    warn(fmt::format("{} connections are open, as many as may be; others are closed unheard",
                     connection_count()));
  }
}

// Whether there is a place for one more, if need be that of one without a claim to it.
bool ConnectionAcceptor::make_room() {
  if (connection_count() < options_.connections_max) return true;
  drop_closed();
  if (connection_count() < options_.connections_max) return true;
  {
    const std::lock_guard lock(mutex_);
    const Time old = std::chrono::steady_clock::now() - options_.patience;
    Connection* least = nullptr;
    for (Connection& one : connections_) {
      if (one.leaving || one.claim == Claim::kCaller || one.accepted > old) continue;
      if (least == nullptr || one.claim < least->claim) least = &one;
    }
    if (least == nullptr) return false;
    counts_->unclaimed_closed.fetch_add(1, std::memory_order_relaxed);
    close(*least);
  }
  std::this_thread::sleep_for(kMakingRoom);
  drop_closed();
  return connection_count() < options_.connections_max;
}

void ConnectionAcceptor::take_in(int socket, std::string remote) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY);
  notice_lost_peer(socket, options_.lost_time_max);
  {
    const std::lock_guard lock(mutex_);
    Connection one{.socket = socket, .inode = inode_of(socket), .remote = remote};
    one.accepted = std::chrono::steady_clock::now();
    connections_.push_back(std::move(one));
    // One from the same port before it has been closed, though that has not been seen yet.
    by_remote_[std::move(remote)] = std::prev(connections_.end());
    counts_->open.fetch_add(1, std::memory_order_relaxed);
  }
  take_(socket);
}

void ConnectionAcceptor::claim(std::string_view remote, Claim claim) {
  const std::lock_guard lock(mutex_);
  const auto found = by_remote_.find(std::string(remote));
  if (found == by_remote_.end()) return;
  Connection& one = *found->second;
  one.claim = std::max(one.claim, claim);
  one.call_ended = std::chrono::steady_clock::now();
}

uint64_t ConnectionAcceptor::begin_call(std::string_view remote) {
  const std::lock_guard lock(mutex_);
  const auto found = by_remote_.find(std::string(remote));
  if (found == by_remote_.end()) return 0;
  found->second->claim = Claim::kCaller;
  ++found->second->calls;
  return found->second->inode;
}

void ConnectionAcceptor::end_call(std::string_view remote, uint64_t connection) {
  const std::lock_guard lock(mutex_);
  const auto found = by_remote_.find(std::string(remote));
  if (found == by_remote_.end() || found->second->inode != connection) return;
  --found->second->calls;
  found->second->call_ended = std::chrono::steady_clock::now();
}

void ConnectionAcceptor::drop_closed() {
  const std::lock_guard lock(mutex_);
  for (auto at = connections_.begin(); at != connections_.end();) {
    if (inode_of(at->socket) == at->inode) {
      ++at;
      continue;
    }
    const auto named = by_remote_.find(at->remote);
    if (named != by_remote_.end() && named->second == at) by_remote_.erase(named);
    at = connections_.erase(at);
    counts_->open.fetch_sub(1, std::memory_order_relaxed);
  }
}

void ConnectionAcceptor::close_unclaimed() {
  drop_closed();
  const std::lock_guard lock(mutex_);
  const Time now = std::chrono::steady_clock::now();
  for (Connection& one : connections_) {
    const bool is_silent =
        one.claim == Claim::kNone && one.accepted < now - options_.claim_time_max;
    const bool is_idle = one.claim == Claim::kCaller && one.calls == 0 &&
                         one.call_ended < now - options_.idle_time_max;
    if (one.leaving || (!is_silent && !is_idle)) continue;
    counts_->unclaimed_closed.fetch_add(1, std::memory_order_relaxed);
    close(one);
  }
}

void ConnectionAcceptor::look() {
  drop_closed();
  const std::lock_guard lock(mutex_);
  for (Connection& one : connections_) {
    if (!one.leaving) look_at(one);
  }
}

// Under mutex_.
void ConnectionAcceptor::look_at(Connection& connection) {
  const PeerProgress progress = taken_by_peer(connection.socket, 0);
  if (inode_of(connection.socket) != connection.inode) return;  // it was another's
  if (connection.patience.look(progress) == PeerPatience::Look::kTakesNothing) close(connection);
}

// Under mutex_. The library notices that nothing more comes, and closes its socket.
void ConnectionAcceptor::close(Connection& connection) {
  connection.leaving = true;
  // The number may become somebody else's at any time; a second one of our own stays what it is.
  const int own = ::fcntl(connection.socket, F_DUPFD_CLOEXEC, 0);
  if (own < 0) {
    connection.leaving = false;  // no descriptor is left: the next time
    return;
  }
  if (inode_of(own) == connection.inode) {
    reset_when_closed(own);
    ::shutdown(own, SHUT_RDWR);
  }
  ::close(own);
}

void ConnectionAcceptor::warn(std::string_view what) {
  const auto now = std::chrono::steady_clock::now();
  if (warned_ && now - *warned_ < kWarningTime) return;
  warned_ = now;
  log_.warning(fmt::format("gRPC: {}", what));
}

}  // namespace pelton::net
