// TCP sockets of ranks: where they listen and how they reach each other, in bounded time. Plain
// functions; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include <netinet/in.h>

#include "base/result.h"

namespace pelton::parallel {

// A host, by name or IPv4 address, and a port.
struct Place {
  std::string host = "127.0.0.1";
  int port = 0;

  std::string text() const;
};

int64_t monotonic_ns();

// Error: kBadConfig of a host that has no IPv4 address.
Result<sockaddr_in> resolve(const Place& place);

// A socket that listens there, and its port: of port 0 one of the system's choice. The caller's to
// close. Errors: kIo, kBadConfig naming the place.
Result<std::pair<int, int>> listen_at(const Place& place);

// A socket that is connected, without Nagle's delay: the caller's to close. Tries once, until
// `end_ns` at most. Error: kUnavailable.
Result<int> connect_once(const sockaddr_in& address, int64_t end_ns,
                         const std::function<bool()>& stopped);

// All of so many bytes. Errors: kUnavailable where they do not come in time, the other side closes,
// or `stopped` says so.
Result<void> read_whole(int socket, char* to, size_t size, int64_t end_ns,
                        const std::function<bool()>& stopped);
// Few bytes, a handshake's.
bool send_whole(int socket, std::string_view bytes);

void without_delay(int socket);
// The other side's and this one's IPv4 address of a connection.
std::string peer_host(int socket);
std::string own_host(int socket);

}  // namespace pelton::parallel
