// The servers of this binary that run on this machine, as /proc shows them: no file is written
// anywhere for it. Those of other users are seen as far as the system shows them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace pelton::apps {

struct RunningServer {
  int pid = 0;
  int64_t seconds = 0;       // since it was started
  int64_t memory_bytes = 0;  // that are its own or shared, and in memory
  std::vector<int> ports;    // it listens at
  // Of /v1/models at the first port that answers; empty: nothing is served yet, or that is not
  // said.
  std::vector<std::string> models;
  // Of them, one by one: "asleep", "cold start 1.2 s"; empty: nothing is to be said.
  std::vector<std::string> states;
  std::string url;   // of that port; empty: none answered
  std::string note;  // why there are no models: "asks for a key"
};

// By their pids. Asks each for its models, for a second at most.
std::vector<RunningServer> running_servers();

// Asks it to end (SIGTERM) and waits until it has. Errors: kUnavailable if it has not after
// `seconds`; kIo if the system does not allow it.
Result<void> stop_server(int pid, int64_t seconds);

}  // namespace pelton::apps
