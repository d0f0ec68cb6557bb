#include "apps/connection_bound.h"

#include <sys/resource.h>

namespace pelton::apps {

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
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);  // refused or not: the server looks at what there is
  }
  return static_cast<int>(arguments.integer("--max-connections"));
}

}  // namespace pelton::apps
