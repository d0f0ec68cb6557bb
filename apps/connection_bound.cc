#include "apps/connection_bound.h"

#include <algorithm>

#include <sys/resource.h>

namespace pelton::apps {
namespace {

// The admin port's 64 connections, those that are being told that there are too many (64), gRPC,
// the model's files, logs and the store.
constexpr int64_t kDescriptorsKept = 320;

}  // namespace

cli::Flag connections_flag() {
  return {.name = "--max-connections",
          .value = "N",
          .help =
              "clients' connections at once; more are answered 503; never so many that no "
              "descriptor is left for the admin port",
          .kind = cli::Flag::Kind::kInteger,
          .default_text = "16384",
          .least = 1,
          .most = 1 << 20};
}

int connections_max(const cli::Arguments& arguments) {
  const int64_t asked = arguments.integer("--max-connections");
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return static_cast<int>(asked);
  if (limit.rlim_cur < limit.rlim_max) {
    rlimit raised = limit;
    raised.rlim_cur = limit.rlim_max;
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  if (limit.rlim_cur == RLIM_INFINITY) return static_cast<int>(asked);
  const auto descriptors = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 24));
  // Of very few, half.
  const int64_t left = std::max(descriptors - kDescriptorsKept, descriptors / 2);
  return static_cast<int>(std::clamp<int64_t>(asked, 1, std::max<int64_t>(left, 1)));
}

}  // namespace pelton::apps
