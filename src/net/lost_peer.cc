#include "net/lost_peer.h"

#include <algorithm>

#include <linux/sockios.h>
#include <linux/tcp.h>  // glibc's own knows no windows
#include <netinet/in.h>
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
}

PeerProgress taken_by_peer(int socket, uint64_t sent_bytes) {
  PeerProgress progress;
  if (::ioctl(socket, SIOCOUTQ, &progress.untaken) != 0) progress.untaken = 0;
  tcp_info info{};  // of an older kernel the last fields stay 0
  socklen_t bytes = sizeof(info);
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0) {
    progress.room_to = info.tcpi_bytes_acked + info.tcpi_snd_wnd;
  } else {
    progress.room_to = sent_bytes - static_cast<uint64_t>(progress.untaken);  // other each time
  }
  return progress;
}

// Between the last byte taken and the first look after it may lie a whole one of the eighths.
PeerPatience::Look PeerPatience::look(const PeerProgress& progress) {
  if (progress.untaken == 0) {
    begin();
    return Look::kHasTakenAll;
  }
  if (progress.room_to != room_to_) {
    room_to_ = progress.room_to;
    in_vain_ = 0;
  } else if (++in_vain_ >= kLooks - 1) {
    return Look::kTakesNothing;
  }
  return Look::kTakesSome;
}

void keep_little_unsent(int socket) {
  constexpr int kNotSentBytesMax = 64 * 1024;
  set(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kNotSentBytesMax);
}

void reset_when_closed(int socket) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

}  // namespace pelton::net
