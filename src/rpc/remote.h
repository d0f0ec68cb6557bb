// Who calls. Pure.
#pragma once

#include <string>

namespace pelton::rpc {

// A caller's address, "127.0.0.1:51234", of gRPC's own "ipv4:127.0.0.1:51234", or of
// "ipv6:%5B::1%5D:51234", which may name an interface: "%5Bfe80::1%25eth0%5D:51234".
std::string remote_of(const std::string& peer);

}  // namespace pelton::rpc
