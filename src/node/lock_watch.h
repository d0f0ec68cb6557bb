// Locked weights are memory that others cannot have, and when they need it the system ends a
// process: the largest, as a rule, which is the server. A lock that nobody asked for must not come
// to that. So a thread of its own looks how much is left, and gives the lock up, for good, when
// that is little: the system may drop weights then, as it may with --load-mode mmap. Owned by
// LoadedModel, and gone before its checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "base/log.h"
#include "base/machine.h"
#include "base/periodic_thread.h"
#include "checkpoint/checkpoint.h"

namespace pelton::node {

class LockWatch {
 public:
  struct Options {
    int64_t floor_bytes = 0;
    // What is left; on the watch's thread.
    std::function<std::optional<int64_t>()> available = base::available_memory_bytes;
  };

  // `checkpoint` and `log` outlive it.
  LockWatch(Options options, const checkpoint::Checkpoint& checkpoint, base::Log& log);
  LockWatch(const LockWatch&) = delete;
  LockWatch& operator=(const LockWatch&) = delete;

 private:
  void look();

  const Options options_;
  const checkpoint::Checkpoint& checkpoint_;
  base::Log& log_;
  bool given_up_ = false;  // the thread's

  const base::PeriodicThread thread_;
};

}  // namespace pelton::node
