#include "node/lock_watch.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/residency.h"

namespace pelton::node {
namespace {

// A process that only writes to new memory takes some 3 GiB a second; the floor is 1 GiB where
// there is much. A look takes 70 us.
constexpr std::chrono::milliseconds kInterval{100};

}  // namespace

LockWatch::LockWatch(Options options, const checkpoint::Checkpoint& checkpoint, base::Log& log)
    : options_(std::move(options)),
      checkpoint_(checkpoint),
      log_(log),
      weight_bytes_(checkpoint::mapped_bytes(checkpoint)),
      thread_({.name = "pelton-lock", .interval = kInterval}, [this] { look(); }) {}

void LockWatch::look() {
  const std::optional<int64_t> available = options_.available();
  if (!available) return;
  if (locked_) {
    if (*available < options_.floor_bytes) give_up(*available);
    return;
  }
  // What is not locked counts as available, whether it is in memory or not.
  const bool enough = *available - weight_bytes_ >= 2 * options_.floor_bytes;
  calm_ = enough ? calm_ + 1 : 0;
  if (calm_ >= options_.calm_looks) take_again();
}

void LockWatch::give_up(int64_t available) {
  locked_ = false;
  calm_ = 0;
  checkpoint::unlock_weights(checkpoint_);
  log_.warning(
      fmt::format("memory is short, {} MiB are left: weights are not locked into it any more, and "
                  "answers are slow when the system has dropped some (--load-mode lock would not "
                  "give them up, and others would have to go)",
                  available >> 20));
}

void LockWatch::take_again() {
  calm_ = 0;
  if (const Result<void> taken = checkpoint::lock_weights(checkpoint_); !taken.ok()) {
    log_.debug(fmt::format("weights are not locked again: {}", taken.error().message));
    return;
  }
  locked_ = true;
  log_.info("there is enough memory again: weights are locked into it");
}

}  // namespace pelton::node
