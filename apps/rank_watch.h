// What `serve` does when a rank of a model's group is lost: every stream ends with an error that
// may be tried again, and the process leaves, since nothing can be computed without that rank. Any
// thread; owned by the model's host and by the group that reports to it.
#pragma once

#include <mutex>
#include <optional>

#include "base/log.h"
#include "base/result.h"
#include "engine/engine.h"

namespace pelton::apps {

class RankWatch {
 public:
  explicit RankWatch(base::Log& log) : log_(log) {}  // which outlives it

  // From here on a loss ends that engine's streams and the process; null: it is the load's.
  void watch(engine::Engine* engine);
  // Returns while nothing is watched: the load may notice, otherwise watch() acts on it.
  void lost(const Error& error);

 private:
  void leave(const Error& error);

  base::Log& log_;
  std::mutex mutex_;
  std::optional<Error> lost_;         // guarded by mutex_
  engine::Engine* engine_ = nullptr;  // guarded by mutex_
};

}  // namespace pelton::apps
