#include "net/unix_socket.h"

#include <cerrno>
#include <cstring>
#include <string_view>

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace pelton::net {
namespace {

// As the address that the system knows.
Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path) ||
      path.find('\0') != std::string::npos) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("'{}' cannot be a Unix socket: a path of 1 to {} bytes can",
                             path.substr(0, 256), sizeof(address.sun_path) - 1),
                 "uds"};
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

// 0: somebody listens there.
int try_to_connect(const sockaddr_un& address) {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return errno;
  const int failed =
      ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ? 0
                                                                                           : errno;
  ::close(socket);
  return failed;
}

}  // namespace

std::optional<std::string> unix_path(const std::string& address) {
  constexpr std::string_view kPrefix = "unix:";
  if (!address.starts_with(kPrefix)) return std::nullopt;
  return address.substr(kPrefix.size());
}

Result<void> make_room_for_socket(const std::string& path) {
  TRY_ASSIGN(const sockaddr_un address, address_of(path));
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) return {};  // or bind() says why it cannot be
  if (!S_ISSOCK(found.st_mode)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("there is something else at {}, and it stays", path), "uds"};
  }
  if (try_to_connect(address) != ECONNREFUSED) {
    return Error{ErrorCode::kAddressInUse,
                 fmt::format("{} is in use by another program; choose another path", path), "uds"};
  }
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  return Error{
      ErrorCode::kInvalidArgument,
      fmt::format("cannot remove the socket that was left at {}: {}", path, std::strerror(errno)),
      "uds"};
}

}  // namespace pelton::net
