// Locked weights are memory that others cannot have, and when they need it the system ends a
// process: the largest, as a rule, which is the server. A lock that nobody asked for must not come
// to that. So a thread of its own looks how much is left, and gives the lock up when that is
// little: the system may drop weights then, as it may with --load-mode mmap. When there has been
// enough for all weights for a minute, it takes the lock again. While the lock holds and there is
// room, it moves the weights into huge pages (checkpoint/huge_pages.h), some at each look, and
// back when the lock is given up. Owned by LoadedModel, and gone before its checkpoint.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

#include "base/log.h"
#include "base/machine.h"
#include "base/periodic_thread.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/huge_pages.h"

namespace pelton::node {

class LockWatch {
 public:
  struct Options {
    int64_t floor_bytes = 0;
    // The lock is taken again when with all weights in memory twice the floor would be left, so
    // many looks in turn: a minute.
    int calm_looks = 600;
    // Whether weights move into huge pages, and so many looks after the lock: a command that only
    // says a few words ends before.
    bool moves_pages = checkpoint::HugePages::are_worth_it();
    int looks_before_moving = 20;
    // What is left; on the watch's thread.
    std::function<std::optional<int64_t>()> available = base::available_memory_bytes;
  };

  // `pieces` of the checkpoint are locked. `checkpoint` and `log` outlive it.
  LockWatch(Options options, const checkpoint::Checkpoint& checkpoint,
            checkpoint::WeightPieces pieces, base::Log& log);
  LockWatch(const LockWatch&) = delete;
  LockWatch& operator=(const LockWatch&) = delete;

  bool locked() const { return locked_.load(); }  // any thread
  // No more pages are to be moved now. Any thread.
  bool settled() const { return settled_.load(); }

 private:
  void look();
  void give_up(int64_t available);
  void take_again();
  void move_some(int64_t available);

  const Options options_;
  const checkpoint::WeightPieces pieces_;
  base::Log& log_;
  const int64_t weight_bytes_;
  std::atomic<bool> locked_{true};
  std::atomic<bool> settled_;
  // The thread's:
  int calm_ = 0;   // looks in turn that found enough
  int looks_ = 0;  // since the lock
  checkpoint::HugePages huge_pages_;

  const base::PeriodicThread thread_;
};

}  // namespace pelton::node
