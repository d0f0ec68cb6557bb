// Where replicas run that somebody else starts: a cluster's API server, a batch system. Its calls
// may take seconds and may fail; SiteLauncher makes a Launcher of it. One thread.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "launch/launcher.h"

namespace pelton::launch {

class ReplicaSite {
 public:
  virtual ~ReplicaSite() = default;

  virtual bool knows(const std::string& pool) const = 0;  // any thread
  // kInvalidArgument: refused, and will be again. Any other error: it is not known whether it was
  // done, and the same order may be given again.
  virtual Result<void> start(const ReplicaOrder& order) = 0;
  // What is not there has stopped.
  virtual Result<void> stop(const ReplicaOrder& order, std::chrono::milliseconds grace) = 0;
  // As Launcher::list(). An error: nothing is known now, so what was known stays.
  virtual Result<std::vector<LaunchedReplica>> list() = 0;
  virtual uint64_t newest_token() const = 0;
  // Called, on any thread, when list() would say something else; before the first call.
  virtual void set_on_change(std::function<void()> changed) = 0;
};

}  // namespace pelton::launch
