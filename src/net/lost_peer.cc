#include "net/lost_peer.h"

#include <algorithm>

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

namespace pelton::net {
namespace {

// What the kernel does not know it does without: then only its own long times count.
void set(int socket, int level, int name, int value) {
  ::setsockopt(socket, level, name, &value, sizeof(value));
}

}  // namespace

void notice_lost_peer(int socket, std::chrono::milliseconds limit) {
  constexpr int kProbes = 3;
  const int seconds = static_cast<int>(std::clamp<int64_t>(limit.count() / 1000, 2, 24 * 3600));
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, seconds / 2);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, seconds / (2 * kProbes)));
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  // Also a peer that acknowledges and takes nothing: its window has been shut so long.
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, seconds * 1000);
}

int bytes_not_taken(int socket) {
  int bytes = 0;
  return ::ioctl(socket, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

}  // namespace pelton::net
