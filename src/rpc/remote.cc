#include "rpc/remote.h"

#include <utility>

namespace pelton::rpc {

std::string remote_of(const std::string& peer) {
  std::string remote = peer.substr(peer.find(':') + 1);
  for (const auto& [coded, plain] : {std::pair("%5B", "["), std::pair("%5D", "]")}) {
    const size_t at = remote.find(coded);
    if (at != std::string::npos) remote.replace(at, 3, plain);
  }
  const size_t zone = remote.find('%');
  if (zone != std::string::npos) remote.erase(zone, remote.find(']') - zone);
  return remote;
}

}  // namespace pelton::rpc
