#include "net/descriptor_share.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include <sys/resource.h>

namespace pelton::net {
namespace {

int64_t descriptors_open() {
  int64_t count = 0;
  std::error_code failed;
  for (std::filesystem::directory_iterator at("/proc/self/fd", failed), end; at != end;
       at.increment(failed)) {
    if (failed) break;
    ++count;
  }
  return count;
}

}  // namespace

int fitting_connections(const DescriptorShare& share) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return share.wanted;
  }
  const auto most = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 24));
  const int64_t unused = most - descriptors_open() - share.promised;
  const int64_t left = std::max(unused - share.spared, unused / 2);
  const int64_t refusals = std::min<int64_t>(share.refusals, left / 4);
  return static_cast<int>(std::clamp<int64_t>(left - refusals, 1, share.wanted));
}

}  // namespace pelton::net
