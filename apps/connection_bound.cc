#include "apps/connection_bound.h"

#include <algorithm>

#include "base/machine.h"

namespace pelton::apps {

cli::Flag connections_flag() {
  return {
      .name = "--max-connections",
      .value = "N",
      .help =
          "clients' connections at once, with --grpc-port a quarter of them over gRPC; more are "
          "answered 503; never so many that no descriptor is left for the admin port",
      .kind = cli::Flag::Kind::kInteger,
      .default_text = "16384",
      .least = 1,
      .most = 1 << 20};
}

ConnectionBound connection_bound(const cli::Arguments& arguments) {
  base::raise_descriptor_limit();  // granted or not: the server looks at what there is
  const auto all = static_cast<int>(arguments.integer("--max-connections"));
  if (!arguments.has("--grpc-port")) return {.http = all};
  // A connection of HTTP's carries one request at a time, one of gRPC's many.
  constexpr int kGrpcShare = 4;
  const int grpc = std::max(1, all / kGrpcShare);
  return {.http = std::max(1, all - grpc), .grpc = grpc};
}

}  // namespace pelton::apps
