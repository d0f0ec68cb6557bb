#include "net/port_watch.h"

#include <cstdlib>
#include <memory>
#include <string>

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pelton::net {
namespace {

// The port that a TCP socket of this side is bound to; 0: it is none.
int port_of(int descriptor) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return 0;
  if (address.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  }
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  return 0;
}

bool is_connected(int socket) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  return ::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &bytes) == 0;
}

}  // namespace

PortWatch::PortWatch(const Options& options) : options_(options) {
  look();  // at the one who listens, before anybody comes
  thread_.emplace(
      base::PeriodicThread::Options{.name = "pelton-peers",
                                    .interval = options_.stall_time_max / PeerPatience::kLooks},
      [this] { look(); });
}

void PortWatch::look() {
  for (auto& [number, peer] : peers_) peer.seen = false;
  const std::unique_ptr<DIR, int (*)(DIR*)> descriptors(::opendir("/proc/self/fd"), ::closedir);
  if (descriptors == nullptr) return;
  while (const dirent* entry = ::readdir(descriptors.get())) {
    const int descriptor = std::atoi(entry->d_name);  // 0 for "." and "..", which is no socket
    if (port_of(descriptor) != options_.port) continue;
    // The library may close it at any time, and the number become somebody else's; a second one of
    // our own stays what it is.
    const int own = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (own < 0) continue;
    if (port_of(own) == options_.port) is_connected(own) ? look_at(own) : keep_little_unsent(own);
    ::close(own);
  }
  std::erase_if(peers_, [](const auto& one) { return !one.second.seen; });
}

void PortWatch::look_at(int socket) {
  struct stat status {};
  if (::fstat(socket, &status) != 0) return;
  const auto [at, is_new] = peers_.try_emplace(status.st_ino);
  at->second.seen = true;
  if (is_new) notice_lost_peer(socket, options_.lost_time_max);
  if (at->second.patience.look(taken_by_peer(socket)) != PeerPatience::Look::kTakesNothing) return;
  reset_when_closed(socket);
  ::shutdown(socket, SHUT_RDWR);  // the library notices, and closes it
}

}  // namespace pelton::net
