// A client whose machine is gone says nothing any more, not even goodbye: who only waits for it
// would keep its sequence for hours. So the kernel is made to ask; and it knows who takes nothing.
#pragma once

#include <chrono>
#include <cstdint>

namespace pelton::net {

// The connection fails once a peer that nothing is sent to has not answered the kernel's own
// questions for about this long. Whole seconds, at least two. Of a peer that is sent something only
// taken_by_peer() says: TCP_USER_TIMEOUT also ends connections whose peer reads slowly, because
// the kernel counts from when a window was shut first, and forgets that it was open since.
void notice_lost_peer(int socket, std::chrono::milliseconds limit);

struct PeerProgress {
  int untaken = 0;       // bytes given to the kernel that the peer's machine has not taken yet
  uint64_t room_to = 0;  // what it has taken and what it has room for beyond: grows as it reads
};
// `sent_bytes`: that the kernel has taken so far; asked where it does not say itself what the peer
// has room for, which is of a Unix socket.
PeerProgress taken_by_peer(int socket, uint64_t sent_bytes);

// Whether a peer takes what it is sent, by looks at it, evenly over the time in which it may take
// nothing. Looks are counted and not time: while this process stands still nobody is late.
class PeerPatience {
 public:
  static constexpr int kLooks = 8;  // in that time

  enum class Look { kHasTakenAll, kTakesSome, kTakesNothing };
  Look look(const PeerProgress& progress);
  // What comes now is said after a while of silence.
  void begin() { *this = {}; }

 private:
  uint64_t room_to_ = 0;  // when it last grew
  int in_vain_ = 0;       // looks since then
};

// Of what the kernel takes to send, this much at most is not on its way yet; whoever is accepted on
// a socket inherits it. What a client does not take waits in our queues, which are bounded, and not
// in megabytes of the kernel's, of which a third must be gone before it takes more.
void keep_little_unsent(int socket);

// Whatever is on its way is thrown away when the socket is closed, and the peer gets an RST.
void reset_when_closed(int socket);

}  // namespace pelton::net
