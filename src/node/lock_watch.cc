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
// Moved at a look, which takes some 40 ms of one processor: 12 GiB in about ten seconds.
constexpr int64_t kMovedBytes = int64_t{128} << 20;

}  // namespace

LockWatch::LockWatch(Options options, const checkpoint::Checkpoint& checkpoint,
                     checkpoint::WeightPieces pieces, base::Log& log)
    : options_(std::move(options)),
      pieces_(std::move(pieces)),
      log_(log),
      weight_bytes_(checkpoint::mapped_bytes(pieces_)),
      settled_(!options_.moves_pages),
      huge_pages_(checkpoint, pieces_),
      thread_({.name = "pelton-lock", .interval = kInterval}, [this] { look(); }) {}

void LockWatch::look() {
  const std::optional<int64_t> available = options_.available();
  if (!available) return;
  if (locked_) {
    if (*available < options_.floor_bytes) return give_up(*available);
    if (!settled_) move_some(*available);
    return;
  }
  // What is not locked counts as available, whether it is in memory or not.
  const bool enough = *available - weight_bytes_ >= 2 * options_.floor_bytes;
  calm_ = enough ? calm_ + 1 : 0;
  if (calm_ >= options_.calm_looks) take_again();
}

// What is moved is twice in memory for a moment, and the file's pages go when others want them.
void LockWatch::move_some(int64_t available) {
  if (++looks_ <= options_.looks_before_moving) return;
  if (available < 2 * options_.floor_bytes + kMovedBytes) return;  // perhaps later
  const Result<void> moved = huge_pages_.move(kMovedBytes);
  if (!moved.ok()) log_.warning(moved.error().message);
  if (moved.ok() && !huge_pages_.done()) return;
  settled_ = true;
  log_.debug(fmt::format("{} MiB of weights lie in huge pages", huge_pages_.moved_bytes() >> 20));
}

void LockWatch::give_up(int64_t available) {
  locked_ = false;
  calm_ = 0;
  looks_ = 0;
  settled_ = !options_.moves_pages;
  huge_pages_.give_back();
  checkpoint::unlock_weights(pieces_);
  log_.warning(
      fmt::format("memory is short, {} MiB are left: weights are not locked into it any more, and "
                  "answers are slow when the system has dropped some (--load-mode lock would not "
                  "give them up, and others would have to go)",
                  available >> 20));
}

void LockWatch::take_again() {
  calm_ = 0;
  if (const Result<void> taken = checkpoint::lock_weights(pieces_); !taken.ok()) {
    log_.debug(fmt::format("weights are not locked again: {}", taken.error().message));
    return;
  }
  locked_ = true;
  log_.info("there is enough memory again: weights are locked into it");
}

}  // namespace pelton::node
