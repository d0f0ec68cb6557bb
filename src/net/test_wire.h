// A wire between two machines, of namespaces: what one side sends is on its way for some
// milliseconds and is received then, by the other side. Over loopback the sender's own thread runs
// the receiver's TCP before its send() returns, which no server does for clients elsewhere.
//
// Needs CAP_NET_ADMIN and /dev/net/tun; ok() is false without. Made before the process has other
// threads (packets are carried by a child process); the thread that makes it is on the near side,
// and so are threads and processes that it starts, but those that call go_to_far_side().
#pragma once

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string_view>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"

namespace pelton::net {

class TestWire {
 public:
  static constexpr const char* kNearAddress = "10.9.0.1";
  static constexpr const char* kFarAddress = "10.9.0.2";

  // Packets are carried at once when one has waited so long.
  explicit TestWire(std::chrono::microseconds delay) : before_(own_namespace()) {
    if (before_ < 0 || ::unshare(CLONE_NEWNET) != 0) return;
    far_ = own_namespace();
    const int far_end = make_end(kFarAddress);
    const bool alone = ::unshare(CLONE_NEWNET) == 0;
    const int near_end = alone ? make_end(kNearAddress) : -1;
    if (far_end >= 0 && near_end >= 0) carry(near_end, far_end, delay);
    for (const int end : {near_end, far_end}) {
      if (end >= 0) ::close(end);
    }
  }
  ~TestWire() {
    if (carrier_ > 0) {
      ::kill(carrier_, SIGKILL);
      ::waitpid(carrier_, nullptr, 0);
    }
    if (before_ >= 0) {
      ::setns(before_, CLONE_NEWNET);
      ::close(before_);
    }
    if (far_ >= 0) ::close(far_);
  }
  TestWire(const TestWire&) = delete;
  TestWire& operator=(const TestWire&) = delete;

  bool ok() const { return carrier_ > 0; }
  // For the calling thread and what it starts.
  void go_to_far_side() const { CHECK(::setns(far_, CLONE_NEWNET) == 0); }

 private:
  static int own_namespace() { return ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC); }

  // An interface of the namespace that the thread is in; -1 where there can be none.
  static int make_end(const char* address) {
    const int end = ::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (end < 0) return -1;
    ifreq wire{};
    std::strcpy(wire.ifr_name, "wire");
    wire.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
    // As a network card does, it leaves sums and segments to the hardware, of which there is none.
    if (::ioctl(end, TUNSETIFF, &wire) != 0 ||
        ::ioctl(end, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) != 0 || !set_up(wire, address)) {
      ::close(end);
      return -1;
    }
    return end;
  }

  static bool set_up(ifreq wire, const char* address) {
    const int socket = ::socket(AF_INET, SOCK_DGRAM, 0);
    if (socket < 0) return false;
    const auto set = [&](unsigned long what, const char* word) {
      sockaddr_in in{};
      in.sin_family = AF_INET;
      in.sin_addr.s_addr = ::inet_addr(word);
      std::memcpy(&wire.ifr_addr, &in, sizeof in);
      return ::ioctl(socket, what, &wire) == 0;
    };
    bool done = set(SIOCSIFADDR, address) && set(SIOCSIFNETMASK, "255.255.255.0");
    wire.ifr_qlen = 10'000;
    done = done && ::ioctl(socket, SIOCSIFTXQLEN, &wire) == 0;
    wire.ifr_flags = IFF_UP | IFF_RUNNING;
    done = done && ::ioctl(socket, SIOCSIFFLAGS, &wire) == 0;
    ::close(socket);
    return done;
  }

  void carry(int near_end, int far_end, std::chrono::microseconds delay) {
    carrier_ = ::fork();
    if (carrier_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const sched_param none{};
    ::sched_setscheduler(0, SCHED_BATCH, &none);
    pollfd ends[] = {{near_end, POLLIN, 0}, {far_end, POLLIN, 0}};
    static char packet[65'600];  // a header of ten bytes stands before each
    while (::poll(ends, 2, -1) >= 0 || errno == EINTR) {
      ::usleep(static_cast<useconds_t>(delay.count()));
      for (bool some = true; some;) {
        some = false;
        for (const auto& [from, to] :
             {std::pair(near_end, far_end), std::pair(far_end, near_end)}) {
          // A full queue loses packets, as wires do.
          for (ssize_t size = 0; (size = ::read(from, packet, sizeof packet)) > 0; some = true) {
            [[maybe_unused]] const ssize_t sent = ::write(to, packet, static_cast<size_t>(size));
          }
        }
      }
    }
    ::_exit(1);
  }

  int before_ = -1;
  int far_ = -1;
  pid_t carrier_ = 0;
};

}  // namespace pelton::net
