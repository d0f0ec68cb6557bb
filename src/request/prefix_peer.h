// Where the beginning of a request's prompt is known to have been computed: another worker of the
// fleet, and what says that this request may fetch it from there. The gateway says so, in its
// envelope; a client cannot. A value.
#pragma once

#include <string>

namespace pelton::request {

struct PrefixPeer {
  std::string host;  // of its KV port
  int port = 0;
  int tokens = 0;      // of the prompt, that it is expected to have
  std::string ticket;  // kv_transfer/peer_ticket.h
  // It is computed there now. The request is over once it has come, and computes nothing itself.
  bool ahead = false;
};

}  // namespace pelton::request
