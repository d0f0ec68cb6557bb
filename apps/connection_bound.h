// How many clients' connections the server is asked to take, and as many descriptors for them as
// the system allows. That enough are left for everything else is net's (descriptors_spared).
#pragma once

#include "cli/command_line.h"

namespace pelton::apps {

cli::Flag connections_flag();

// Each listener has its own share, so that whoever takes all of one does not keep others out of the
// other.
struct ConnectionBound {
  int http = 0;
  int grpc = 0;  // 0: there is no such listener
};
// Raises this process's soft limit of descriptors to its hard one first.
ConnectionBound connection_bound(const cli::Arguments& arguments);

}  // namespace pelton::apps
