// Looks after the connections of a port that a foreign library serves: whose machine has vanished,
// or who takes nothing, is reset, by the rules that our own connections follow; who reads slowly is
// left alone, which no timeout of the library's or the kernel's knows how to do. Finds the sockets
// among the process's own descriptors. A thread of its own, "pelton-peers"; owned by whoever owns
// the port.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "base/periodic_thread.h"
#include "net/lost_peer.h"

namespace pelton::net {

class PortWatch {
 public:
  struct Options {
    int port = 0;
    std::chrono::milliseconds stall_time_max{30'000};  // of one who takes nothing of what is sent
    std::chrono::milliseconds lost_time_max{30'000};   // of one that nothing is sent to
  };

  explicit PortWatch(const Options& options);
  PortWatch(const PortWatch&) = delete;
  PortWatch& operator=(const PortWatch&) = delete;

 private:
  struct Peer {
    PeerPatience patience;
    bool seen = true;  // in this look
  };

  void look();
  void look_at(int socket);

  const Options options_;
  std::unordered_map<uint64_t, Peer> peers_;  // by the socket's number; the thread's

  std::optional<base::PeriodicThread> thread_;
};

}  // namespace pelton::net
