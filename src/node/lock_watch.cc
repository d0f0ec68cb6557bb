#include "node/lock_watch.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/residency.h"

namespace pelton::node {
namespace {

// A process that only writes to new memory takes some 3 GiB a second; the floor is 1 GiB where
// there is much. A look takes 50 us.
constexpr std::chrono::milliseconds kInterval{100};

}  // namespace

LockWatch::LockWatch(Options options, const checkpoint::Checkpoint& checkpoint, base::Log& log)
    : options_(std::move(options)),
      checkpoint_(checkpoint),
      log_(log),
      thread_({.name = "pelton-lock", .interval = kInterval}, [this] { look(); }) {}

void LockWatch::look() {
  if (given_up_) return;
  const std::optional<int64_t> available = options_.available();
  if (!available || *available >= options_.floor_bytes) return;
  given_up_ = true;
  checkpoint::unlock_weights(checkpoint_);
  log_.warning(
      fmt::format("memory is short, {} MiB are left: weights are not locked into it any more, and "
                  "answers are slow when the system has dropped some (--load-mode lock would not "
                  "give them up, and others would have to go)",
                  *available >> 20));
}

}  // namespace pelton::node
