// A client whose machine is gone says nothing any more, not even goodbye: who only waits for it
// would keep its sequence for hours. So the kernel is told to ask; and it knows who takes nothing.
#pragma once

#include <chrono>

namespace pelton::net {

// The connection fails once nothing of what was sent to the peer has been acknowledged for this
// long, and once a peer that nothing is sent to has not answered the kernel's own questions for
// about as long. Whole seconds, at least two.
void notice_lost_peer(int socket, std::chrono::milliseconds limit);

// Of what was sent, as much as the peer's machine has not taken yet.
int bytes_not_taken(int socket);

}  // namespace pelton::net
