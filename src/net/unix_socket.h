// The path of a Unix socket: whether it may be one, and what an earlier process has left there.
// Internal to this room.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace pelton::net {

// Of "unix:PATH"; nothing: it is an address of another kind.
std::optional<std::string> unix_path(const std::string& address);

// Makes room for a listener at `path`: a socket that nobody listens at any more is removed. Errors:
// kAddressInUse (somebody does), kInvalidArgument (too long for the system, or something else lies
// there), with the field "uds".
Result<void> make_room_for_socket(const std::string& path);

}  // namespace pelton::net
