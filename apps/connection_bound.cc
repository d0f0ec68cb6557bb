#include "apps/connection_bound.h"

#include "base/machine.h"

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
  base::raise_descriptor_limit();  // granted or not: the server looks at what there is
  return static_cast<int>(arguments.integer("--max-connections"));
}

}  // namespace pelton::apps
